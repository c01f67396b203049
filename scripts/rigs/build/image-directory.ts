// A small image whose disk has a real dm-verity tree: a builder's, for tests of verify build and the registry, or
// another.

import { mkdirSync } from 'node:fs'
import { VERITY_SUPERBLOCK, veritySuperblockBytes } from '../../../src/attest/verity/superblock.ts'
import { VerityTree, verityLevels } from '../../../src/attest/verity/tree.ts'
import { present } from '../../../src/base/assert.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import { writeLaunchImage } from '../launch/launch-image.ts'

const blockBytes = 4096
const salt = new Uint8Array(32).fill(0x5a)

/** Data of `dataBlocks` blocks, the superblock in a block of its own, the tree. `dataOf` gives each block. */
export function verityDisk(dataBlocks: number): { disk: Uint8Array; rootHash: string; cmdline: string } {
  const parameters = { dataBlocks, dataBlockBytes: blockBytes, hashBlockBytes: blockBytes, salt }
  const levels = verityLevels(parameters)
  const hashBlocks = levels.reduce((sum, level) => sum + level.blockCount, 0)
  const disk = new Uint8Array((dataBlocks + 1 + hashBlocks) * blockBytes)
  for (let block = 0; block < dataBlocks; block += 1) {
    disk.fill(block % 251, block * blockBytes, (block + 1) * blockBytes)
  }
  const hash = (bytes: Uint8Array) => new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes))
  const tree = new VerityTree(parameters, {
    hash,
    onHashBlock: (level, index, block) => {
      const at = dataBlocks + 1 + present(levels[level], 'a level').firstBlock + index
      disk.set(block, at * blockBytes)
    },
  })
  tree.update(disk.subarray(0, dataBlocks * blockBytes))
  const rootHash = toHex(tree.finish())
  disk.set(superblock(dataBlocks), dataBlocks * blockBytes)
  const words = [
    'console=ttyS0 quiet',
    `strongroom.root_hash=${rootHash}`,
    `strongroom.salt=${toHex(salt)}`,
    `strongroom.data_blocks=${dataBlocks}`,
    `strongroom.hash_start=${dataBlocks + 1}`,
  ]
  return { disk, rootHash, cmdline: words.join(' ') }
}

function superblock(dataBlocks: number): Uint8Array {
  const bytes = new Uint8Array(veritySuperblockBytes)
  const view = new DataView(bytes.buffer)
  const at = (name: keyof typeof VERITY_SUPERBLOCK) => VERITY_SUPERBLOCK[name][0]
  bytes.set(utf8('verity'), at('signature'))
  view.setUint32(at('version'), 1, true)
  view.setUint32(at('hashType'), 1, true)
  bytes.set(utf8('sha256'), at('algorithm'))
  view.setUint32(at('dataBlockBytes'), blockBytes, true)
  view.setUint32(at('hashBlockBytes'), blockBytes, true)
  view.setBigUint64(at('dataBlocks'), BigInt(dataBlocks), true)
  view.setUint16(at('saltBytes'), salt.length, true)
  bytes.set(salt, at('salt'))
  return bytes
}

/** Files as scripts/build-image.ts names them, with an IGVM file for two vCPUs beside them. */
export async function writeNamedImage(name: string, directory: string, dataBlocks: number) {
  mkdirSync(directory, { recursive: true })
  const { disk, rootHash, cmdline } = verityDisk(dataBlocks)
  return { ...(await writeLaunchImage(directory, { name, cmdline, rootHash, root: disk })), disk, cmdline }
}

export const writeBuilderImage = (directory: string, dataBlocks = 300) =>
  writeNamedImage('builder', directory, dataBlocks)
