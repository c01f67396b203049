// Known deviations of engines from OpenAI's form, and the repair of each. Pure. UpstreamFault.
//
// A form with one meaning is repaired; a form with no meaning or with two is refused. deviations.md lists all forms.

import { UpstreamFault } from '../../failure.ts'
import { isObject, type JsonObject } from '../../json-text.ts'
import type { CompletionOperation } from '../../types.ts'
import type { GatewayRequest } from '../request.ts'
import { toolNameCharsMax } from '../tools.ts'
import { isNone, malformed, stringOrNull } from '../upstream-json.ts'

/** Names of events that only keep a connection open. */
export const PING_EVENTS: ReadonlySet<string> = new Set(['ping', 'heartbeat', 'keepalive', 'keep-alive'])

/** Reports whether a document of a stream has no content: a chunk without choices, or a ping. */
export function isWithoutContent({ choices, usage, object, type }: JsonObject): boolean {
  return isNone(choices) && (isObject(usage) || type === 'ping' || object === 'chat.completion.chunk')
}

/** Reports whether an upstream's document is an error. vLLM before 0.10 has its fields at the top. */
export function isErrorDocument({ error, object }: JsonObject): boolean {
  return !isNone(error) || object === 'error'
}

const FINISH_REASONS: ReadonlyMap<string, string> = new Map([
  ...['stop', 'eos', 'eos_token', 'stop_sequence', 'end_turn'].map(name => [name, 'stop'] as const),
  ...['length', 'max_tokens', 'max_length', 'model_length'].map(name => [name, 'length'] as const),
  ...['content_filter', 'sensitive', 'safety'].map(name => [name, 'content_filter'] as const),
  ...['tool_calls', 'function_call', 'tool_use'].map(name => [name, 'tool_calls'] as const),
])

/** Reasons by which engines report that they gave up; the text before them is not an answer. */
const ABORTED: ReadonlySet<string> = new Set(['abort', 'error', 'network_error', 'insufficient_system_resource'])

/** Returns OpenAI's name of a finish reason. Throws UpstreamFault reported_error or malformed. */
export function parseFinishReason(reason: unknown, operation: CompletionOperation, callCount: number): string {
  const name = typeof reason === 'string' ? reason.toLowerCase() : ''
  if (ABORTED.has(name)) throw new UpstreamFault('reported_error')
  const known = FINISH_REASONS.get(name)
  if (known === undefined || (known === 'tool_calls' && operation !== 'chat')) throw malformed()
  return known === 'tool_calls' && callCount === 0 ? 'stop' : known
}

/**
 * Returns the choices of a complete completion by their indices, which are 0 to n - 1. Throws UpstreamFault malformed.
 */
export function inOrder(choices: readonly unknown[]): readonly JsonObject[] {
  const sorted: JsonObject[] = []
  for (let at = 0; at < choices.length; at += 1) {
    const choice = choices[at]
    if (!isObject(choice)) throw malformed()
    const index = choice.index ?? at
    if (typeof index !== 'number' || !(index in choices) || sorted[index] !== undefined) throw malformed()
    sorted[index] = choice
  }
  return sorted
}

/** Returns the calls of a message or delta: `tool_calls`, or the one `function_call` of OpenAI's former API. */
export function callsOf({ tool_calls: calls, function_call: call }: JsonObject): readonly JsonObject[] {
  if (isNone(calls) || (Array.isArray(calls) && calls.length === 0)) return isObject(call) ? [{ function: call }] : []
  if (!Array.isArray(calls) || !calls.every(isObject)) throw malformed()
  return calls
}

/** Returns the arguments of a call, or a piece of them, as JSON text. Empty if there are none. */
export function argumentsOf(value: unknown): string {
  return isObject(value) ? JSON.stringify(value) : (stringOrNull(value) ?? '')
}

/**
 * Returns the name of the tool that a completion calls. With `tool_choice` auto, a name that was not offered passes:
 * the client reports the mistake to the model. Throws UpstreamFault wrong_tool if tool_choice or a strict
 * response_format forbids it.
 */
export function calledTool(name: string, { tools, toolChoice, format }: GatewayRequest): string {
  if (tools.has(name)) return name
  const bare =
    name
      .replace(/^functions\./, '')
      .split('<|', 1)[0]
      ?.trim() ?? ''
  if (tools.has(bare)) return bare
  const mayPass = toolChoice.kind === 'auto' && format.kind !== 'json_schema' && name.length <= toolNameCharsMax
  if (!mayPass) throw new UpstreamFault('wrong_tool')
  return name
}

/** Throws UpstreamFault bad_arguments if the arguments of a call of a strict tool are not a JSON object. */
export function checkStrictArguments(args: string): void {
  let value: unknown = null
  try {
    value = args.trim() === '' ? {} : JSON.parse(args)
  } catch {
    // Refused below.
  }
  if (!isObject(value)) throw new UpstreamFault('bad_arguments')
}

/** Returns `content` of a message or delta, which may be in parts. `reasoning`: text of the parts with thoughts. */
export function contentOf(content: unknown): { readonly content: string | null; readonly reasoning: string } {
  if (!Array.isArray(content)) return { content: stringOrNull(content), reasoning: '' }
  let text = ''
  let reasoning = ''
  for (const part of content) {
    if (!isObject(part)) throw malformed()
    if (part.type === 'text') text += stringOrNull(part.text) ?? ''
    else if (part.type === 'thinking') reasoning += contentOf(part.thinking).content ?? ''
    else throw malformed()
  }
  return { content: text === '' ? null : text, reasoning }
}
