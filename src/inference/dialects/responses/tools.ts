// `tools` and `tool_choice` of the Responses API as those of a chat request. Pure. Fault invalid_request.
//
// A custom tool takes a text: in the chat it is a function with that text as its one argument. Tools of types that run
// at OpenAI are left out and named.

import { invalidField, isObject, type JsonObject } from '../../json-text.ts'
import type { FieldNames } from '../../openai/dialect.ts'
import { ignoreOthers, presentOf } from '../fields.ts'

/** The argument of a custom tool's function. */
export const customInput = 'input'

const CUSTOM_PARAMETERS = {
  type: 'object',
  properties: { [customInput]: { type: 'string' } },
  required: [customInput],
  additionalProperties: false,
} as const

const FUNCTION_FIELDS: ReadonlySet<string> = new Set(['type', 'name', 'description', 'parameters', 'strict'])
const CUSTOM_FIELDS: ReadonlySet<string> = new Set(['type', 'name', 'description'])

type Notes = { readonly names: FieldNames | null; readonly ignored: Set<string> }

export function toolsOf(tools: unknown, { names, ignored }: Notes): unknown {
  if (!Array.isArray(tools)) return tools
  const found: JsonObject[] = []
  for (const [at, tool] of tools.entries()) {
    const path = `tools[${at}]`
    names?.set(`tools[${found.length}]`, path)
    names?.set(`tools[${found.length}].function`, path)
    if (!isObject(tool)) throw invalidField(path, 'must be an object.')
    const { type, name, description, parameters, strict } = tool
    if (typeof type !== 'string') throw invalidField(`${path}.type`, 'must be a text, such as function.')
    if (type === 'function') {
      ignoreOthers(tool, 'tools', { known: FUNCTION_FIELDS, ignored })
      found.push({ type, function: presentOf({ name, description, parameters, strict }) })
    } else if (type === 'custom') {
      // A grammar binds no engine here, but it tells the model what the tool takes.
      ignoreOthers(tool, 'tools', { known: CUSTOM_FIELDS, ignored })
      const described = describedInput(description, tool.format)
      found.push({
        type: 'function',
        function: presentOf({ name, description: described, parameters: { ...CUSTOM_PARAMETERS } }),
      })
    } else ignored.add(`tools.${type}`)
  }
  return found
}

function describedInput(description: unknown, format: unknown): unknown {
  if (!isObject(format) || typeof format.definition !== 'string') return description
  const grammar = `The input has this grammar (${String(format.syntax ?? format.type)}):\n${format.definition}`
  return typeof description === 'string' ? `${description}\n\n${grammar}` : grammar
}

export function customToolsOf(tools: unknown): ReadonlySet<string> {
  if (!Array.isArray(tools)) return NONE
  const names = tools.flatMap(tool =>
    isObject(tool) && tool.type === 'custom' && typeof tool.name === 'string' ? [tool.name] : [],
  )
  return names.length === 0 ? NONE : new Set(names)
}

const NONE: ReadonlySet<string> = new Set()

export function choiceOf(choice: unknown): unknown {
  if (!isObject(choice)) return choice
  if (choice.type !== 'allowed_tools') return namedChoice(choice, 'tool_choice')
  const { mode, tools } = choice
  if (!Array.isArray(tools)) throw invalidField('tool_choice.tools', 'must be a list of tools.')
  const named = tools.map((tool, at) => namedChoice(tool, `tool_choice.tools[${at}]`))
  return { type: 'allowed_tools', allowed_tools: { mode, tools: named } }
}

function namedChoice(choice: unknown, path: string): JsonObject {
  const type = isObject(choice) ? choice.type : null
  if (!isObject(choice) || (type !== 'function' && type !== 'custom')) {
    throw invalidField(`${path}.type`, 'must be function or custom: there are no built-in tools here.')
  }
  return { type: 'function', function: { name: choice.name } }
}

/** The text that a custom tool is called with; null where the arguments are not those of its function. */
export function customInputOf(args: string): string | null {
  try {
    const value: unknown = JSON.parse(args)
    const input = isObject(value) ? value[customInput] : null
    return typeof input === 'string' ? input : null
  } catch {
    return null
  }
}
