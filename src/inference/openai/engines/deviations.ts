// Known deviations of engines from OpenAI's form, and the repair of each. Pure. UpstreamFault.
//
// A form with one meaning is repaired; a form with no meaning or with two is refused.

import { UpstreamFault } from '../../failure.ts'
import { isObject, type JsonObject } from '../../json-text.ts'
import type { CompletionOperation } from '../../types.ts'
import type { GatewayRequest } from '../request.ts'
import { toolNameCharsMax } from '../tools.ts'
import { isNone, malformed, stringOrNull } from '../upstream-json.ts'

/**
 * One row for each deviation: its form, the engine with the version or date that it was seen with (null if none is on
 * record), and the repair. `test/inference/openai/engines/deviations.test.ts` has a case for each row.
 */
export const DEVIATIONS = [
  // Events of a stream.
  ['named ping event', null, 'left out'],
  ['ping in the data', null, 'left out'],
  ['event with empty data', null, 'left out'],
  ['white space around [DONE]', null, 'the end'],
  ['usage chunk without choices', 'ROCm ATOM before 28 July 2026', 'no choices'],
  ['usage chunk with null choices', null, 'no choices'],
  ['message instead of delta', null, 'the delta'],
  ['finish reason repeated', 'SGLang before 0.4.10', 'the first one'],
  // Usage.
  ['empty usage', 'MiMo API, June 2026', 'no usage'],
  ['usage with details alone', 'SGLang 0.5, June 2026', 'no usage'],
  ['usage without completion_tokens', 'LiteLLM, August 2024', 'the total less the prompt'],
  ['usage by the names of Responses', null, 'the same counts'],
  // Finish reasons.
  ['finish reason eos', 'Together API (Llama 3), October 2024', 'stop'],
  ['finish reason eos_token', 'TGI 1.4 to 2.x', 'stop'],
  ['finish reason stop_sequence', 'TGI 1.4 to 2.x', 'stop'],
  ['finish reason end_turn', null, 'stop'],
  ['finish reason max_tokens', null, 'length'],
  ['finish reason model_length', 'Mistral API', 'length'],
  ['finish reason sensitive', 'Zhipu API (GLM 4)', 'content_filter'],
  ['finish reason function_call', 'LocalAI 2.x to 3.5.0', 'tool_calls, or stop without calls'],
  ['finish reason tool_use', null, 'tool_calls, or stop without calls'],
  ['finish reason tool_calls without calls', 'LocalAI 3.5.0', 'stop'],
  // Calls of tools.
  ['arguments as an object', 'TGI 2.0.4, llama-server of early March 2026', 'its JSON'],
  ['call without arguments', null, '{}'],
  ['call without index', 'Ollama before 0.4.7', 'the next call, or more of the last'],
  ['one index for all calls', 'Ollama 0.20.4, Dynamo before December 2025', 'a call for each id'],
  ['first index is 1', null, 'counted from 0'],
  ['one id for all calls', null, 'an id for each call'],
  ['function_call member', 'OpenAI API before November 2023', 'the only call'],
  ['channel in the name of a tool', 'vLLM 0.10.2 to 0.13.0 (gpt-oss)', 'the name'],
  ['namespace in the name of a tool', null, 'the name'],
  // Texts.
  ['content in parts', 'Mistral API (Magistral 2507 and later)', 'text and reasoning_content'],
  ['reasoning_details', 'OpenRouter API, MiniMax API (M2)', 'reasoning_content'],
  ['null role', null, 'assistant'],
  // Log probabilities.
  ['null log probability', null, '-9999'],
  ['empty list of log probabilities', null, 'none'],
  // Whole completions.
  ['choices out of order', null, 'in order'],
] as const satisfies readonly (readonly [form: string, engine: string | null, repair: string])[]

/** Names of events that only keep a connection open. */
export const PING_EVENTS: ReadonlySet<string> = new Set(['ping', 'heartbeat', 'keepalive', 'keep-alive'])

/** Whether a document of a stream has no content: a chunk without choices, or a ping. */
export function isWithoutContent({ choices, usage, object, type }: JsonObject): boolean {
  return isNone(choices) && (isObject(usage) || type === 'ping' || object === 'chat.completion.chunk')
}

/** Whether an upstream's document is an error: vLLM before 0.10 has its fields at the top. */
export function isErrorDocument({ error, object }: JsonObject): boolean {
  return !isNone(error) || object === 'error'
}

const FINISH_REASONS: ReadonlyMap<string, string> = new Map([
  ...['stop', 'eos', 'eos_token', 'stop_sequence', 'end_turn'].map(name => [name, 'stop'] as const),
  ...['length', 'max_tokens', 'max_length', 'model_length'].map(name => [name, 'length'] as const),
  ...['content_filter', 'sensitive', 'safety'].map(name => [name, 'content_filter'] as const),
  ...['tool_calls', 'function_call', 'tool_use'].map(name => [name, 'tool_calls'] as const),
])

/** Reasons by which engines report that they gave up: the text before them is no answer. */
const ABORTED: ReadonlySet<string> = new Set(['abort', 'error', 'network_error', 'insufficient_system_resource'])

/** OpenAI's name of a finish reason. UpstreamFault reported_error or malformed. */
export function parseFinishReason(reason: unknown, operation: CompletionOperation, callCount: number): string {
  const name = typeof reason === 'string' ? reason.toLowerCase() : ''
  if (ABORTED.has(name)) throw new UpstreamFault('reported_error')
  const known = FINISH_REASONS.get(name)
  if (known === undefined || (known === 'tool_calls' && operation !== 'chat')) throw malformed()
  return known === 'tool_calls' && callCount === 0 ? 'stop' : known
}

/** The choices of a whole completion by their indices, which are all of 0 to n - 1. UpstreamFault malformed. */
export function inOrder(choices: readonly unknown[]): readonly JsonObject[] {
  const sorted: JsonObject[] = []
  for (const [at, choice] of choices.entries()) {
    if (!isObject(choice)) throw malformed()
    const index = choice.index ?? at
    if (typeof index !== 'number' || !(index in choices) || sorted[index] !== undefined) throw malformed()
    sorted[index] = choice
  }
  return sorted
}

/** The calls of a message or delta: `tool_calls`, or the one `function_call` of OpenAI's former API. */
export function callsOf({ tool_calls: calls, function_call: call }: JsonObject): readonly JsonObject[] {
  if (isNone(calls) || (Array.isArray(calls) && calls.length === 0)) return isObject(call) ? [{ function: call }] : []
  if (!Array.isArray(calls) || !calls.every(isObject)) throw malformed()
  return calls
}

/** The arguments of a call, or a piece of them, as JSON text. Empty if there are none. */
export function argumentsOf(value: unknown): string {
  return isObject(value) ? JSON.stringify(value) : (stringOrNull(value) ?? '')
}

/**
 * The name of the tool that a completion calls. With `tool_choice` auto a name that was not offered passes: the client
 * reports the mistake to the model. UpstreamFault wrong_tool if tool_choice or a strict response_format forbids it.
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

/** UpstreamFault bad_arguments if the arguments of a call of a strict tool are no JSON object. */
export function checkStrictArguments(args: string): void {
  let value: unknown = null
  try {
    value = args.trim() === '' ? {} : JSON.parse(args)
  } catch {
    // Refused below.
  }
  if (!isObject(value)) throw new UpstreamFault('bad_arguments')
}

/** `content` of a message or delta, which may be in parts. `reasoning`: of the parts with thoughts. */
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
