// The gateway's receipt keys: made when the process starts, kept in memory, never written. Effects: native
// cryptography.

import { drawReceiptSeeds, replay } from '../../attest/receipt/draw-seeds.ts'
import * as receiptKeys from '../../attest/receipt/receipt-keys.ts'
import type { Random } from '../../attest/receipt/seeds.ts'
import { nativeKeys } from '../../linux/native-keys.ts'

export type ReceiptKeys = receiptKeys.ReceiptKeys

/** Receipt keys with their seeds. Processes that serve clients for this one sign with the same keys. */
export type SharedReceiptKeys = ReceiptKeys & { readonly seeds: Uint8Array }

export function makeReceiptKeys(random: Random): ReceiptKeys {
  return receiptKeys.makeReceiptKeys(random, nativeKeys)
}

export function drawReceiptKeys(random: Random): SharedReceiptKeys {
  const seeds = drawReceiptSeeds(random)
  return { ...receiptKeysOf(seeds), seeds }
}

/** Restores the keys from the seeds that another process drew. */
export function receiptKeysOf(seeds: Uint8Array): ReceiptKeys {
  return makeReceiptKeys(replay(seeds))
}
