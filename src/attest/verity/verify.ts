// Checks that stored data and their hash tree match a trusted dm-verity root hash. Pure.

import { present } from '../../base/assert.ts'
import { equalConstantTime, toHex } from '../../base/bytes.ts'
import type { Hash } from '../hash.ts'
import { Malformed } from '../malformed.ts'
import { type Check, check, fail } from '../verdict.ts'
import { type ByteSource, checkApart, readExactly, readSuperblockAt, verityChunks, verityTreeOffset } from './root.ts'
import type { VerityParameters, VeritySuperblock } from './superblock.ts'
import { type VerityLevel, VerityTree, verityLevels } from './tree.ts'

type VerityImage = {
  readonly data: ByteSource
  /** Absent if the hashes follow the data in the same file. */
  readonly hashes?: ByteSource
  readonly hashOffset: number
}

type ExpectedVerity = {
  readonly rootHash: Uint8Array
  readonly uuid: string | 'any'
  /** Parameters known from elsewhere, such as a command line: the superblock must match them. */
  readonly parameters?: VerityParameters
}

/**
 * Recomputes the whole tree and compares it with the stored one, block by block, and with the root. Checks:
 * `verity-superblock`, `verity-tree`, `verity-root`. Never throws for bad bytes; errors of the source propagate.
 */
export async function checkVerity(
  image: VerityImage,
  expected: ExpectedVerity,
  options: { readonly hash?: Hash } = {},
): Promise<Check[]> {
  const hashes = image.hashes ?? image.data
  let superblock: VeritySuperblock
  try {
    superblock = await readSuperblockAt(hashes, image.hashOffset)
    if (image.hashes === undefined) checkApart(superblock, image.hashOffset)
  } catch (error) {
    if (error instanceof Malformed) return [fail('verity-superblock', error.message)]
    throw error
  }
  const uuid = superblockCheck(superblock, expected)
  if (uuid.outcome === 'fail') return [uuid]
  try {
    const stored = new StoredTree(hashes, superblock, verityTreeOffset(superblock, image.hashOffset))
    const tree = new VerityTree(superblock, { ...options, onHashBlock: (...finished) => stored.expect(...finished) })
    for await (const chunk of verityChunks(image.data, superblock)) {
      tree.update(chunk)
      await stored.compare()
    }
    const rootHash = tree.finish()
    await stored.compare()
    return [
      uuid,
      check('verity-tree', stored.difference === null, stored.difference ?? ''),
      check(
        'verity-root',
        equalConstantTime(rootHash, expected.rootHash),
        `computed ${toHex(rootHash)}, expected ${toHex(expected.rootHash)}`,
      ),
    ]
  } catch (error) {
    if (error instanceof Malformed) return [uuid, fail('verity-tree', error.message)]
    throw error
  }
}

function superblockCheck(superblock: VeritySuperblock, { uuid, parameters }: ExpectedVerity): Check {
  const name = 'verity-superblock'
  if (uuid !== 'any' && uuid !== superblock.uuid) return fail(name, `UUID ${superblock.uuid}, expected ${uuid}`)
  const found = parametersText(superblock)
  const wanted = parameters === undefined ? found : parametersText(parameters)
  return check(name, found === wanted, `${found}; expected ${wanted}`)
}

function parametersText({ dataBlocks, dataBlockBytes, hashBlockBytes, salt }: VerityParameters): string {
  return `${dataBlocks} blocks of ${dataBlockBytes} bytes, hashes in ${hashBlockBytes}, salt ${toHex(salt)}`
}

type Run = { readonly level: number; readonly firstIndex: number; readonly blocks: Uint8Array[] }

/** The tree on disk. Buffers computed blocks until they are compared, at most those of one piece of data. */
class StoredTree {
  difference: string | null = null
  #runs: Run[] = []
  readonly #source: ByteSource
  readonly #levels: readonly VerityLevel[]
  readonly #blockBytes: number
  readonly #offset: number

  constructor(source: ByteSource, parameters: VerityParameters, offset: number) {
    this.#source = source
    this.#levels = verityLevels(parameters)
    this.#blockBytes = parameters.hashBlockBytes
    this.#offset = offset
  }

  expect(level: number, index: number, block: Uint8Array): void {
    const run = this.#runs.find(run => run.level === level)
    if (run === undefined) this.#runs.push({ level, firstIndex: index, blocks: [block.slice()] })
    else run.blocks.push(block.slice())
  }

  /** Compares the buffered blocks, with one read per level, until the first difference. */
  async compare(): Promise<void> {
    const runs = this.#runs
    this.#runs = []
    for (const { level, firstIndex, blocks } of runs) {
      if (this.difference !== null) return
      const first = present(this.#levels[level], 'a block of a level of the tree').firstBlock + firstIndex
      const offset = this.#offset + first * this.#blockBytes
      const stored = await readExactly(this.#source, offset, blocks.length * this.#blockBytes)
      const bad = blocks.findIndex((block, at) => {
        const start = at * this.#blockBytes
        return !equalConstantTime(block, stored.subarray(start, start + this.#blockBytes))
      })
      if (bad !== -1) this.difference = `hash block ${firstIndex + bad} of level ${level} does not match the data`
    }
  }
}
