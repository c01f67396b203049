// Shared by the translations of requests: refusals of fields, and names of fields in errors. Pure.

import { Fault } from '../../base/fault.ts'
import { invalidField, isObject, type JsonObject } from '../json-text.ts'
import type { FieldNames } from '../openai/dialect.ts'
import { isChatField } from '../openai/request-fields.ts'

/** Reports whether the field is absent. Null counts as absent, because clients write unused fields as null. */
export function isAbsent(value: unknown): value is null | undefined {
  return value === undefined || value === null
}

/** Returns the fields that are not absent. */
export function presentOf(fields: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => !isAbsent(value)))
}

/** Records fields that are neither null nor known. `path`: path of the object; empty for the body. */
export function ignoreOthers(
  object: JsonObject,
  path: string,
  { known, ignored }: { readonly known: ReadonlySet<string>; readonly ignored: Set<string> },
): void {
  for (const name in object) {
    if (known.has(name) || isAbsent(object[name])) continue
    ignored.add(path === '' ? name : `${path}.${name}`)
  }
}

/**
 * Throws Fault invalid_request for a field that only chat requests have, because it would change the answer there, and
 * its sender may expect that here. `user` is accepted, because it is only informative.
 */
export function refuseChatFields(body: JsonObject, known: ReadonlySet<string>): void {
  for (const name in body) {
    if (known.has(name) || name === 'user' || isAbsent(body[name]) || !isChatField(name)) continue
    throw invalidField(name, 'is a field of chat completions, not of this API; leave it out.')
  }
}

/** Returns the object; null if it is absent. Throws Fault invalid_request. */
export function objectAt(value: unknown, path: string): JsonObject | null {
  if (isAbsent(value)) return null
  if (!isObject(value)) throw invalidField(path, 'must be an object.')
  return value
}

/** Returns a non-empty string. Fault invalid_request for any other value. */
export function textAt(value: unknown, path: string): string {
  if (typeof value !== 'string' || value === '') throw invalidField(path, 'must be a non-empty string.')
  return value
}

/** Returns the flag; null if it is absent. Throws Fault invalid_request. */
export function flagAt(value: unknown, path: string): boolean | null {
  if (isAbsent(value)) return null
  if (typeof value !== 'boolean') throw invalidField(path, 'must be true or false.')
  return value
}

/** Returns the error with the client's name of the field instead of the chat request's, in its text too. */
export function renamedFault(error: unknown, names: ReadonlyMap<string, string>): unknown {
  if (!(error instanceof Fault) || error.param === undefined) return error
  const { code, param, message } = error
  const name = nameOf(param, names)
  if (name === param) return error
  const words = message.startsWith(`${param} `) ? name + message.slice(param.length) : message
  return new Fault(code, words, { param: name, cause: error })
}

/** Replaces the longest named prefix of the path, a client's text; searches nothing beyond the longest name. */
function nameOf(path: string, names: ReadonlyMap<string, string>): string {
  const longest = names.keys().reduce((most, name) => Math.max(most, name.length), 0)
  for (let end = Math.min(path.length, longest); end > 0; end -= 1) {
    if (end < path.length && path[end] !== '.' && path[end] !== '[') continue
    const name = names.get(path.slice(0, end))
    if (name !== undefined) return name + path.slice(end)
  }
  return path
}

/** Translations of requests, filled for errors. */
export function namesOf(names: Readonly<Record<string, string>>): FieldNames {
  return new Map(Object.entries(names))
}
