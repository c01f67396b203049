// Reads values from an upstream's JSON; invalid values are UpstreamFault malformed. Pure.

import { UpstreamFault } from '../failure.ts'
import type { JsonObject } from '../json-text.ts'
import { detailsText } from './engines/reasoning.ts'

export function parseUpstreamJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw malformed()
  }
}

/** Returns the string; null for a field that is absent or null. */
export function stringOrNull(value: unknown): string | null {
  if (isNone(value)) return null
  if (typeof value !== 'string') throw malformed()
  return value
}

const REASONING_FIELDS = ['reasoning_content', 'reasoning'] as const

/**
 * Returns the model's reasoning before its content, under the names that engines use. It is billed, so it is forwarded.
 */
export function reasoningOf(part: JsonObject): { reasoning_content?: string; reasoning?: string } {
  const given: { reasoning_content?: string; reasoning?: string } = {}
  for (const name of REASONING_FIELDS) {
    const text = stringOrNull(part[name])
    if (text !== null) given[name] = text
  }
  if (part.reasoning_details === undefined || given.reasoning_content || given.reasoning) return given
  const text = detailsText(part.reasoning_details)
  return text === '' ? given : { reasoning_content: text }
}

/** Reports whether the value is absent. Engines omit a field or send null; both mean the same here. */
export function isNone(value: unknown): value is null | undefined {
  return value === undefined || value === null
}

export function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}

export function malformed(): UpstreamFault {
  return new UpstreamFault('malformed')
}
