// One JSON text for one value, whatever the runtime: sorted names, bytes in hexadecimal, bigints as decimal text. Pure.

import { toHex } from '../../../src/base/bytes.ts'

/** Throws on functions and on numbers that JSON does not have: JSON.stringify would lose them silently. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(plain(value), null, 1)
}

function plain(value: unknown): unknown {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return value
  if (typeof value === 'bigint') return `${value}n`
  if (typeof value === 'number' && Number.isFinite(value)) return value
  if (value instanceof Uint8Array) return toHex(value)
  if (Array.isArray(value)) return value.map(plain)
  if (value instanceof Map) return record(value.entries())
  if (value instanceof Set) return [...value].map(plain)
  if (typeof value === 'object') return record(Object.entries(value))
  throw new Error(`no canonical form of a ${typeof value}: ${String(value)}`)
}

function record(entries: Iterable<[unknown, unknown]>): Readonly<Record<string, unknown>> {
  const named = [...entries]
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [String(name), value] as const)
  return Object.fromEntries(named.sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, value]) => [name, plain(value)]))
}
