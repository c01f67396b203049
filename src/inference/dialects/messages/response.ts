// Builds objects of the Messages API from a chat completion. Pure.

import { resultOr } from '../../../base/result-or.ts'
import type { GatewayErrorCode } from '../../../contract/http/gateway-error.ts'
import type { GatewayError } from '../../../contract/http/inference.ts'
import { UpstreamFault } from '../../failure.ts'
import { isObject, type JsonObject } from '../../json-text.ts'
import type { ResponseHead } from '../../openai/dialect.ts'
import { cachedTokensOf, type Usage, usageOf } from '../../openai/usage.ts'
import { type ChatAnswer, type ChatCall, readCompletion } from '../chat-answer.ts'
import { hasMark, unmarkedJson, withMarkedNumbers } from '../long-numbers.ts'

/** This API's names for kinds of errors. */
const ERROR_TYPES = {
  invalid_request: 'invalid_request_error',
  context_length_exceeded: 'invalid_request_error',
  unauthenticated: 'authentication_error',
  not_found: 'not_found_error',
  method_not_allowed: 'invalid_request_error',
  unsupported_media_type: 'invalid_request_error',
  upgrade_required: 'invalid_request_error',
  body_timeout: 'timeout_error',
  conflict: 'invalid_request_error',
  body_too_large: 'request_too_large',
  key_config_mismatch: 'invalid_request_error',
  rate_limited: 'rate_limit_error',
  budget_exceeded: 'billing_error',
  upstream_failed: 'api_error',
  metering_unavailable: 'api_error',
  attestation_unavailable: 'api_error',
  'fleet.unavailable': 'api_error',
  internal: 'api_error',
} as const satisfies Record<GatewayErrorCode, string>

/**
 * Builds the error document. `status` is that of the response; absent in a stream. A budget that soon has room is a
 * 429, which this API calls a rate limit.
 */
export function errorDocument({ error }: GatewayError, status?: number): JsonObject {
  const type = status === 429 ? ERROR_TYPES.rate_limited : ERROR_TYPES[error.code]
  return { type: 'error', error: { ...error, type } }
}

/** Builds a message, either just begun or complete. */
export function messageOf(
  { id, model }: ResponseHead,
  state: { readonly content: readonly JsonObject[]; readonly stopReason: string | null; readonly usage: Usage | null },
): JsonObject {
  return {
    id: `msg_${id}`,
    type: 'message',
    role: 'assistant',
    model,
    content: state.content,
    stop_reason: state.stopReason,
    stop_sequence: null,
    usage: messageUsage(state.usage ?? usageOf({ prompt: 0, completion: 0 })),
  }
}

/** Converts the usage. In this API, input tokens do not include those from a cache. */
export function messageUsage(usage: Usage): JsonObject {
  const cached = cachedTokensOf(usage)
  return {
    input_tokens: usage.prompt_tokens - cached,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cached,
    output_tokens: usage.completion_tokens,
  }
}

const STOP_REASONS: ReadonlyMap<string | null, string> = new Map([
  ['length', 'max_tokens'],
  ['tool_calls', 'tool_use'],
  ['content_filter', 'refusal'],
])

/** Returns the stop reason. A chat completion does not show whether a stop sequence ended it. */
export function stopReasonOf(finishReason: string | null, isRefused: boolean): string {
  return isRefused ? 'refusal' : (STOP_REASONS.get(finishReason) ?? 'end_turn')
}

/**
 * Returns the `input` of a call's block; null if the arguments are not a JSON object. Engines may send no arguments.
 */
export function inputOf(args: string): JsonObject | null {
  const value: unknown = args.trim() === '' ? {} : resultOr(() => JSON.parse(args), null)
  return isObject(value) ? value : null
}

/** Returns a checked chat completion as this API's JSON. */
export function wholeMessage(completion: JsonObject, usage: Usage, head: ResponseHead): string {
  const answer = readCompletion(completion)
  const stopReason = stopReasonOf(answer.finishReason, answer.refusal !== '')
  const messageWith = (given: ChatAnswer) => messageOf(head, { content: contentOf(given), stopReason, usage })
  const text = JSON.stringify(messageWith(answer))
  const marked = answer.calls.map(call => ({ ...call, args: withMarkedNumbers(call.args, tooLarge) ?? call.args }))
  const isLong = marked.some(({ args }, at) => args !== answer.calls[at]?.args)
  return isLong && !hasMark(text) ? unmarkedJson(messageWith({ ...answer, calls: marked })) : text
}

/** Signature of thinking. Clients replay thinking that has a signature, and none here is checked. */
export const unsigned = 'unsigned'

function contentOf({ reasoning, content, refusal, calls, finishReason }: ChatAnswer): JsonObject[] {
  const blocks: JsonObject[] = []
  if (reasoning !== '') blocks.push({ type: 'thinking', thinking: reasoning, signature: unsigned })
  for (const text of [content, refusal]) if (text !== '') blocks.push({ type: 'text', text })
  const last = calls.at(-1)
  for (const call of calls) {
    // Arguments that were cut off are unusable.
    const isCut = call === last && finishReason === 'length' && inputOf(call.args) === null
    if (!isCut) blocks.push(callBlock(call))
  }
  return blocks
}

function tooLarge(): UpstreamFault {
  return new UpstreamFault('too_large')
}

function callBlock({ id, name, args }: ChatCall): JsonObject {
  // Broken arguments, in the form that engines get for earlier calls (repairs.ts). The agent reports them to the
  // model.
  return { type: 'tool_use', id, name, input: inputOf(args) ?? { unparsed_arguments: args } }
}
