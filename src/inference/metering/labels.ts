// A request's `user` and `metadata` in the form of the usage ledger, if the operator enables them. Pure.
//
// A label that is too long, or has characters that a ledger should not have, is left out; the request does not fail.

import { canonicalJson } from '../../base/canonical-json.ts'
import { usageLabelCharsMax } from '../../contract/vm/enclave.ts'
import { isObject, type JsonObject } from '../json-text.ts'
import type { Operation } from '../types.ts'

/** Null if none was sent, or it was dropped. `tags`: JSON of an object of strings, ordered by name. */
export type UsageLabels = { readonly endUser: string | null; readonly tags: string | null }

export const NO_LABELS: UsageLabels = { endUser: null, tags: null }

/** Sent to no upstream. */
const tagsField = 'metadata'
const otherField = 'safety_identifier'
const endUserChars = usageLabelCharsMax.endUser

/** Returns the labels of a request. `body`: the client's own. The Messages API has its user in `metadata`. */
export function usageLabels(operation: Operation, body: JsonObject): UsageLabels {
  if (operation === 'messages') return { endUser: labelOf(messagesUserOf(body), endUserChars), tags: null }
  return { endUser: labelOf(body.user, endUserChars), tags: tagsOf(body[tagsField]) }
}

/** `field`: the field that the value came from. */
export type EndUser = { readonly name: string; readonly field: string }

/** Returns the request's end user, for budgets: the first name that can be used; null if there is none. */
export function endUserOf(operation: Operation, body: JsonObject): EndUser | null {
  if (operation === 'messages')
    return nameIn(tagsField, withoutSession(labelOf(messagesUserOf(body), endUserChars) ?? ''))
  return nameIn('user', labelOf(body.user, endUserChars)) ?? nameIn(otherField, labelOf(body[otherField], endUserChars))
}

function nameIn(field: string, name: string | null): EndUser | null {
  return name === null || name === '' ? null : { name, field }
}

function messagesUserOf({ [tagsField]: metadata }: JsonObject): unknown {
  return isObject(metadata) ? metadata.user_id : null
}

/**
 * Removes the session, which Claude Code adds to the name of its user: as a member of JSON, in older releases at the
 * end.
 */
function withoutSession(name: string): string {
  try {
    const { session_id: session, ...user } = JSON.parse(name)
    if (session !== undefined) return Object.keys(user).length === 0 ? '' : canonicalJson(user)
  } catch {
    // The name has another form.
  }
  return name.replace(/_session_[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/, '')
}

/** Returns the names of fields that have no effect. `label`: what the ledger stores of `metadata`. */
export function withoutLabelFields(ignored: readonly string[], label: string | null): readonly string[] {
  return label === null ? ignored : ignored.filter(name => name !== tagsField)
}

/** Text without control characters and halves of surrogate pairs. */
const PLAIN = /^[^\p{Cc}\p{Cs}]+$/u

function labelOf(value: unknown, charsMax: number): string | null {
  return typeof value === 'string' && value.length <= charsMax && PLAIN.test(value) ? value : null
}

function tagsOf(metadata: unknown): string | null {
  if (!isObject(metadata)) return null
  const pairs = Object.entries(metadata)
  if (pairs.length === 0 || pairs.some(([, value]) => typeof value !== 'string')) return null
  pairs.sort(([name], [other]) => (name < other ? -1 : 1))
  return labelOf(JSON.stringify(Object.fromEntries(pairs)), usageLabelCharsMax.tags)
}
