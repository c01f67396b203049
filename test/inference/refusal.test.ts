// Errors of engines, by engine, with the text that the engine sends.

import { expect, test } from 'bun:test'
import type { Fault } from '../../src/base/fault.ts'
import { BusyFault, UpstreamFault } from '../../src/inference/failure.ts'
import { refusalFault, refusalIn, reportedFault } from '../../src/inference/refusal.ts'

const vllm = (message: string) => ({ object: 'error', message, type: 'BadRequestError', param: null, code: 400 })
const newVllm = (message: string) => ({ error: { message, type: 'BadRequestError', param: null, code: 400 } })
const sglang = vllm
const llama = (code: number, message: string, type = 'server_error') => ({ error: { code, message, type } })

const refused = (status: number, body: unknown) => refusalFault(status, JSON.stringify(body))

function kindOf(fault: Fault): string {
  if (fault instanceof UpstreamFault) return fault.reason
  return fault instanceof BusyFault ? `busy ${fault.retryAfterSeconds}` : fault.code
}

// Goal: agents act on the code, and the operator sees whose turn it is.
test.each([
  [
    'vLLM 0.6',
    400,
    vllm("This model's maximum context length is 8192 tokens. However, you requested 9000"),
    'context_length_exceeded',
    'context_too_long',
    'client',
  ],
  [
    'vLLM 0.10',
    400,
    newVllm('The decoder prompt (length 9000) is longer than the maximum model length of 8192.'),
    'context_length_exceeded',
    'context_too_long',
    'client',
  ],
  [
    'SGLang 0.5',
    400,
    sglang("The input (9000 tokens) is longer than the model's context length (8192 tokens)."),
    'context_length_exceeded',
    'context_too_long',
    'client',
  ],
  [
    'llama-server',
    400,
    llama(400, 'the request exceeds the available context size', 'exceed_context_size_error'),
    'context_length_exceeded',
    'context_too_long',
    'client',
  ],
  [
    'llama-server while it generates',
    500,
    llama(500, 'Context size has been exceeded.'),
    'context_length_exceeded',
    'context_too_long',
    'client',
  ],
  [
    'vLLM without tools',
    400,
    vllm('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    'invalid_request',
    'tools_not_enabled',
    'operator',
  ],
  [
    'llama-server without tools',
    500,
    llama(500, 'tools param requires --jinja flag'),
    'invalid_request',
    'tools_not_enabled',
    'operator',
  ],
  [
    'vLLM without pictures',
    400,
    newVllm('tiny is not a multimodal model'),
    'invalid_request',
    'content_not_taken',
    'client',
  ],
  [
    'vLLM with few pictures',
    400,
    newVllm('At most 0 image(s) may be provided in one prompt.'),
    'invalid_request',
    'content_not_taken',
    'client',
  ],
  [
    'llama-server without pictures',
    500,
    llama(500, 'image input is not supported - hint: if this is unexpected, you may need to provide the mmproj'),
    'invalid_request',
    'content_not_taken',
    'client',
  ],
  [
    'llama-server, a schema',
    400,
    llama(400, 'Failed to initialize samplers: failed to parse grammar', 'invalid_request_error'),
    'invalid_request',
    'schema_not_taken',
    'client',
  ],
  [
    'vLLM, a schema',
    400,
    newVllm('The provided JSON schema contains features not supported by xgrammar.'),
    'invalid_request',
    'schema_not_taken',
    'client',
  ],
  [
    'SGLang, a schema',
    400,
    sglang('Failed to compile json schema: Zanzibar'),
    'invalid_request',
    'schema_not_taken',
    'client',
  ],
  [
    'vLLM, a template',
    400,
    newVllm('Conversation roles must alternate user/assistant/user/assistant/... None'),
    'invalid_request',
    'chat_template',
    'operator',
  ],
  [
    'llama-server, a template',
    500,
    llama(
      500,
      '\n------------\nWhile executing CallExpression at line 189\nError: Jinja Exception: After the optional system message',
    ),
    'invalid_request',
    'chat_template',
    'operator',
  ],
  [
    'vLLM, memory',
    500,
    newVllm('CUDA out of memory. Tried to allocate 2.00 GiB'),
    'out_of_memory',
    'out_of_memory',
    'operator',
  ],
  [
    'llama-server, memory',
    500,
    llama(500, 'failed to find free space in the KV cache'),
    'out_of_memory',
    'out_of_memory',
    'operator',
  ],
  [
    'llama-server that starts',
    503,
    llama(503, 'Loading model', 'unavailable_error'),
    'busy 10',
    'model_loading',
    'operator',
  ],
  [
    'llama-server, choices',
    400,
    llama(400, 'Only one completion choice is allowed', 'invalid_request_error'),
    'invalid_request',
    'choices_not_taken',
    'client',
  ],
  [
    'vLLM, choices',
    400,
    newVllm('n must be 1 when using greedy sampling, got 2.'),
    'invalid_request',
    'choices_not_taken',
    'client',
  ],
  [
    'llama-server, log probabilities',
    500,
    llama(500, 'logprobs is not supported with tools + stream'),
    'invalid_request',
    'logprobs_not_taken',
    'client',
  ],
  ['a text far behind the reason', 500, newVllm(`${'x'.repeat(512)} jinja`), 'status', 'unknown', null],
  ['a sentence about memory in a 400', 400, vllm('Zanzibar is out of memory'), 'invalid_request', 'unknown', null],
  ['an unknown refusal', 400, { detail: 'no' }, 'invalid_request', 'unknown', null],
  ['an unknown failure', 500, llama(500, 'segfault'), 'status', 'unknown', null],
])('%s', (_engine, status, body, kind, reason, fixedBy) => {
  const fault = refused(status, body)
  expect([kindOf(fault), refusalIn(fault)]).toMatchObject([kind, { reason, fixedBy, status }])
  expect(fault.message).not.toMatch(/Zanzibar|allocate|CallExpression|--enable/)
})

// Goal: the same for errors in place of a chunk or a completion; SGLang refuses streams so.
test.each([
  [
    { error: { message: "The input (9 tokens) is longer than the model's context length (8 tokens)." } },
    'context_length_exceeded',
  ],
  [{ error: 'CUDA out of memory' }, 'out_of_memory'],
  [{ object: 'error', message: 'leaky' }, 'reported_error'],
  [{ error: { code: 500 } }, 'reported_error'],
])('%j in a stream', (document, kind) => {
  expect(kindOf(reportedFault(document))).toBe(kind)
})

// Goal: other failures have no refusal to log.
test('a failure that is no refusal', () => {
  expect([refusalIn(new UpstreamFault('cut')), refusalIn(new Error('x', { cause: 'y' }))]).toEqual([null, null])
})

// Goal: the log gets lengths, and types, codes and fields out of lists, whatever an engine writes: it may quote prompts
// and answers, and a path may have the client's own names.
test.each([
  [{ error: { message: 'Zanzibar', type: 'Zanzibar', code: 'Zanzibar', param: 'Zanzibar' } }, [null, null, null, 8]],
  [{ error: { message: 'Zanzibar', type: 'BadRequestError' } }, ['BadRequestError', null, null, 8]],
  [{ error: { message: ['Zanzibar'], type: { toString: 'Zanzibar' } } }, [null, null, null, 65]],
  [{ message: 'Zanzibar', code: 422, param: 'tools[0].function.Zanzibar' }, [null, 422, 'tools', 8]],
  [{ message: 'Zanzibar', code: 4_111_222_333, param: ['messages'] }, [null, null, null, 8]],
  [
    { error: { message: 'Zanzibar', type: 'server_error', code: 'unsupported_value', param: 'temperature' } },
    ['server_error', 'unsupported_value', 'temperature', 8],
  ],
  ['Zanzibar', [null, null, null, 10]],
])('the log has %j by its length', (body, [type, code, param, chars]) => {
  for (const status of [400, 500]) {
    const refusal = refusalIn(refused(status, body))
    expect<unknown>({ ...refusal }).toEqual({ reason: 'unknown', fixedBy: null, status, type, code, param, chars })
  }
})
