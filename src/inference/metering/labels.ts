// A request's `user` and `metadata` as the usage ledger has them, where the operator wants them. Pure.
//
// A label that is too long, or has characters that a ledger should not have, is left out: no request fails by it.

import { usageLabelCharsMax } from '../../contract/vm/enclave.ts'
import { isObject, type JsonObject } from '../json-text.ts'
import type { Operation } from '../types.ts'

/** Null: none was sent, or it is left out. `tags`: JSON of an object of texts, ordered by name. */
export type UsageLabels = { readonly endUser: string | null; readonly tags: string | null }

export const NO_LABELS: UsageLabels = { endUser: null, tags: null }

/** Sent to no upstream. */
const tagsField = 'metadata'

/** `body`: the client's own. The Messages API has its user in `metadata`. */
export function usageLabels(operation: Operation, body: JsonObject): UsageLabels {
  const metadata = body[tagsField]
  if (operation === 'messages') {
    return { endUser: isObject(metadata) ? labelOf(metadata.user_id, usageLabelCharsMax.endUser) : null, tags: null }
  }
  return { endUser: labelOf(body.user, usageLabelCharsMax.endUser), tags: tagsOf(metadata) }
}

/** Fields that nothing came of; `label`: what the ledger has of `metadata`. */
export function unlabelled(ignored: readonly string[], label: string | null): readonly string[] {
  return label === null ? ignored : ignored.filter(name => name !== tagsField)
}

/** Neither control characters nor halves of surrogate pairs. */
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
