// What a client asks for: chat and text completions, checked as far as we answer for them, and the body that goes upstream. Pure.
// Fields that we do not know are forwarded as they are.

import { present } from '../../base/assert.ts'
import { fromUtf8 } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import { checkJsonText, type Member, membersOf, partsOf } from './json-text.ts'

export type Operation = 'chat' | 'text_completion'

export type ToolChoice =
  | { readonly kind: 'auto' }
  | { readonly kind: 'none' }
  | { readonly kind: 'required' }
  | { readonly kind: 'named'; readonly name: string }

export type AnswerFormat =
  | { readonly kind: 'text' }
  | { readonly kind: 'json_object' }
  | { readonly kind: 'json_schema'; readonly schema: JsonObject }

export type JsonObject = { readonly [key: string]: unknown }

export type GatewayRequest = {
  readonly operation: Operation
  readonly model: string
  readonly stream: boolean
  /** Whether the client asked for the chunk with the usage. */
  readonly includeUsage: boolean
  /** Names of the tools that an answer may call. */
  readonly tools: ReadonlySet<string>
  readonly toolChoice: ToolChoice
  readonly format: AnswerFormat
  /** Choices that an answer must have. */
  readonly choiceCount: number
  /** The JSON text for the upstream. */
  readonly upstreamBody: string
}

const bodyLimits = { depthMax: 128, namesMax: 65_536 }
const toolsMax = 128
const choicesMax = 128

/** Fault invalid_request. The caller bounds the length. */
export function parseRequest(operation: Operation, bytes: Uint8Array): GatewayRequest {
  const text = textOf(bytes)
  const body = parseBody(text)
  const model = body.model
  if (typeof model !== 'string' || model === '') throw invalid('model must be the id of a model.')
  const stream = flag(body, 'stream')
  const includeUsage = parseStreamOptions(body, stream)
  if (operation === 'chat') checkMessages(body.messages)
  if (body.functions !== undefined || body.function_call !== undefined) {
    throw invalid('functions and function_call are not supported; use tools and tool_choice.')
  }
  const tools = operation === 'chat' ? parseTools(body.tools) : new Set<string>()
  const toolChoice = operation === 'chat' ? parseToolChoice(body.tool_choice, tools) : ({ kind: 'none' } as const)
  const format = operation === 'chat' ? parseFormat(body.response_format) : ({ kind: 'text' } as const)
  const prompts = operation === 'chat' ? 1 : countPrompts(body.prompt)
  const choiceCount = prompts * parseCount(body.n)
  if (choiceCount > choicesMax) throw invalid(`More than ${choicesMax} choices are asked for.`)
  const allowed = allowedTools(tools, toolChoice)
  const upstreamBody = toUpstream(text, body, { asksUsage: stream && !includeUsage, toolChoice })
  return { operation, model, stream, includeUsage, tools: allowed, toolChoice, format, choiceCount, upstreamBody }
}

function textOf(bytes: Uint8Array): string {
  let text: string
  try {
    text = fromUtf8(bytes)
  } catch {
    throw invalid('The body is not valid UTF-8.')
  }
  return text.startsWith('\uFEFF') ? text.slice(1) : text
}

function parseBody(text: string): JsonObject {
  const value = checkJsonText(text, bodyLimits)
  if (!isObject(value)) throw invalid('The body must be a JSON object.')
  return value
}

function flag(body: JsonObject, name: string): boolean {
  const value = body[name]
  if (value === undefined || value === null) return false
  if (typeof value !== 'boolean') throw invalid(`${name} must be true or false.`)
  return value
}

function parseStreamOptions(body: JsonObject, stream: boolean): boolean {
  const options = body.stream_options
  if (options === undefined || options === null) return false
  if (!stream) throw invalid('stream_options is for requests with stream: true.')
  if (!isObject(options)) throw invalid('stream_options must be an object.')
  return flag(options, 'include_usage')
}

const ROLES = new Set(['developer', 'system', 'user', 'assistant', 'tool'])

