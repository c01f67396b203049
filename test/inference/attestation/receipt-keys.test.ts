// Receipt keys that several processes of one gateway sign with.

import { expect, test } from 'bun:test'
import { systemRandom } from '../../../src/base/ids.ts'
import { drawReceiptKeys, receiptKeysOf } from '../../../src/inference/attestation/receipt-keys.ts'

// Goal: a process with the seeds has the same keys, whichever a client checks; other seeds give other keys.
test('keys that are made of the same seeds are the same', async () => {
  const drawn = drawReceiptKeys(systemRandom)
  const made = receiptKeysOf(drawn.seeds)
  expect(made.publicKeys).toEqual(drawn.publicKeys)
  const message = new Uint8Array([1, 2, 3])
  expect((await made.sign(message)).ed25519).toEqual(drawn.signClassically(message))
  expect(drawReceiptKeys(systemRandom).publicKeys).not.toEqual(drawn.publicKeys)
})
