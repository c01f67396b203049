// Draws the seeds of all keys of a process at once, so that several processes can have the same keys. Pure.

import { assert } from '../../base/assert.ts'
import { type Random, SEED_BYTES, take } from './seeds.ts'

/** Seeds for all keys of a process. Processes with the same seeds have the same keys. */
export function drawReceiptSeeds(random: Random): Uint8Array {
  return take(
    random,
    Object.values(SEED_BYTES).reduce((sum, bytes) => sum + bytes, 0),
  )
}

/** Gives these bytes, once. Throws when more is drawn. */
export function replay(bytes: Uint8Array): Random {
  let at = 0
  return lengthBytes => {
    assert(at + lengthBytes <= bytes.length, 'no more is drawn than was given')
    at += lengthBytes
    return bytes.slice(at - lengthBytes, at)
  }
}
