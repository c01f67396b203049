// Draws the seeds of all keys of a process at once, so that several processes can share the same keys. Pure.

import { assert } from '../../base/assert.ts'
import { type Random, SEED_BYTES, take } from './seeds.ts'

/** Returns seeds for all keys of a process. Processes with equal seeds have equal keys. */
export function drawReceiptSeeds(random: Random): Uint8Array {
  return take(
    random,
    Object.values(SEED_BYTES).reduce((sum, bytes) => sum + bytes, 0),
  )
}

/** Returns these bytes, in order. Throws if more are requested. */
export function replay(bytes: Uint8Array): Random {
  let at = 0
  return lengthBytes => {
    assert(at + lengthBytes <= bytes.length, 'no more is drawn than was given')
    at += lengthBytes
    return bytes.slice(at - lengthBytes, at)
  }
}
