// Drives the official @anthropic-ai/sdk; see scenario.mjs.

import Anthropic from '@anthropic-ai/sdk';
import { clock, countingFetch, main, refusal } from './scenario.mjs';

// The library's own variables say where and with which credential, of which it
// takes one: ANTHROPIC_API_KEY goes as x-api-key, ANTHROPIC_AUTH_TOKEN as a bearer token.
const client = (maxRetries = 0, not = { authToken: null }) => new Anthropic({ ...not, maxRetries, fetch: countingFetch });

const body = ({ model, prompt, maxTokens = 1000 }) => ({
  model,
  max_tokens: maxTokens,
  messages: [{ role: 'user', content: prompt }],
});

const tools = [{ name: clock.name, description: clock.description, input_schema: clock.parameters }];

function told(message, more = {}) {
  return {
    text: message.content.filter((b) => b.type === 'text').map((b) => b.text).join(''),
    tools: message.content.filter((b) => b.type === 'tool_use').map((b) => ({ name: b.name, args: b.input })),
    finish: message.stop_reason,
    models: [message.model],
    input: message.usage.input_tokens + (message.usage.cache_read_input_tokens ?? 0),
    output: message.usage.output_tokens,
    requestId: message._request_id ?? '',
    ...more,
  };
}

const chat = async (args) => told(await client(args.retries).messages.create(body(args)));

// stream reads with the library's own accumulator, which is strict about the
// order of events.
async function stream({ abortAfter = 0, ...args }) {
  const s = client(args.retries).messages.stream(args.tools ? { ...body(args), tools } : body(args));
  let chunks = 0;
  let text = '';
  try {
    for await (const event of s) {
      if (event.type !== 'content_block_delta') continue;
      chunks++;
      text += event.delta.text ?? '';
      if (chunks === abortAfter) s.abort();
    }
  } catch (e) {
    if (e instanceof Anthropic.APIUserAbortError) return { text, chunks, aborted: true };
    return { text, chunks, error: refusal(e) };
  }
  if (s.aborted) return { text, chunks, aborted: true };
  return told(await s.finalMessage(), { chunks });
}

await main({
  chat,
  'auth token': async (args) => told(await client(0, { apiKey: null }).messages.create(body(args))),
  stream,
  abort: stream,
  'tools': async (args) => told(await client().messages.create({ ...body(args), tools })),
  'tools stream': (args) => stream({ ...args, tools: true }),
  'count tokens': async ({ model, prompt }) => ({
    input: (await client().messages.countTokens({ model, messages: [{ role: 'user', content: prompt }] })).input_tokens,
  }),
  models: async () => {
    const ids = [];
    for await (const m of client().models.list()) ids.push(m.id);
    return { ids };
  },
});
