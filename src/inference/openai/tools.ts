// `tools` and `tool_choice` of a chat request. Pure. Fault invalid_request.

import { invalidField, isObject } from '../json-text.ts'
import { checkSchemaBounds } from '../schema-check/bounds.ts'

export type ToolChoice =
  | { readonly kind: 'auto' }
  | { readonly kind: 'none' }
  | { readonly kind: 'required' }
  | { readonly kind: 'named'; readonly name: string }

const toolsMax = 128

/** The names of the tools. */
export function parseTools(tools: unknown): Set<string> {
  const names = new Set<string>()
  if (tools === undefined || tools === null) return names
  if (!Array.isArray(tools) || tools.length > toolsMax) {
    throw invalidField('tools', `must be a list of at most ${toolsMax}.`)
  }
  for (const [at, tool] of tools.entries()) {
    if (!isObject(tool) || tool.type !== 'function' || !isObject(tool.function)) {
      throw invalidField(`tools[${at}]`, `must have type "function" and a function.`)
    }
    const { name, parameters } = tool.function
    if (typeof name !== 'string' || !/^[a-zA-Z0-9_-]{1,64}$/.test(name)) {
      throw invalidField(`tools[${at}].function.name`, `must be 1 to 64 letters, digits, underscores and hyphens.`)
    }
    if (names.has(name)) throw invalidField(`tools[${at}].function.name`, 'is there twice.')
    if (parameters !== undefined && parameters !== null && !isObject(parameters)) {
      throw invalidField(`tools[${at}].function.parameters`, 'must be a JSON Schema object.')
    }
    if (isObject(parameters)) checkSchemaBounds(parameters, `tools[${at}].function.parameters`)
    names.add(name)
  }
  return names
}

export function parseToolChoice(choice: unknown, tools: ReadonlySet<string>): ToolChoice {
  if (choice === undefined || choice === null) return { kind: tools.size === 0 ? 'none' : 'auto' }
  if (choice === 'none') return { kind: 'none' }
  if (choice === 'auto') return { kind: tools.size === 0 ? 'none' : 'auto' }
  if (choice === 'required') {
    if (tools.size === 0) throw invalidField('tool_choice', '"required" needs tools.')
    return { kind: 'required' }
  }
  const name = isObject(choice) && choice.type === 'function' && isObject(choice.function) ? choice.function.name : null
  if (typeof name !== 'string') {
    throw invalidField('tool_choice', 'must be "auto", "none", "required" or name a function.')
  }
  if (!tools.has(name)) throw invalidField('tool_choice', 'names a function that tools does not have.')
  return { kind: 'named', name }
}

/** The names that a completion may call. */
export function callableTools(tools: ReadonlySet<string>, choice: ToolChoice): ReadonlySet<string> {
  if (choice.kind === 'none') return new Set()
  return choice.kind === 'named' ? new Set([choice.name]) : tools
}
