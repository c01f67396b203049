// Custom tools: tools that take a text. An engine has each as a function with one argument. Pure.

import { resultOr } from '../../../base/result-or.ts'
import { isObject, type JsonObject } from '../../json-text.ts'

/** The only argument of such a function. */
const inputName = 'input'

const PARAMETERS = {
  type: 'object',
  properties: { [inputName]: { type: 'string' } },
  required: [inputName],
  additionalProperties: false,
} as const

/**
 * Returns the function that represents a custom tool. Engines do not enforce its grammar, but the description gives it
 * to the model. The Responses API has the grammar's fields in `format`, chats have them in `format.grammar`.
 */
export function functionOfCustomTool({ name, description, format }: JsonObject): JsonObject {
  const grammar = isObject(format) && isObject(format.grammar) ? format.grammar : format
  const described = describedInput(description, grammar)
  return { name, ...(described == null ? {} : { description: described }), parameters: { ...PARAMETERS } }
}

function describedInput(description: unknown, grammar: unknown): unknown {
  if (!isObject(grammar) || typeof grammar.definition !== 'string') return description
  const text = `The input has this grammar (${String(grammar.syntax ?? grammar.type)}):\n${grammar.definition}`
  return typeof description === 'string' ? `${description}\n\n${text}` : text
}

/** Returns the arguments of the function for a text. */
export function customArguments(input: string): string {
  return JSON.stringify({ [inputName]: input })
}

/** Returns the text that a custom tool is called with; null if the arguments do not fit its function. */
export function customInputOf(args: string): string | null {
  const value: unknown = resultOr(() => JSON.parse(args), null)
  const input = isObject(value) ? value[inputName] : null
  return typeof input === 'string' ? input : null
}

/**
 * Returns the text that a client gets with a call of a custom tool. Broken arguments are returned unchanged; null if
 * they were cut off, because half of a text is unusable.
 */
export function calledInput(args: string, isCut: boolean): string | null {
  const input = customInputOf(args)
  if (input !== null || isCut) return input
  // Missing arguments arrive as `{}`, or as nothing in a stream.
  return args === '{}' ? '' : args
}

export type CustomCall = {
  readonly id: string
  readonly type: 'custom'
  readonly custom: { readonly name: string; readonly input: string }
  readonly function: { readonly name: string; readonly arguments: string }
}

/**
 * Returns a call in the form of a chat, complete or begun. `function` repeats it, because Cursor 3.14 fails on a call
 * without `function.name`, and takes the text from the arguments.
 */
export function customCall(id: string, name: string, input: string): CustomCall {
  return { id, type: 'custom', custom: { name, input }, function: { name, arguments: input } }
}

/** Returns the piece of a stream that follows the begun call. */
export function customPiece(index: number, input: string): JsonObject {
  return { index, custom: { input }, function: { arguments: input } }
}
