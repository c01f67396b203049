// Computes dm-verity's hash tree (Linux, admin-guide/device-mapper/verity.rst) from a stream, with one block per level
// in memory. Pure.

import { assert } from '../../base/assert.ts'
import { type Hash, sha256 } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import { checkVerityParameters, type VerityParameters } from './superblock.ts'

export const verityDigestBytes = 32

/** One level of the tree on disk, in hash blocks counted from the root's block. Level 0 is directly above the data. */
export type VerityLevel = { readonly firstBlock: number; readonly blockCount: number }

/**
 * Returns the levels from 0 up; on disk the root comes first. Empty for a single block of data, whose hash is the root.
 */
export function verityLevels({ dataBlocks, hashBlockBytes }: VerityParameters): VerityLevel[] {
  const fanOut = hashBlockBytes / verityDigestBytes
  const counts: number[] = []
  for (let count = dataBlocks; count > 1; ) {
    count = Math.ceil(count / fanOut)
    counts.push(count)
  }
  return counts.map((blockCount, level) => ({
    firstBlock: counts.slice(level + 1).reduce((sum, count) => sum + count, 0),
    blockCount,
  }))
}

/** Called for every finished hash block, before its buffer is reused. */
export type OnHashBlock = (level: number, index: number, block: Uint8Array) => void

type Level = { readonly block: Uint8Array; usedBytes: number; index: number }

/** Takes data in pieces of any length, and returns the root hash at the end. `hash` may reuse its array. */
export class VerityTree {
  readonly #parameters: VerityParameters
  readonly #hash: Hash
  readonly #onHashBlock: OnHashBlock
  readonly #levels: readonly Level[]
  /** Hash input: the salt, then one block. */
  readonly #saltedData: Uint8Array
  readonly #saltedHashes: Uint8Array
  readonly #root = new Uint8Array(verityDigestBytes)
  #partialBytes = 0
  #blocksDone = 0

  constructor(
    parameters: VerityParameters,
    options: { readonly hash?: Hash; readonly onHashBlock?: OnHashBlock } = {},
  ) {
    checkVerityParameters(parameters)
    this.#parameters = parameters
    this.#hash = options.hash ?? sha256
    this.#onHashBlock = options.onHashBlock ?? (() => {})
    this.#levels = verityLevels(parameters).map(() => ({
      block: new Uint8Array(parameters.hashBlockBytes),
      usedBytes: 0,
      index: 0,
    }))
    const { salt, dataBlockBytes, hashBlockBytes } = parameters
    this.#saltedData = new Uint8Array(salt.length + dataBlockBytes)
    this.#saltedHashes = new Uint8Array(salt.length + hashBlockBytes)
    this.#saltedData.set(salt)
    this.#saltedHashes.set(salt)
  }

  /** Adds data. Throws Malformed if there is more data than the parameters allow. */
  update(bytes: Uint8Array): void {
    const { dataBlockBytes } = this.#parameters
    const saltBytes = this.#parameters.salt.length
    for (let at = 0; at < bytes.length; ) {
      const taken = Math.min(dataBlockBytes - this.#partialBytes, bytes.length - at)
      this.#saltedData.set(bytes.subarray(at, at + taken), saltBytes + this.#partialBytes)
      this.#partialBytes += taken
      at += taken
      if (this.#partialBytes < dataBlockBytes) return
      this.#partialBytes = 0
      wellFormed(this.#blocksDone < this.#parameters.dataBlocks, 'verity: more data than blocks')
      this.#blocksDone += 1
      this.#add(0, this.#hash(this.#saltedData))
    }
  }

  /** Returns the root hash. Throws Malformed if data is missing. */
  finish(): Uint8Array {
    const isComplete = this.#blocksDone === this.#parameters.dataBlocks && this.#partialBytes === 0
    wellFormed(isComplete, `verity: ${this.#blocksDone} whole blocks of ${this.#parameters.dataBlocks}`)
    this.#levels.forEach((state, level) => {
      if (state.usedBytes > 0) this.#flush(level, state)
    })
    return this.#root.slice()
  }

  /** Adds a digest to a level's block; above the last level is the root. */
  #add(level: number, digest: Uint8Array): void {
    assert(digest.length === verityDigestBytes, 'verity hashes are SHA-256')
    const state = this.#levels[level]
    if (state === undefined) {
      this.#root.set(digest)
      return
    }
    state.block.set(digest, state.usedBytes)
    state.usedBytes += verityDigestBytes
    if (state.usedBytes === state.block.length) this.#flush(level, state)
  }

  /** Fills the unused rest of a level's last block with zeros. */
  #flush(level: number, state: Level): void {
    state.block.fill(0, state.usedBytes)
    this.#saltedHashes.set(state.block, this.#parameters.salt.length)
    this.#onHashBlock(level, state.index, state.block)
    state.index += 1
    state.usedBytes = 0
    this.#add(level + 1, this.#hash(this.#saltedHashes))
  }
}
