// Goal: proofs of a log hold for every leaf and every pair of sizes, and for nothing else.

import { expect, test } from 'bun:test'
import {
  consistencyProof,
  emptyRoot,
  inclusionProof,
  isConsistent,
  isIncluded,
  type LogHash,
  leafHash,
  nodeHash,
  type ReadHash,
  rootOf,
} from '../../../src/attest/log/merkle.ts'
import { fromHex, toHex, utf8 } from '../../../src/base/bytes.ts'

const leaves = Array.from({ length: 37 }, (_, index) => leafHash(utf8(`entry ${index}`)))
const known = new Map<string, LogHash>()
const read: ReadHash = (level, index) => {
  if (level === 0) return leaves[index] ?? new Uint8Array(0)
  const place = `${level} ${index}`
  const hash = known.get(place) ?? nodeHash(read(level - 1, 2 * index), read(level - 1, 2 * index + 1))
  known.set(place, hash)
  return hash
}

/** By the definition (RFC 6962, section 2.1), without any of the code above. */
function rootByDefinition(hashes: readonly LogHash[]): LogHash {
  const [first] = hashes
  if (first === undefined) return emptyRoot()
  if (hashes.length === 1) return first
  let split = 1
  while (split * 2 < hashes.length) split *= 2
  return nodeHash(rootByDefinition(hashes.slice(0, split)), rootByDefinition(hashes.slice(split)))
}

const roots = Array.from({ length: leaves.length + 1 }, (_, size) => rootByDefinition(leaves.slice(0, size)))
const head = (size: number) => ({ size, root: roots[size] ?? new Uint8Array(0) })

// Inputs and roots of Certificate Transparency's own reference tests.
test('goal: roots are those of the reference implementation', () => {
  const inputs = ['', '00', '10', '2021', '3031', '40414243', '5051525354555657', '606162636465666768696a6b6c6d6e6f']
  const hashes = inputs.map(text => leafHash(fromHex(text) ?? new Uint8Array(0)))
  const of = (count: number) => toHex(rootByDefinition(hashes.slice(0, count)))
  expect(toHex(emptyRoot())).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')
  expect(of(1)).toBe('6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d')
  expect(of(2)).toBe('fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125')
  expect(of(3)).toBe('aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77')
  expect(of(8)).toBe('5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328')
})

test('goal: every leaf of every size is included, at its own place alone', () => {
  for (let size = 1; size <= leaves.length; size += 1) {
    expect(toHex(rootOf(size, read))).toBe(toHex(head(size).root))
    for (let index = 0; index < size; index += 1) {
      const proof = inclusionProof(index, size, read)
      const leaf = leaves[index] ?? new Uint8Array(0)
      expect([size, index, isIncluded({ index, leaf, proof }, head(size))]).toEqual([size, index, true])
      for (const other of [index + 1, index - 1, size, -1, 0.5]) {
        expect(isIncluded({ index: other, leaf, proof }, head(size))).toBe(false)
      }
      expect(isIncluded({ index, leaf, proof: [...proof, leaf] }, head(size))).toBe(false)
      if (proof.length > 0) expect(isIncluded({ index, leaf, proof: proof.slice(1) }, head(size))).toBe(false)
      if (size > 1)
        expect(isIncluded({ index, leaf: leaves[(index + 1) % size] as LogHash, proof }, head(size))).toBe(false)
    }
  }
})

test('goal: every older size is a beginning of every newer one, and of no other tree', () => {
  const others = leaves.with(0, leafHash(utf8('another')))
  const forked = Array.from({ length: leaves.length + 1 }, (_, size) => rootByDefinition(others.slice(0, size)))
  for (let size = 1; size <= leaves.length; size += 1) {
    for (let oldSize = 0; oldSize <= size; oldSize += 1) {
      const proof = consistencyProof(oldSize, size, read)
      expect([oldSize, size, isConsistent(head(oldSize), head(size), proof)]).toEqual([oldSize, size, true])
      if (oldSize === 0) continue
      const fork = { size: oldSize, root: forked[oldSize] ?? new Uint8Array(0) }
      expect([oldSize, size, isConsistent(fork, head(size), proof)]).toEqual([oldSize, size, false])
      expect(isConsistent(head(oldSize), { ...head(size), root: fork.root }, proof)).toBe(false)
      if (oldSize < size) {
        expect(isConsistent(head(size), head(oldSize), proof)).toBe(false)
        expect(isConsistent(head(oldSize), head(size), [...proof, emptyRoot()])).toBe(false)
        expect(isConsistent(head(oldSize), head(size), proof.slice(1))).toBe(false)
      }
    }
  }
})
