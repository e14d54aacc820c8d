// Drives the official openai client and tells what an application sees.
//
//   node openai.mjs SCENARIO JSON
//
// OPENAI_BASE_URL and OPENAI_API_KEY are the client's own variables. One line of
// JSON on standard output is the result; judging it is the caller's business. A
// failure of the script itself goes to standard error and exits 1.

import OpenAI from 'openai';

// Retries would hide a refusal behind a later success.
const client = new OpenAI({ maxRetries: 0 });

const chatBody = ({ model, prompt, maxTokens }) => ({
  model,
  messages: [{ role: 'user', content: prompt }],
  ...(maxTokens ? { max_tokens: maxTokens } : {}),
});

async function chat(args) {
  const { data, request_id: requestId } = await client.chat.completions.create(chatBody(args)).withResponse();
  const [choice] = data.choices;
  return {
    text: choice.message.content,
    finish: choice.finish_reason,
    models: [data.model],
    completionTokens: data.usage.completion_tokens,
    requestId: requestId ?? '',
  };
}

// Reads a stream; abortAfter > 0 breaks it off from outside after that many
// chunks, as an application with a stop button does.
async function stream({ usage, abortAfter = 0, ...args }) {
  const body = { ...chatBody(args), stream: true };
  if (usage) body.stream_options = { include_usage: true };
  const abort = new AbortController();
  const { data, request_id: requestId } = await client.chat.completions
    .create(body, { signal: abort.signal })
    .withResponse();
  const seen = { text: '', finish: '', chunks: 0, completionTokens: 0, requestId: requestId ?? '', aborted: false };
  const models = new Set();
  for await (const chunk of data) {
    seen.chunks++;
    models.add(chunk.model);
    seen.text += chunk.choices[0]?.delta?.content ?? '';
    seen.finish = chunk.choices[0]?.finish_reason ?? seen.finish;
    seen.completionTokens = chunk.usage?.completion_tokens ?? seen.completionTokens;
    if (seen.chunks === abortAfter) abort.abort();
  }
  seen.aborted = abort.signal.aborted;
  seen.models = [...models];
  return seen;
}

// Expects the call to be refused and tells how the client reports that.
async function refusal({ stream: streaming, ...args }) {
  try {
    await client.chat.completions.create({ ...chatBody(args), stream: Boolean(streaming) });
  } catch (e) {
    if (!(e instanceof OpenAI.APIError)) throw e;
    return { kind: e.constructor.name, status: e.status, code: e.code ?? '', type: e.type ?? '', message: e.message, requestId: e.requestID ?? '' };
  }
  throw new Error(`the call for ${args.model} was answered, not refused`);
}

const refusals = ({ calls }) => Promise.all(calls.map(refusal));

const concurrent = ({ calls }) => Promise.all(calls.map((c) => (c.stream ? stream(c) : chat(c))));

async function models() {
  const ids = [];
  for await (const m of client.models.list()) ids.push(m.id);
  return { ids };
}

const scenarios = { chat, stream, refusals, concurrent, models };
const [name, json = '{}'] = process.argv.slice(2);
if (!Object.hasOwn(scenarios, name)) {
  console.error(`unknown scenario ${name}; there are ${Object.keys(scenarios).join(', ')}`);
  process.exit(2);
}
console.log(JSON.stringify(await scenarios[name](JSON.parse(json))));
