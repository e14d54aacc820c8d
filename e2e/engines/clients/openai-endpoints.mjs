// Drives each endpoint of the official openai package; see scenario.mjs. The
// calls that run at once and the refusals are in openai.mjs.

import OpenAI, { toFile } from 'openai';
import { clock, colour, countingFetch, main } from './scenario.mjs';

// OPENAI_BASE_URL and OPENAI_API_KEY are the client's own variables.
const client = (maxRetries = 0) => new OpenAI({ maxRetries, fetch: countingFetch });

const body = ({ model, prompt, maxTokens }) => ({
  model,
  messages: [{ role: 'user', content: prompt }],
  ...(maxTokens ? { max_tokens: maxTokens } : {}),
});

const tools = [{ type: 'function', function: clock }];

const told = (done, more = {}) => ({
  text: done.choices[0].message.content ?? '',
  tools: (done.choices[0].message.tool_calls ?? []).map((c) => ({ name: c.function.name, args: JSON.parse(c.function.arguments) })),
  finish: done.choices[0].finish_reason,
  models: [done.model],
  input: done.usage?.prompt_tokens ?? 0,
  output: done.usage?.completion_tokens ?? 0,
  requestId: done._request_id ?? '',
  ...more,
});

// stream reads with the library's own accumulator.
async function stream({ abortAfter = 0, ...args }) {
  const s = client(args.retries).chat.completions.stream({
    ...body(args),
    ...(args.tools ? { tools } : {}),
    stream_options: { include_usage: true },
  });
  let text = '';
  let chunks = 0;
  try {
    for await (const chunk of s) {
      const delta = chunk.choices[0]?.delta?.content;
      if (!delta) continue;
      text += delta;
      if (++chunks === abortAfter) s.abort();
    }
  } catch (e) {
    if (s.aborted) return { text, chunks, aborted: true };
    throw e;
  }
  if (s.aborted) return { text, chunks, aborted: true };
  return told(await s.finalChatCompletion(), { chunks });
}

const ofResponse = (r, more = {}) => ({
  text: r.output_text,
  finish: r.status,
  models: [r.model],
  input: r.usage.input_tokens,
  output: r.usage.output_tokens,
  ...more,
});

await main({
  chat: async (args) => told(await client(args.retries).chat.completions.create(body(args))),
  stream,
  abort: stream,
  tools: async (args) => told(await client().chat.completions.create({ ...body(args), tools })),
  'tools stream': (args) => stream({ ...args, tools: true }),
  structured: async (args) => {
    const done = await client().chat.completions.parse({
      ...body(args),
      response_format: { type: 'json_schema', json_schema: { name: 'colour', strict: true, schema: colour } },
    });
    return told(done, { object: done.choices[0].message.parsed ?? JSON.parse(done.choices[0].message.content) });
  },
  completions: async ({ model, prompt }) => {
    const done = await client().completions.create({ model, prompt });
    return {
      text: done.choices[0].text,
      finish: done.choices[0].finish_reason,
      models: [done.model],
      input: done.usage.prompt_tokens,
      output: done.usage.completion_tokens,
    };
  },
  responses: async ({ model, prompt }) => ofResponse(await client().responses.create({ model, input: prompt })),
  'responses stream': async ({ model, prompt }) => {
    let text = '';
    let chunks = 0;
    let done;
    for await (const event of await client().responses.create({ model, input: prompt, stream: true })) {
      if (event.type === 'response.output_text.delta') {
        chunks++;
        text += event.delta;
      }
      if (event.type === 'response.completed') done = event.response;
    }
    return ofResponse(done, { text, chunks });
  },
  // Without encoding_format the library asks for base64 and decodes it.
  embeddings: async ({ model, inputs }) => {
    const r = await client().embeddings.create({ model, input: inputs });
    return { dims: r.data.map((d) => d.embedding.length), models: [r.model], input: r.usage.prompt_tokens };
  },
  'embeddings float': async ({ model, inputs }) => {
    const r = await client().embeddings.create({ model, input: inputs, encoding_format: 'float' });
    return { dims: r.data.map((d) => d.embedding.length), models: [r.model], input: r.usage.prompt_tokens };
  },
  models: async () => {
    const ids = [];
    for await (const m of client().models.list()) ids.push(m.id);
    return { ids };
  },
  'audio refused': async ({ model, retries }) => {
    const file = await toFile(Buffer.from('RIFF'), 'said.wav');
    return { text: (await client(retries).audio.transcriptions.create({ model, file })).text };
  },
  'images refused': async ({ model, prompt, retries }) => ({
    text: (await client(retries).images.generate({ model, prompt })).data[0].url,
  }),
  model: async ({ model }) => ({ ids: [(await client().models.retrieve(model)).id] }),
});
