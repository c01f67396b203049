// The file system of a model's disk: erofs (Linux, fs/erofs/erofs_fs.h) with one file. Pure: the same size always
// gives the same bytes, which no version of mkfs.erofs promises.
//
// Block 0 has the superblock and both inodes, block 1 the directory; the file begins at block 2, uncompressed, in one
// piece.

import { type Layout, layoutBytes, writeRecord } from '../../attest/encoding/layout.ts'
import { assert } from '../../base/assert.ts'
import { concat, utf8 } from '../../base/bytes.ts'
import { erofsBlockBytes, erofsBlocks, headBlocks, modelFileName } from './extent.ts'

/** Where the file's bytes begin. */
export const erofsHeadBytes = headBlocks * erofsBlockBytes

const superblockOffset = 1024
const SUPERBLOCK = {
  magic: [0, 4],
  checksum: [4, 4],
  featureCompat: [8, 4],
  blockBits: [12, 1],
  extSlots: [13, 1],
  rootNid: [14, 2],
  inodeCount: [16, 8],
  buildTime: [24, 8],
  buildTimeNs: [32, 4],
  blocks: [36, 4],
  metaBlock: [40, 4],
  xattrBlock: [44, 4],
  uuid: [48, 16],
  volumeName: [64, 16],
  featureIncompat: [80, 4],
  rest: [84, 44],
} as const satisfies Layout

const superblockMagic = 0xe0f5_e1e2

/** The extended form, because only in that form a file may have 4 GiB or more. */
const INODE = {
  format: [0, 2],
  xattrCount: [2, 2],
  mode: [4, 2],
  reserved: [6, 2],
  sizeBytes: [8, 8],
  firstBlock: [16, 4],
  number: [20, 4],
  uid: [24, 4],
  gid: [28, 4],
  modifiedTime: [32, 8],
  modifiedTimeNs: [40, 4],
  linkCount: [44, 4],
  reserved2: [48, 16],
} as const satisfies Layout

/** Extended, with its data in separate blocks (EROFS_INODE_FLAT_PLAIN). */
const inodeFormat = 1
const inodeSlotBytes = 32

const DIRENT = { nid: [0, 8], nameOffset: [8, 2], fileType: [10, 1], reserved: [11, 1] } as const satisfies Layout
const fileTypes = { file: 1, directory: 2 } as const

/** Directly after the superblock. */
const rootOffset = superblockOffset + layoutBytes(SUPERBLOCK)
const fileOffset = rootOffset + layoutBytes(INODE)

/** 4 TiB. Block numbers have 32 bits, and the tree follows. */
export const modelBytesMax = 2 ** 42

/** Returns the `erofsHeadBytes` before the file's bytes. */
export function erofsHead(fileBytes: number): Uint8Array {
  assert(Number.isSafeInteger(fileBytes) && fileBytes > 0 && fileBytes <= modelBytesMax, 'the size of a model')
  const directory = directoryBytes()
  const head = new Uint8Array(erofsHeadBytes)
  head.set(
    writeRecord('erofs superblock', SUPERBLOCK, {
      magic: superblockMagic,
      checksum: 0,
      featureCompat: 0,
      featureIncompat: 0,
      blockBits: Math.log2(erofsBlockBytes),
      extSlots: 0,
      rootNid: nidOf(rootOffset),
      inodeCount: 2n,
      buildTime: 0n,
      buildTimeNs: 0,
      blocks: erofsBlocks(fileBytes),
      metaBlock: 0,
      xattrBlock: 0,
      // No UUID, because it would identify the file system, which the root hash does.
      uuid: new Uint8Array(16),
      volumeName: new Uint8Array(16),
      rest: new Uint8Array(44),
    }),
    superblockOffset,
  )
  head.set(inode({ number: 1, mode: 0o040555, linkCount: 2, sizeBytes: directory.length, firstBlock: 1 }), rootOffset)
  head.set(inode({ number: 2, mode: 0o100444, linkCount: 1, sizeBytes: fileBytes, firstBlock: headBlocks }), fileOffset)
  head.set(directory, erofsBlockBytes)
  return head
}

type Inode = Record<'number' | 'mode' | 'linkCount' | 'sizeBytes' | 'firstBlock', number>

function inode({ sizeBytes, ...inode }: Inode): Uint8Array {
  return writeRecord('erofs inode', INODE, {
    ...inode,
    format: inodeFormat,
    sizeBytes: BigInt(sizeBytes),
    xattrCount: 0,
    uid: 0,
    gid: 0,
    modifiedTime: 0n,
    modifiedTimeNs: 0,
    reserved: 0,
    reserved2: new Uint8Array(16),
  })
}

/**
 * Returns the directory: entries in the order of their names, then the names. The last name ends with the directory.
 */
function directoryBytes(): Uint8Array {
  const entries = [
    { name: '.', offset: rootOffset, fileType: fileTypes.directory },
    { name: '..', offset: rootOffset, fileType: fileTypes.directory },
    { name: modelFileName, offset: fileOffset, fileType: fileTypes.file },
  ]
  let nameOffset = entries.length * layoutBytes(DIRENT)
  const records = entries.map(({ name, offset, fileType }) => {
    const record = { nid: BigInt(nidOf(offset)), nameOffset, fileType, reserved: 0 }
    nameOffset += name.length
    return writeRecord('erofs directory entry', DIRENT, record)
  })
  return concat(...records, ...entries.map(({ name }) => utf8(name)))
}

function nidOf(offset: number): number {
  return offset / inodeSlotBytes
}
