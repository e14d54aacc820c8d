// Drives @langchain/openai; see scenario.mjs.

import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { apiKey, baseURL, clock, colour, countingFetch, main } from './scenario.mjs';

const configuration = { baseURL, fetch: countingFetch };

const chat = ({ model, maxTokens, retries = 0 }) =>
  new ChatOpenAI({ model, apiKey, configuration, maxTokens, maxRetries: retries, streamUsage: true });

const tools = [{ type: 'function', function: clock }];

const told = (m, more = {}) => ({
  text: m.content,
  tools: (m.tool_calls ?? []).map((c) => ({ name: c.name, args: c.args })),
  finish: m.response_metadata.finish_reason,
  models: [m.response_metadata.model_name],
  input: m.usage_metadata?.input_tokens ?? 0,
  output: m.usage_metadata?.output_tokens ?? 0,
  ...more,
});

async function stream({ abortAfter = 0, ...args }) {
  const abort = new AbortController();
  const model = args.tools ? chat(args).bindTools(tools) : chat(args);
  let all;
  let text = '';
  let chunks = 0;
  try {
    for await (const chunk of await model.stream(args.prompt, { signal: abort.signal })) {
      all = all ? all.concat(chunk) : chunk;
      text += chunk.content;
      if (chunk.content && ++chunks === abortAfter) abort.abort();
    }
  } catch (e) {
    if (abort.signal.aborted) return { text, chunks, aborted: true };
    throw e;
  }
  if (abort.signal.aborted) return { text, chunks, aborted: true };
  return told(all, { chunks });
}

await main({
  chat: async (args) => told(await chat(args).invoke(args.prompt)),
  stream,
  abort: stream,
  tools: async (args) => told(await chat(args).bindTools(tools).invoke(args.prompt)),
  'tools stream': (args) => stream({ ...args, tools: true }),
  structured: async (args) => {
    const asked = chat(args).withStructuredOutput({ title: 'colour', ...colour }, { method: 'jsonSchema' });
    return { object: await asked.invoke(args.prompt) };
  },
  embeddings: async ({ model, inputs }) => {
    const e = new OpenAIEmbeddings({ model, apiKey, configuration, maxRetries: 0, encodingFormat: 'float' });
    return { dims: (await e.embedDocuments(inputs)).map((v) => v.length) };
  },
});
