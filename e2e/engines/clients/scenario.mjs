// What the applications in this folder share: they read scenarios as lines of
// JSON and answer each with lines of JSON.
//
//   node CLIENT.mjs <<<'{"scenario": "chat", "ask": {"model": …, "prompt": …}}'
//
// BASE_URL and API_KEY say where and with which key. Each HTTP answer that the
// library gets is told at once, as {"attempt": STATUS}; the result follows as
// {"result": …}, with all of them in "attempts". Judging it is the caller's
// business. A failure of the script itself goes to standard error and exits 1.

import { createInterface } from 'node:readline';

export const baseURL = process.env.BASE_URL;
export const apiKey = process.env.API_KEY;

let attempts = [];
let last = 0;

const say = (message) => console.log(JSON.stringify(message));

// countingFetch is the platform's fetch; it only notes each answer: its status,
// how long it asks to wait in seconds, and the milliseconds since the one before.
export async function countingFetch(...args) {
  const pause = last && Date.now() - last;
  const res = await fetch(...args);
  if (!res.url.startsWith('http')) return res; // openai probes the platform with a data URL
  last = Date.now();
  attempts.push({ status: res.status, retryAfter: Number(res.headers.get('retry-after') ?? 0), pause });
  say({ attempt: res.status });
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

// refusal tells how the library reports an error of the server. What it has no
// field for is looked for in the body, which Anthropic's keeps as e.error.
export function refusal(e) {
  const said = e.error?.error ?? {};
  return {
    kind: e.constructor.name,
    status: e.status ?? e.statusCode ?? e.status_code ?? 0,
    code: String(e.code ?? said.code ?? ''),
    type: e.type ?? said.type ?? '',
    message: e.message,
  };
}

// main runs the scenarios that standard input asks for, one after the other. An
// error that the library throws is a result too: {"error": …}.
export async function main(scenarios) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { scenario, ask } = JSON.parse(line);
    if (!Object.hasOwn(scenarios, scenario)) {
      console.error(`unknown scenario ${scenario}; there are ${Object.keys(scenarios).join(', ')}`);
      process.exit(2);
    }
    attempts = [];
    last = 0;
    let result;
    try {
      result = await scenarios[scenario](ask);
    } catch (e) {
      if (e instanceof TypeError || e instanceof ReferenceError || e instanceof SyntaxError) throw e;
      result = { error: refusal(e) };
    }
    say({ result: { ...result, attempts } });
  }
}
