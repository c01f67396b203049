// Values out of an upstream's JSON: what is not as it must be is UpstreamFault malformed. Pure.

import { UpstreamFault } from '../upstream/fault.ts'

export function parseUpstreamJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw malformed()
  }
}

/** Null for a field that is absent or null. */
export function stringOrNull(value: unknown): string | null {
  if (isNone(value)) return null
  if (typeof value !== 'string') throw malformed()
  return value
}

/** Engines leave out a field or send null: the same here. */
export function isNone(value: unknown): value is null | undefined {
  return value === undefined || value === null
}

export function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}

export function malformed(): UpstreamFault {
  return new UpstreamFault('malformed')
}
