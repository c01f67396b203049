// A client's request for a chat or text completion: its fields checked as far as the gateway acts on them. Pure.
// Fields that the gateway does not know go to the upstream as they are.

import { fromUtf8 } from '../../base/bytes.ts'
import type { Operation } from '../types.ts'
import { invalidRequest, isObject, type JsonObject, parseJsonText } from './json-text.ts'
import { callableTools, parseToolChoice, parseTools, type ToolChoice } from './tools.ts'
import { upstreamBody } from './upstream-body.ts'

export type ResponseFormat =
  | { readonly kind: 'text' }
  | { readonly kind: 'json_object' }
  | { readonly kind: 'json_schema'; readonly schema: JsonObject }

export type GatewayRequest = {
  readonly operation: Operation
  readonly model: string
  readonly stream: boolean
  /** Whether the client asked for the chunk with the usage. */
  readonly includeUsage: boolean
  /** Names of the tools that the completion may call. */
  readonly tools: ReadonlySet<string>
  readonly toolChoice: ToolChoice
  readonly format: ResponseFormat
  /** Choices that the completion must have. */
  readonly choiceCount: number
  /** The JSON text for the upstream. */
  readonly upstreamBody: string
}

const bodyLimits = { depthMax: 128, namesMax: 65_536 }
const choicesMax = 128

/** Fault invalid_request. The caller bounds the length. */
export function parseRequest(operation: Operation, bytes: Uint8Array): GatewayRequest {
  const text = decode(bytes)
  const body = parseBody(text)
  const model = body.model
  if (typeof model !== 'string' || model === '') throw invalidRequest('model must be the id of a model.')
  const stream = parseFlag(body, 'stream')
  const includeUsage = parseStreamOptions(body, stream)
  const { tools, toolChoice, format, promptCount } = operation === 'chat' ? parseChat(body) : parseText(body)
  const choiceCount = promptCount * parseCount(body.n)
  if (choiceCount > choicesMax) throw invalidRequest(`More than ${choicesMax} choices are asked for.`)
  return {
    operation,
    model,
    stream,
    includeUsage,
    tools: callableTools(tools, toolChoice),
    toolChoice,
    format,
    choiceCount,
    upstreamBody: upstreamBody(text, body, { addsUsage: stream && !includeUsage, toolChoice }),
  }
}

type OperationFields = Pick<GatewayRequest, 'tools' | 'toolChoice' | 'format'> & { readonly promptCount: number }

function parseChat(body: JsonObject): OperationFields {
  checkMessages(body.messages)
  refuseFunctions(body)
  const tools = parseTools(body.tools)
  const toolChoice = parseToolChoice(body.tool_choice, tools)
  return { tools, toolChoice, format: parseFormat(body.response_format), promptCount: 1 }
}

function parseText(body: JsonObject): OperationFields {
  refuseFunctions(body)
  return {
    tools: new Set(),
    toolChoice: { kind: 'none' },
    format: { kind: 'text' },
    promptCount: countPrompts(body.prompt),
  }
}

/** The fields from before `tools`: an engine that knows them could call what nobody has checked. */
function refuseFunctions(body: JsonObject): void {
  if (body.functions !== undefined || body.function_call !== undefined) {
    throw invalidRequest('functions and function_call are not supported; use tools and tool_choice.')
  }
}

function decode(bytes: Uint8Array): string {
  let text: string
  try {
    text = fromUtf8(bytes)
  } catch {
    throw invalidRequest('The body is not valid UTF-8.')
  }
  return text.startsWith('\uFEFF') ? text.slice(1) : text
}

function parseBody(text: string): JsonObject {
  const value = parseJsonText(text, bodyLimits)
  if (!isObject(value)) throw invalidRequest('The body must be a JSON object.')
  return value
}

function parseFlag(body: JsonObject, name: string): boolean {
  const value = body[name]
  if (value === undefined || value === null) return false
  if (typeof value !== 'boolean') throw invalidRequest(`${name} must be true or false.`)
  return value
}

