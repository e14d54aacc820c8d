// Drives the official ollama package; see scenario.mjs.

import { Ollama } from 'ollama';
import { apiKey, baseURL, clock, countingFetch, main } from './scenario.mjs';

// The library adds /api itself, so its host is IOP's without /v1.
const client = new Ollama({
  host: baseURL.replace(/\/v1$/, ''),
  headers: { Authorization: `Bearer ${apiKey}` },
  fetch: countingFetch,
});

const told = (r, text, more = {}) => ({
  text,
  finish: r.done_reason,
  models: [r.model],
  input: r.prompt_eval_count ?? 0,
  output: r.eval_count ?? 0,
  ...more,
});

const options = ({ maxTokens }) => (maxTokens ? { num_predict: maxTokens } : {});
const chatBody = (args) => ({
  model: args.model,
  messages: [{ role: 'user', content: args.prompt }],
  options: options(args),
});

// read takes a stream to its end, or breaks it off after abortAfter parts.
async function read(parts, textOf, abortAfter = 0) {
  let text = '';
  let chunks = 0;
  let last;
  const models = new Set();
  try {
    for await (const part of parts) {
      chunks++;
      models.add(part.model);
      text += textOf(part);
      last = part;
      if (chunks === abortAfter) parts.abort();
    }
  } catch (e) {
    if (e.name === 'AbortError') return { text, chunks, aborted: true };
    throw e;
  }
  return told(last, text, { chunks, models: [...models] });
}

const ofChat = (part) => part.message.content;
const ofGenerate = (part) => part.response;
const stream = async ({ abortAfter, ...args }) => read(await client.chat({ ...chatBody(args), stream: true }), ofChat, abortAfter);

await main({
  chat: async (args) => {
    const r = await client.chat(chatBody(args));
    return told(r, r.message.content);
  },
  stream,
  abort: stream,
  generate: async (args) => {
    const r = await client.generate({ model: args.model, prompt: args.prompt });
    return told(r, r.response);
  },
  'generate stream': async (args) => read(await client.generate({ model: args.model, prompt: args.prompt, stream: true }), ofGenerate),
  embeddings: async ({ model, inputs }) => {
    const r = await client.embed({ model, input: inputs });
    return { dims: r.embeddings.map((v) => v.length), models: [r.model], input: r.prompt_eval_count ?? 0 };
  },
  tools: async (args) => {
    const r = await client.chat({ ...chatBody(args), tools: [{ type: 'function', function: clock }] });
    return told(r, r.message.content);
  },
  list: async () => ({ ids: (await client.list()).models.map((m) => m.model) }),
  ps: async () => ({ ids: (await client.ps()).models.map((m) => m.model) }),
  show: async ({ model }) => {
    const r = await client.show({ model });
    return { object: { details: r.details, capabilities: r.capabilities } };
  },
  version: async () => ({ text: (await client.version()).version }),
});
