// `tools` and `tool_choice` of a chat request. Pure. Fault invalid_request.

import { invalidField, isObject, type JsonObject } from '../json-text.ts'
import { relaxSchema } from '../schema-check/bounds.ts'
import { functionOfClientTool } from './engines/client-tools.ts'
import { functionOfCustomTool } from './engines/custom-tools.ts'
import type { Repairs } from './repairs.ts'

export type ToolChoice =
  | { readonly kind: 'auto' }
  | { readonly kind: 'none' }
  | { readonly kind: 'required' }
  | { readonly kind: 'named'; readonly name: string }
  /** Some of the tools. `isRequired`: whether one of them must be called. */
  | { readonly kind: 'allowed'; readonly names: ReadonlySet<string>; readonly isRequired: boolean }

/** Includes the tools of all namespaces; an MCP server may have a hundred. */
export const toolsMax = 1_024
export const toolNameCharsMax = 128
const toolName = new RegExp(`^[a-zA-Z0-9_-]{1,${toolNameCharsMax}}$`)

/** Names of functions. `custom`: those that represent custom tools. */
type ToolNames = { readonly names: ReadonlySet<string>; readonly custom: ReadonlySet<string> }

const NO_NAMES: ReadonlySet<string> = new Set()

/** Returns the names. Tools that run on servers are dropped and named, because engines here do not have them. */
export function parseTools(body: JsonObject, repairs: Repairs): ToolNames {
  const { tools } = body
  if (tools === undefined || tools === null) return { names: NO_NAMES, custom: NO_NAMES }
  const names = new Set<string>()
  const custom = new Set<string>()
  if (!Array.isArray(tools) || tools.length > toolsMax) {
    throw invalidField('tools', `must be a list of at most ${toolsMax}.`)
  }
  let leftOut = false
  for (const [at, given] of tools.entries()) {
    const tool = ownTool(given)
    if (tool !== given) {
      tools[at] = tool
      repairs.note('tools', hasFormat(given) ? 'tools.format' : null)
    }
    const type = isObject(tool) ? tool.type : null
    if (typeof type === 'string' && type !== 'function') {
      repairs.note('tools', `tools.${type}`)
      leftOut = true
      continue
    }
    if (!isObject(tool) || type !== 'function' || !isObject(tool.function)) {
      throw invalidField(`tools[${at}]`, `must have type "function" and a function.`)
    }
    const { name, parameters } = tool.function
    const path = `tools[${at}]${fieldsPath(given)}`
    if (typeof name !== 'string' || !toolName.test(name)) {
      throw invalidField(`${path}.name`, `must be 1 to ${toolNameCharsMax} letters, digits, underscores and hyphens.`)
    }
    if (names.has(name)) throw invalidField(`${path}.name`, 'is defined twice.')
    if (parameters !== undefined && parameters !== null && !isObject(parameters)) {
      throw invalidField(`${path}.parameters`, 'must be a JSON Schema object.')
    }
    if (isObject(parameters)) for (const keyword of relaxSchema(parameters)) repairs.note('tools', `tools.${keyword}`)
    names.add(name)
    if (isObject(given) && given.type === 'custom') custom.add(name)
  }
  if (leftOut) removeOthers(tools)
  return { names, custom }
}

/**
 * Returns the function that represents a custom tool, a tool that the client runs, or one in the flat form of the
 * Responses API; any other tool unchanged.
 */
function ownTool(tool: unknown): unknown {
  const called = isObject(tool) ? toFunction(tool) : null
  return called === null ? tool : { type: 'function', function: called }
}

/** Returns the path of the fields of a tool as the client wrote it. */
function fieldsPath(tool: unknown): string {
  if (!isObject(tool) || (tool.type !== 'function' && tool.type !== 'custom')) return ''
  return isObject(tool[tool.type]) ? `.${tool.type}` : ''
}