function parseStreamOptions(body: JsonObject, stream: boolean): boolean {
  const options = body.stream_options
  if (options === undefined || options === null) return false
  if (!stream) throw invalidRequest('stream_options is for requests with stream: true.')
  if (!isObject(options)) throw invalidRequest('stream_options must be an object.')
  return parseFlag(options, 'include_usage')
}

const ROLES = new Set(['developer', 'system', 'user', 'assistant', 'tool'])

function checkMessages(messages: unknown): void {
  if (!Array.isArray(messages) || messages.length === 0)
    throw invalidRequest('messages must be a list with a message in it.')
  for (const [at, message] of messages.entries()) {
    if (!isObject(message)) throw invalidRequest(`messages[${at}] must be an object.`)
    const { role, content } = message
    if (typeof role !== 'string' || !ROLES.has(role)) {
      throw invalidRequest(`messages[${at}].role must be one of ${[...ROLES].join(', ')}.`)
    }
    const mayLackContent = role === 'assistant' && (message.tool_calls !== undefined || message.refusal !== undefined)
    if (!(isContent(content) || (mayLackContent && (content === undefined || content === null)))) {
      throw invalidRequest(`messages[${at}].content must be a text or a list of parts.`)
    }
    if (message.tool_calls !== undefined && !isToolCalls(message.tool_calls)) {
      throw invalidRequest(`messages[${at}].tool_calls must be a list of calls with id, type and function.`)
    }
    if (role === 'tool' && typeof message.tool_call_id !== 'string') {
      throw invalidRequest(`messages[${at}].tool_call_id must name the call that this answers.`)
    }
  }
}

function isContent(content: unknown): boolean {
  if (typeof content === 'string') return true
  return (
    Array.isArray(content) && content.length > 0 && content.every(part => isObject(part) && isNonEmptyString(part.type))
  )
}

function isToolCalls(calls: unknown): boolean {
  return (
    Array.isArray(calls) &&
    calls.every(
      call =>
        isObject(call) &&
        isNonEmptyString(call.id) &&
        call.type === 'function' &&
        isObject(call.function) &&
        isNonEmptyString(call.function.name) &&
        typeof call.function.arguments === 'string',
    )
  )
}

function parseFormat(format: unknown): ResponseFormat {
  if (format === undefined || format === null) return { kind: 'text' }
  const type = isObject(format) ? format.type : null
  if (type === 'text' || type === 'json_object') return { kind: type }
  if (!isObject(format) || type !== 'json_schema') {
    throw invalidRequest('response_format.type must be text, json_object or json_schema.')
  }
  const named = format.json_schema
  if (!isObject(named) || typeof named.name !== 'string' || !/^[a-zA-Z0-9_-]{1,64}$/.test(named.name)) {
    throw invalidRequest('response_format.json_schema.name must be 1 to 64 letters, digits, underscores and hyphens.')
  }
  if (named.strict !== true) {
    if (named.schema !== undefined && !isObject(named.schema)) {
      throw invalidRequest('response_format.json_schema.schema must be an object.')
    }
    return { kind: 'text' }
  }
  if (!isObject(named.schema)) throw invalidRequest('response_format.json_schema.schema must be an object.')
  return { kind: 'json_schema', schema: named.schema }
}

/** A text, a list of tokens, or a list of those. */
function countPrompts(prompt: unknown): number {
  if (typeof prompt === 'string') return 1
  if (!Array.isArray(prompt) || prompt.length === 0) throw invalidRequest('prompt must be a text or a list.')
  if (isTokens(prompt)) return 1
  if (prompt.every(one => typeof one === 'string') || prompt.every(isTokens)) return prompt.length
  throw invalidRequest('prompt must hold texts only, or tokens only, or lists of tokens only.')
}

function isTokens(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0 && value.every(token => Number.isSafeInteger(token) && token >= 0)
}

function parseCount(n: unknown): number {
  if (n === undefined || n === null) return 1
  if (typeof n !== 'number' || !Number.isInteger(n) || n < 1 || n > choicesMax) {
    throw invalidRequest(`n must be an integer from 1 to ${choicesMax}.`)
  }
  return n
}

function isNonEmptyString(value: unknown): boolean {
  return typeof value === 'string' && value !== ''
}