function checkMessages(messages: unknown): void {
  if (!Array.isArray(messages) || messages.length === 0) throw invalid('messages must be a list with a message in it.')
  for (const [at, message] of messages.entries()) {
    if (!isObject(message)) throw invalid(`messages[${at}] must be an object.`)
    const { role, content } = message
    if (typeof role !== 'string' || !ROLES.has(role)) {
      throw invalid(`messages[${at}].role must be one of ${[...ROLES].join(', ')}.`)
    }
    const mayLackContent = role === 'assistant' && (message.tool_calls !== undefined || message.refusal !== undefined)
    if (!(isContent(content) || (mayLackContent && (content === undefined || content === null)))) {
      throw invalid(`messages[${at}].content must be a text or a list of parts.`)
    }
    if (message.tool_calls !== undefined && !isToolCalls(message.tool_calls)) {
      throw invalid(`messages[${at}].tool_calls must be a list of calls with id, type and function.`)
    }
    if (role === 'tool' && typeof message.tool_call_id !== 'string') {
      throw invalid(`messages[${at}].tool_call_id must name the call that this answers.`)
    }
  }
}

function isContent(content: unknown): boolean {
  if (typeof content === 'string') return true
  return Array.isArray(content) && content.length > 0 && content.every(part => isObject(part) && isText(part.type))
}

function isToolCalls(calls: unknown): boolean {
  return (
    Array.isArray(calls) &&
    calls.every(
      call =>
        isObject(call) &&
        isText(call.id) &&
        call.type === 'function' &&
        isObject(call.function) &&
        isText(call.function.name) &&
        typeof call.function.arguments === 'string',
    )
  )
}

function parseTools(tools: unknown): Set<string> {
  const names = new Set<string>()
  if (tools === undefined || tools === null) return names
  if (!Array.isArray(tools) || tools.length > toolsMax) throw invalid(`tools must be a list of at most ${toolsMax}.`)
  for (const [at, tool] of tools.entries()) {
    if (!isObject(tool) || tool.type !== 'function' || !isObject(tool.function)) {
      throw invalid(`tools[${at}] must have type "function" and a function.`)
    }
    const { name, parameters } = tool.function
    if (typeof name !== 'string' || !/^[a-zA-Z0-9_-]{1,64}$/.test(name)) {
      throw invalid(`tools[${at}].function.name must be 1 to 64 letters, digits, underscores and hyphens.`)
    }
    if (names.has(name)) throw invalid(`tools[${at}].function.name is there twice.`)
    if (parameters !== undefined && parameters !== null && !isObject(parameters)) {
      throw invalid(`tools[${at}].function.parameters must be a JSON Schema object.`)
    }
    names.add(name)
  }
  return names
}

function parseToolChoice(choice: unknown, tools: ReadonlySet<string>): ToolChoice {
  if (choice === undefined || choice === null) return { kind: tools.size === 0 ? 'none' : 'auto' }
  if (choice === 'none') return { kind: 'none' }
  if (choice === 'auto') return { kind: tools.size === 0 ? 'none' : 'auto' }
  if (choice === 'required') {
    if (tools.size === 0) throw invalid('tool_choice "required" needs tools.')
    return { kind: 'required' }
  }
  const name = isObject(choice) && choice.type === 'function' && isObject(choice.function) ? choice.function.name : null
  if (typeof name !== 'string') throw invalid('tool_choice must be "auto", "none", "required" or name a function.')
  if (!tools.has(name)) throw invalid('tool_choice names a function that tools does not have.')
  return { kind: 'named', name }
}

function allowedTools(tools: ReadonlySet<string>, choice: ToolChoice): ReadonlySet<string> {
  if (choice.kind === 'none') return new Set()
  return choice.kind === 'named' ? new Set([choice.name]) : tools
}