/** Reports whether it is a custom tool with a grammar, which no engine here enforces. */
function hasFormat(tool: unknown): boolean {
  if (!isObject(tool) || tool.type !== 'custom') return false
  const { format } = isObject(tool.custom) ? tool.custom : tool
  return isObject(format) && format.type !== 'text'
}

function toFunction(tool: JsonObject): JsonObject | null {
  const { type, function: nested, custom, ...flat } = tool
  if (type === 'custom') return functionOfCustomTool(isObject(custom) ? custom : flat)
  if (type !== 'function') return functionOfClientTool(tool)
  if (nested !== undefined || typeof flat.name !== 'string') return null
  const { name, description, parameters, strict } = flat
  return { name, description, parameters, strict }
}

/** Returns the names of the checked functions that are strict. */
export function strictToolsOf({ tools }: JsonObject): ReadonlySet<string> {
  if (!Array.isArray(tools)) return NO_NAMES
  const names = new Set<string>()
  for (const tool of tools) {
    const called = isObject(tool) ? tool.function : null
    if (isObject(called) && called.strict === true && typeof called.name === 'string') names.add(called.name)
  }
  return names
}

/** Removes them in place, because the list belongs to the request. */
function removeOthers(tools: unknown[]): void {
  const kept = tools.filter(tool => isObject(tool) && tool.type === 'function')
  tools.splice(0, tools.length, ...kept)
}

export function parseToolChoice(choice: unknown, tools: ReadonlySet<string>): ToolChoice {
  if (choice === undefined || choice === null) return { kind: tools.size === 0 ? 'none' : 'auto' }
  if (choice === 'none') return { kind: 'none' }
  if (choice === 'auto') return { kind: tools.size === 0 ? 'none' : 'auto' }
  if (choice === 'required') {
    if (tools.size === 0) throw invalidField('tool_choice', '"required" needs tools.')
    return { kind: 'required' }
  }
  if (isObject(choice) && choice.type === 'allowed_tools') return allowedTools(choice.allowed_tools ?? choice, tools)
  const name = toolNameIn(choice)
  if (name === null) {
    throw invalidField('tool_choice', 'must be "auto", "none", "required", allowed_tools or name a tool.')
  }
  if (!tools.has(name)) throw invalidField('tool_choice', 'names a function that is not in tools.')
  return { kind: 'named', name }
}

function allowedTools(allowed: unknown, tools: ReadonlySet<string>): ToolChoice {
  const path = 'tool_choice.allowed_tools'
  if (!isObject(allowed)) throw invalidField(path, 'must be an object.')
  const { mode, tools: given } = allowed
  if (mode !== 'auto' && mode !== 'required') throw invalidField(`${path}.mode`, 'must be auto or required.')
  if (!Array.isArray(given) || given.length === 0) throw invalidField(`${path}.tools`, 'must be a list of functions.')
  const names = new Set<string>()
  for (const [at, item] of given.entries()) {
    const name = toolNameIn(item)
    if (name === null || !tools.has(name)) {
      throw invalidField(`${path}.tools[${at}]`, 'must name a function in tools.')
    }
    names.add(name)
  }
  return { kind: 'allowed', names, isRequired: mode === 'required' }
}

/** Returns the tool's name in the form of chats or of the Responses API. */
function toolNameIn(value: unknown): string | null {
  if (!isObject(value) || (value.type !== 'function' && value.type !== 'custom')) return null
  const nested = value[value.type]
  const { name } = isObject(nested) ? nested : value
  return typeof name === 'string' ? name : null
}

/** Returns the names that a completion may call. */
export function callableTools(tools: ReadonlySet<string>, choice: ToolChoice): ReadonlySet<string> {
  if (choice.kind === 'none') return NO_NAMES
  if (choice.kind === 'allowed') return choice.names
  return choice.kind === 'named' ? new Set([choice.name]) : tools
}

export function mustCall(choice: ToolChoice): boolean {
  return choice.kind === 'named' || choice.kind === 'required' || (choice.kind === 'allowed' && choice.isRequired)
}
