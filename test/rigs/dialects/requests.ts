// Requests of translated APIs under test: what a request becomes, and bodies that are nearly right.

import fc from 'fast-check'
import { utf8 } from '../../../src/base/bytes.ts'
import { Fault } from '../../../src/base/fault.ts'
import { parseDialect } from '../../../src/inference/dialects/request.ts'
import type { Dialect } from '../../../src/inference/openai/dialect.ts'
import { parseRequest, readSource } from '../../../src/inference/openai/request.ts'

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json }

/** The chat request, or the field that is wrong and what is said of it. */
export function translated(dialect: Dialect, body: unknown) {
  try {
    const { source, ignored } = parseDialect(dialect, readSource(utf8(JSON.stringify(body))))
    return { chat: JSON.parse(source.text) as unknown, ignored }
  } catch (error) {
    if (!(error instanceof Fault) || error.code !== 'invalid_request') throw error
    return { param: error.param ?? null, message: error.message }
  }
}

/** Names that only chat requests have. */
const CHAT_WORDS =
  /\bmessages\[\d+\]\.tool|response_format|max_completion_tokens|function\.[a-z]|reasoning_effort|tool_call_id/

/**
 * Changes good bodies in one place: each must become a request that the chat parser accepts as sent up, or be refused
 * with one of its own fields by its own name. `foreign`: chat fields that this API lacks.
 */
export function checkNearlyRight(dialect: Dialect, good: readonly Json[], foreign: readonly string[]): void {
  const nearly = fc.constantFrom(...good).chain(body => {
    const paths = pathsOf(body)
    return fc.tuple(fc.constantFrom(...paths), VALUES).map(([path, value]) => replaced(body, path, value))
  })
  fc.assert(
    fc.property(nearly, body => {
      const outcome = translated(dialect, body)
      if ('chat' in outcome) {
        parseRequest('chat', utf8(JSON.stringify(outcome.chat)))
        return
      }
      const { param, message } = outcome
      if (param === null) {
        if (!isRecord(body)) return
        throw new Error(`no field is named: ${message}`)
      }
      if (!message.startsWith(`${param} `)) throw new Error(`${param}: ${message}`)
      if (CHAT_WORDS.test(message) || foreign.some(name => param.split(/[.[]/)[0] === name)) {
        throw new Error(`names a field of chats: ${message}`)
      }
      if (!leadsInto(body, param)) throw new Error(`names nothing in the request: ${message}`)
    }),
    { numRuns: 2_000 },
  )
}

const VALUES: fc.Arbitrary<Json> = fc.oneof(
  fc.constantFrom<Json>(
    null,
    true,
    false,
    0,
    -1,
    1.5,
    '',
    'x',
    [],
    {},
    [null],
    ['x'],
    [[]],
    { type: 'x' },
    { type: 'text' },
  ),
  fc.constantFrom<Json>('data:,x', '{}', '{', 'a b', 'function', { role: 'tool' }, 9e15, 'x'.repeat(300)),
)

function isRecord(value: unknown): value is { [name: string]: Json } {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

type Path = readonly (string | number)[]

function pathsOf(value: Json, path: Path = []): Path[] {
  const inner = Array.isArray(value)
    ? value.flatMap((json, at) => pathsOf(json, [...path, at]))
    : isRecord(value)
      ? [...Object.entries(value).flatMap(([name, json]) => pathsOf(json, [...path, name])), [...path, 'surplus']]
      : []
  return [path, ...inner]
}

function replaced(value: Json, [first, ...rest]: Path, by: Json): Json {
  if (first === undefined) return by
  if (Array.isArray(value)) return value.map((json, at) => (at === first ? replaced(json, rest, by) : json))
  return isRecord(value) ? { ...value, [first]: replaced(value[first] ?? null, rest, by) } : by
}

/** Whether all of the path is there but for its end: what is wrong may be that something is missing. */
function leadsInto(body: Json, param: string): boolean {
  const steps = param.split(/[.[\]]+/).filter(step => step !== '')
  let at: Json | undefined = body
  for (const step of steps.slice(0, -2)) {
    at = Array.isArray(at) ? at[Number(step)] : isRecord(at) ? at[step] : undefined
    if (at === undefined) return false
  }
  return true
}