function parseFormat(format: unknown): AnswerFormat {
  if (format === undefined || format === null) return { kind: 'text' }
  const type = isObject(format) ? format.type : null
  if (type === 'text' || type === 'json_object') return { kind: type }
  if (!isObject(format) || type !== 'json_schema') {
    throw invalid('response_format.type must be text, json_object or json_schema.')
  }
  const described = format.json_schema
  if (!isObject(described) || typeof described.name !== 'string' || !/^[a-zA-Z0-9_-]{1,64}$/.test(described.name)) {
    throw invalid('response_format.json_schema.name must be 1 to 64 letters, digits, underscores and hyphens.')
  }
  if (described.strict !== true) {
    if (described.schema !== undefined && !isObject(described.schema)) {
      throw invalid('response_format.json_schema.schema must be an object.')
    }
    return { kind: 'text' }
  }
  if (!isObject(described.schema)) throw invalid('response_format.json_schema.schema must be an object.')
  return { kind: 'json_schema', schema: described.schema }
}

/** A text, a list of tokens, or a list of those. */
function countPrompts(prompt: unknown): number {
  if (typeof prompt === 'string') return 1
  if (!Array.isArray(prompt) || prompt.length === 0) throw invalid('prompt must be a text or a list.')
  if (isTokens(prompt)) return 1
  if (prompt.every(one => typeof one === 'string') || prompt.every(isTokens)) return prompt.length
  throw invalid('prompt must hold texts only, or tokens only, or lists of tokens only.')
}

function isTokens(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0 && value.every(token => Number.isSafeInteger(token) && token >= 0)
}

function parseCount(n: unknown): number {
  if (n === undefined || n === null) return 1
  if (typeof n !== 'number' || !Number.isInteger(n) || n < 1 || n > choicesMax) {
    throw invalid(`n must be an integer from 1 to ${choicesMax}.`)
  }
  return n
}

const TOOL_FIELDS = ['tools', 'tool_choice', 'parallel_tool_calls']

/** `asksUsage`: usage is asked for though the client did not. */
type UpstreamPlan = { readonly asksUsage: boolean; readonly toolChoice: ToolChoice }

/**
 * The text that was checked, as the client wrote it but for the members that must change: an integer beyond 2^53 (a seed may be one)
 * would not survive JSON.parse and JSON.stringify.
 */
function toUpstream(text: string, body: JsonObject, { asksUsage, toolChoice }: UpstreamPlan): string {
  const dropsTools = toolChoice.kind === 'none' && TOOL_FIELDS.some(name => body[name] !== undefined)
  const changesTools = dropsTools || toolChoice.kind === 'named'
  if (!changesTools && !asksUsage) return text
  if (!changesTools && body.stream_options === undefined) {
    // The body has its model at least, so there is something after the comma.
    return `{${usageOption([])},${text.slice(text.indexOf('{') + 1)}`
  }
  const members = membersOf(text)
  const textOfValue = (name: string) => members.find(member => member.name === name)?.value ?? ''
  const changed = new Set<string>()
  const added: string[] = []
  if (asksUsage) {
    changed.add('stream_options')
    added.push(usageOption(membersOf(textOfValue('stream_options'))))
  }
  if (dropsTools) for (const name of TOOL_FIELDS) changed.add(name)
  if (toolChoice.kind === 'named') {
    // The one tool and "required": engines that ignore names keep to it as well.
    changed.add('tools').add('tool_choice')
    added.push(
      `"tools":[${toolNamed(toolChoice.name, body.tools, partsOf(textOfValue('tools')))}]`,
      '"tool_choice":"required"',
    )
  }
  const kept = members.filter(member => !changed.has(member.name)).map(member => member.text)
  return `{${[...kept, ...added].join(',')}}`
}

/** `given`: the client's stream_options, which may be none or null. */
function usageOption(given: readonly Member[]): string {
  const others = given.filter(member => member.name !== 'include_usage').map(member => member.text)
  return `"stream_options":{${[...others, '"include_usage":true'].join(',')}}`
}

function toolNamed(name: string, tools: unknown, texts: readonly string[]): string {
  const at = Array.isArray(tools) ? tools.findIndex(tool => tool?.function?.name === name) : -1
  return present(texts[at], 'a named tool is among the tools')
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isText(value: unknown): boolean {
  return typeof value === 'string' && value !== ''
}

function invalid(message: string): Fault {
  return new Fault('invalid_request', message)
}
