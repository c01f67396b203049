// The bytes of a batch of usage that a gateway VM signs (UsageBatch in enclave-responses.ts). Pure.

import { concat, utf8 } from '../../base/bytes.ts'
import type { UsageRow } from './enclave-responses.ts'

/** Most text of a batch with several rows: a line of the channel holds it and all that goes with it. */
export const usageTextBytesMax = 49_152
/** Stands before the digest that is signed. */
const usageDomain = 'strongroom/usage/v1\n'

/** The bytes whose SHA-256 is a batch's digest. */
export function usageBytes(before: Uint8Array, rows: readonly UsageRow[]): Uint8Array {
  return concat(before, utf8(JSON.stringify(rows)))
}

/** The bytes that a batch's signature covers. */
export function usageMessage(digest: Uint8Array): Uint8Array {
  return concat(utf8(usageDomain), digest)
}
