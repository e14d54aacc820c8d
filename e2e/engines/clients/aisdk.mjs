// Drives Vercel's AI SDK, "ai" with "@ai-sdk/openai-compatible"; see scenario.mjs.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, embedMany, generateText, jsonSchema, Output, RetryError, streamText, tool } from 'ai';
import { apiKey, baseURL, clock, colour, countingFetch, main, refusal } from './scenario.mjs';

const iop = createOpenAICompatible({
  name: 'iop',
  baseURL,
  apiKey,
  fetch: countingFetch,
  includeUsage: true,
  supportsStructuredOutputs: true,
});

const call = ({ model, prompt, maxTokens, retries = 0 }) => ({
  model: iop(model),
  prompt,
  maxOutputTokens: maxTokens,
  maxRetries: retries,
});

const tools = { [clock.name]: tool({ description: clock.description, inputSchema: jsonSchema(clock.parameters) }) };

// said is the server's error below what the library throws.
function said(thrown) {
  const e = RetryError.isInstance(thrown) ? thrown.lastError : thrown;
  if (!APICallError.isInstance(e)) throw thrown;
  const { error } = e.data ?? {};
  return { error: { ...refusal(e), code: String(error?.code ?? ''), type: error?.type ?? '' } };
}

const told = (r, more = {}) => ({
  text: r.text,
  tools: r.toolCalls.map((c) => ({ name: c.toolName, args: c.input })),
  finish: r.finishReason,
  models: [r.response.modelId],
  input: r.usage.inputTokens ?? 0,
  output: r.usage.outputTokens ?? 0,
  ...more,
});

async function generate(args, more = {}) {
  try {
    const r = await generateText({ ...call(args), ...more });
    return told(r, { object: more.output ? r.output : undefined, requestId: r.response.headers['x-request-id'] ?? '' });
  } catch (e) {
    return said(e);
  }
}

async function stream({ abortAfter = 0, ...args }, more = {}) {
  const abort = new AbortController();
  let failed;
  const r = streamText({ ...call(args), ...more, abortSignal: abort.signal, onError: ({ error }) => { failed = error; } });
  let chunks = 0;
  let text = '';
  for await (const delta of r.textStream) {
    chunks++;
    text += delta;
    if (chunks === abortAfter) abort.abort();
  }
  if (abort.signal.aborted) return { text, chunks, aborted: true };
  if (failed) return { text, chunks, ...said(failed) };
  const [toolCalls, finishReason, response, usage] = await Promise.all([r.toolCalls, r.finishReason, r.response, r.usage]);
  return told({ text, toolCalls, finishReason, response, usage }, { chunks });
}

await main({
  chat: (args) => generate(args),
  stream: (args) => stream(args),
  abort: (args) => stream(args),
  tools: (args) => generate(args, { tools }),
  'tools stream': (args) => stream(args, { tools }),
  structured: (args) => generate(args, { output: Output.object({ schema: jsonSchema(colour) }) }),
  embeddings: async ({ model, inputs }) => {
    const r = await embedMany({ model: iop.embeddingModel(model), values: inputs, maxRetries: 0 });
    return { dims: r.embeddings.map((v) => v.length), input: r.usage.tokens };
  },
});
