// What the applications in this folder share: one scenario a process, and its
// result as one line of JSON.
//
//   node CLIENT.mjs SCENARIO JSON
//
// BASE_URL and API_KEY say where and with which key. Each HTTP request that the
// library makes is told at once on standard error as "attempt STATUS", and in
// the result as "attempts". Judging the result is the caller's business. A
// failure of the script itself goes to standard error and exits 1.

export const baseURL = process.env.BASE_URL;
export const apiKey = process.env.API_KEY;

const attempts = [];
let last = 0;

// countingFetch is the platform's fetch; it only notes each answer: its status,
// how long it asks to wait in seconds, and the milliseconds since the one before.
export async function countingFetch(...args) {
  const pause = last && Date.now() - last;
  const res = await fetch(...args);
  last = Date.now();
  attempts.push({ status: res.status, retryAfter: Number(res.headers.get('retry-after') ?? 0), pause });
  console.error(`attempt ${res.status}`);
  return res;
}

// clock is the tool that scenarios offer.
export const clock = {
  name: 'get_time',
  description: 'The time in a zone',
  parameters: {
    type: 'object',
    properties: { zone: { type: 'string', enum: ['utc', 'kst'] } },
    required: ['zone'],
    additionalProperties: false,
  },
};

// colour is what scenarios of structured output ask for.
export const colour = {
  type: 'object',
  properties: { colour: { type: 'string', enum: ['red', 'blue'] }, count: { type: 'integer' } },
  required: ['colour', 'count'],
  additionalProperties: false,
};

// refusal tells how the library reports an error of the server. What the library
// has no field for stays out.
export function refusal(e) {
  return {
    kind: e.constructor.name,
    status: e.status ?? e.statusCode ?? e.status_code ?? 0,
    code: String(e.code ?? ''),
    type: e.type ?? '',
    message: e.message,
  };
}

// main runs the scenario that the command line names. An error that the library
// throws is a result too: {"error": …}.
export async function main(scenarios) {
  const [name, json = '{}'] = process.argv.slice(2);
  if (!Object.hasOwn(scenarios, name)) {
    console.error(`unknown scenario ${name}; there are ${Object.keys(scenarios).join(', ')}`);
    process.exit(2);
  }
  let result;
  try {
    result = await scenarios[name](JSON.parse(json));
  } catch (e) {
    if (e instanceof TypeError || e instanceof ReferenceError || e instanceof SyntaxError) throw e;
    result = { error: refusal(e) };
  }
  console.log(JSON.stringify({ ...result, attempts }));
}
