// The Merkle tree of an append-only log with SHA-256 (RFC 6962, section 2.1), and verification of its proofs (RFC 9162,
// sections 2.1.3 and 2.1.4). Pure. Indices and sizes are safe integers.

import { concat, equalConstantTime } from '../../base/bytes.ts'
import { sha256 } from '../hash.ts'

/** A hash of 32 bytes. */
export type LogHash = Uint8Array

export const logHashBytes = 32
/** Limit on the hashes of a proof: at most two for each level, and a safe integer needs at most 53 levels. */
export const proofHashesMax = 2 * 53

const leafPrefix = Uint8Array.of(0)
const nodePrefix = Uint8Array.of(1)

export function leafHash(entry: Uint8Array): LogHash {
  return sha256(concat(leafPrefix, entry))
}

export function nodeHash(left: LogHash, right: LogHash): LogHash {
  return sha256(concat(nodePrefix, left, right))
}

/** Returns the root of a log without entries. */
export function emptyRoot(): LogHash {
  return sha256(new Uint8Array(0))
}

/** Returns the hash of the complete subtree of 2^level leaves that is at `index` in its level. */
export type ReadHash = (level: number, index: number) => LogHash

/** Returns the root of the first `size` leaves. */
export function rootOf(size: number, read: ReadHash): LogHash {
  return size === 0 ? emptyRoot() : rangeHash({ start: 0, end: size }, read)
}

/** Returns the hashes from the leaf's sibling up to the child of the root. `index` is below `size`. */
export function inclusionProof(index: number, size: number, read: ReadHash): LogHash[] {
  const proof: LogHash[] = []
  let [start, end] = [0, size]
  while (end - start > 1) {
    const middle = start + largestPower(end - start)
    const isLeft = index < middle
    proof.push(rangeHash(isLeft ? { start: middle, end } : { start, end: middle }, read))
    if (isLeft) end = middle
    else start = middle
  }
  return proof.reverse()
}

/** Proves that the first `oldSize` leaves of a tree of `size` are unchanged. Empty if there is nothing to prove. */
export function consistencyProof(oldSize: number, size: number, read: ReadHash): LogHash[] {
  if (oldSize === 0 || oldSize === size) return []
  const proof: LogHash[] = []
  let [start, end, isWhole] = [0, size, true]
  while (oldSize !== end) {
    const middle = start + largestPower(end - start)
    if (oldSize <= middle) {
      proof.push(rangeHash({ start: middle, end }, read))
      end = middle
    } else {
      proof.push(rangeHash({ start, end: middle }, read))
      start = middle
      isWhole = false
    }
  }
  // A complete subtree that starts at the first leaf is the old root itself.
  return isWhole ? proof.reverse() : [rangeHash({ start, end }, read), ...proof.reverse()]
}

/** Reports whether the leaf is in the tree with this root. Never throws. */
export function isIncluded(
  { index, leaf, proof }: { readonly index: number; readonly leaf: LogHash; readonly proof: readonly LogHash[] },
  { size, root }: TreeHead,
): boolean {
  if (!isSize(size) || !isSize(index) || index >= size || proof.length > proofHashesMax) return false
  let [at, last, hash] = [index, size - 1, leaf]
  for (const sibling of proof) {
    if (last === 0) return false
    if (at % 2 === 1 || at === last) {
      hash = nodeHash(sibling, hash)
      // On the right edge, a node without a sibling moves up unchanged.
      while (at % 2 === 0 && at !== 0) {
        at = half(at)
        last = half(last)
      }
    } else hash = nodeHash(hash, sibling)
    at = half(at)
    last = half(last)
  }
  return last === 0 && equalConstantTime(hash, root)
}

export type TreeHead = { readonly size: number; readonly root: LogHash }

/** Reports whether the newer tree begins with all leaves of the older one. Never throws. */
export function isConsistent(older: TreeHead, newer: TreeHead, proof: readonly LogHash[]): boolean {
  if (!isSize(older.size) || !isSize(newer.size) || older.size > newer.size || proof.length > proofHashesMax)
    return false
  if (older.size === newer.size) return proof.length === 0 && equalConstantTime(older.root, newer.root)
  if (older.size === 0) return proof.length === 0 && equalConstantTime(older.root, emptyRoot())
  let [at, last] = [older.size - 1, newer.size - 1]
  while (at % 2 === 1) {
    at = half(at)
    last = half(last)
  }
  const path = at === 0 ? [older.root, ...proof] : proof
  const [first, ...rest] = path
  if (first === undefined) return false
  let [before, after] = [first, first]
  for (const hash of rest) {
    if (last === 0) return false
    if (at % 2 === 1 || at === last) {
      before = nodeHash(hash, before)
      after = nodeHash(hash, after)
      while (at % 2 === 0 && at !== 0) {
        at = half(at)
        last = half(last)
      }
    } else after = nodeHash(after, hash)
    at = half(at)
    last = half(last)
  }
  return last === 0 && equalConstantTime(before, older.root) && equalConstantTime(after, newer.root)
}

type Range = { readonly start: number; readonly end: number }

/** Hashes a range of leaves. `start` is a multiple of the largest complete subtree in the range. */
function rangeHash({ start, end }: Range, read: ReadHash): LogHash {
  const count = end - start
  if (isPower(count)) return read(Math.log2(count), start / count)
  const middle = start + largestPower(count)
  return nodeHash(rangeHash({ start, end: middle }, read), rangeHash({ start: middle, end }, read))
}

function isPower(count: number): boolean {
  return Number.isInteger(Math.log2(count)) && 2 ** Math.log2(count) === count
}

/** Returns the largest power of two below `count`, which is at least 2. */
function largestPower(count: number): number {
  let power = 1
  while (power * 2 < count) power *= 2
  return power
}

function half(value: number): number {
  return Math.floor(value / 2)
}

function isSize(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0
}
