// SHA-2 in JavaScript and by the runtime.

import { afterEach, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { sha256, sha384, sha512, useHashes } from '../../src/attest/hash.ts'
import { nativeHashes } from '../../src/client/measure/native.ts'

afterEach(() => useHashes(null))

// Goal: which of the two is used changes no digest.
test('the runtime hashes as the library does, and only while it is asked to', () => {
  const names = { sha256, sha384, sha512 } as const
  for (const length of [0, 1, 55, 56, 64, 111, 112, 128, 1184, 5000]) {
    const bytes = new Uint8Array(length).map((_, at) => (at * 31) % 251)
    for (const [name, hash] of Object.entries(names)) {
      const expected = new Uint8Array(createHash(name).update(bytes).digest())
      expect(hash(bytes)).toEqual(expected)
      useHashes(nativeHashes)
      expect(hash(bytes)).toEqual(expected)
      // Each result is the caller's own.
      expect(hash(bytes).buffer).not.toBe(hash(bytes).buffer)
      useHashes({ ...nativeHashes, [name]: () => new Uint8Array(1) })
      expect(hash(bytes)).toEqual(new Uint8Array(1))
      useHashes(null)
      expect(hash(bytes)).toEqual(expected)
    }
  }
})
