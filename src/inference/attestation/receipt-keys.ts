// The gateway's receipt keys: made when the process starts, kept in memory, never written. Effects: native cryptography.

import * as receiptKeys from '../../attest/receipt/receipt-keys.ts'
import type { Random } from '../../attest/receipt/seeds.ts'
import { nativeKeys } from '../../linux/native-keys.ts'

export type ReceiptKeys = receiptKeys.ReceiptKeys

export function makeReceiptKeys(random: Random): ReceiptKeys {
  return receiptKeys.makeReceiptKeys(random, nativeKeys)
}
