// Readers of plain data, combined to describe a document; TypeScript derives the type of the result. Pure; throws
// Malformed, whose message names the field.

import { Malformed, wellFormed } from '../malformed.ts'

/** `what` names the value in messages. */
export type Reader<T> = (value: unknown, what: string) => T
export type ReadBy<R> = R extends Reader<infer T> ? T : never

type Optional<T> = { readonly optional: Reader<T> }
type Members = Readonly<Record<string, Reader<unknown> | Optional<unknown>>>
type OptionalIn<M extends Members> = { [Name in keyof M]: M[Name] extends Optional<unknown> ? Name : never }[keyof M]
type RecordOf<M extends Members> = {
  readonly [Name in Exclude<keyof M, OptionalIn<M>>]: ReadBy<M[Name]>
} & {
  readonly [Name in OptionalIn<M>]?: M[Name] extends Optional<infer T> ? T : never
}

export const text: Reader<string> = (value, what) => {
  wellFormed(typeof value === 'string', `${what}: not a text`)
  return value
}

/** Reads a non-negative integer. */
export const count: Reader<number> = (value, what) => {
  wellFormed(typeof value === 'number' && Number.isSafeInteger(value) && value >= 0, `${what}: no count`)
  return value
}

/** Reads an object with any members. */
export const members: Reader<Readonly<Record<string, unknown>>> = (value, what) => {
  wellFormed(typeof value === 'object' && value !== null && !Array.isArray(value), `${what}: not an object`)
  return Object.fromEntries(Object.entries(value))
}

export function exactly<const Text extends string>(expected: Text): Reader<Text> {
  return (value, what) => {
    wellFormed(value === expected, `${what} is ${JSON.stringify(value)}, not ${expected}`)
    return expected
  }
}

export function orNull<T>(read: Reader<T>): Reader<T | null> {
  return (value, what) => (value === null ? null : read(value, what))
}

/** Marks a member as optional. */
export function optional<T>(read: Reader<T>): Optional<T> {
  return { optional: read }
}

export function listOf<T>(read: Reader<T>): Reader<readonly T[]> {
  return (value, what) => {
    wellFormed(Array.isArray(value), `${what}: not a list`)
    return value.map((item, at) => read(item, `${what}[${at}]`))
  }
}

/** Reads these members, in this order. Ignores others. */
export function partly<const M extends Members>(wanted: M): Reader<RecordOf<M>> {
  return (value, what) => {
    const given = members(value, what)
    const read = Object.entries(wanted).flatMap(([name, member]) => {
      const isThere = Object.hasOwn(given, name)
      if (typeof member !== 'function' && !isThere) return []
      wellFormed(isThere, `${what}: no ${name}`)
      const readMember = typeof member === 'function' ? member : member.optional
      return [[name, readMember(given[name], `${what}.${name}`)]]
    })
    return Object.fromEntries(read)
  }
}

/** Reads exactly these members. Throws Malformed for an unknown member. */
export function record<const M extends Members>(wanted: M): Reader<RecordOf<M>> {
  const read = partly(wanted)
  return (value, what) => {
    const unknown = Object.keys(members(value, what)).find(name => !Object.hasOwn(wanted, name))
    const found = read(value, what)
    if (unknown !== undefined) throw new Malformed(`${what}: the unknown field ${JSON.stringify(unknown)}`)
    return found
  }
}
