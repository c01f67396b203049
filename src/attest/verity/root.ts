// Root hashes of dm-verity. Pure: the caller's source reads the data.

import type { Hash } from '../hash.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import {
  readVeritySuperblock,
  type VerityParameters,
  type VeritySuperblock,
  veritySuperblockBytes,
} from './superblock.ts'
import { type OnHashBlock, VerityTree } from './tree.ts'

/** Returns `length` bytes from `offset` in an array of its own, fewer only at the end. Reads may be concurrent. */
export type ByteSource = { read(offset: number, length: number): Promise<Uint8Array> }

/** Large enough to make the overhead of a read negligible; a multiple of every block size. */
const verityReadBytes = 4 * 1024 * 1024

export type VerityOptions = {
  /** A native SHA-256 of the host; it may return the same array every time. */
  readonly hash?: Hash
  readonly onHashBlock?: OnHashBlock
}

export type VerityRoot = { readonly rootHash: Uint8Array; readonly parameters: VerityParameters }

/** Returns the root hash of data, with parameters from the caller. Throws Malformed if there is too little data. */
export async function verityRootOf(
  data: ByteSource | AsyncIterable<Uint8Array>,
  parameters: VerityParameters,
  options: VerityOptions = {},
): Promise<VerityRoot> {
  const tree = new VerityTree(parameters, options)
  const chunks = 'read' in data ? verityChunks(data, parameters) : data
  for await (const chunk of chunks) tree.update(chunk)
  return { rootHash: tree.finish(), parameters }
}

/**
 * Returns the root hash of data with a superblock at `hashOffset` of `hashes`, or of the data if `hashes` is absent.
 */
export async function verityRoot(
  image: { readonly data: ByteSource; readonly hashes?: ByteSource; readonly hashOffset: number },
  options: VerityOptions = {},
): Promise<VerityRoot & { readonly superblock: VeritySuperblock }> {
  const superblock = await readSuperblockAt(image.hashes ?? image.data, image.hashOffset)
  if (image.hashes === undefined) checkApart(superblock, image.hashOffset)
  return { ...(await verityRootOf(image.data, superblock, options)), superblock }
}

export async function readSuperblockAt(hashes: ByteSource, hashOffset: number): Promise<VeritySuperblock> {
  wellFormed(Number.isSafeInteger(hashOffset) && hashOffset >= 0, 'verity: hash offset')
  return readVeritySuperblock(await readExactly(hashes, hashOffset, veritySuperblockBytes))
}

/** Throws Malformed if data and hashes of one file overlap. */
export function checkApart({ dataBlocks, dataBlockBytes }: VerityParameters, hashOffset: number): void {
  wellFormed(dataBlocks * dataBlockBytes <= hashOffset, 'verity: the data reach into the hashes')
}

/** Returns the offset of the tree: the first hash block after the superblock. */
export function verityTreeOffset({ hashBlockBytes }: VerityParameters, hashOffset: number): number {
  return Math.ceil((hashOffset + veritySuperblockBytes) / hashBlockBytes) * hashBlockBytes
}

/** Reads exactly `length` bytes. Throws Malformed if the source ends early. */
export async function readExactly(source: ByteSource, offset: number, length: number): Promise<Uint8Array> {
  const bytes = await source.read(offset, length)
  if (bytes.length !== length) throw new Malformed(`verity: ${bytes.length} of ${length} bytes at ${offset}`)
  return bytes
}

/** Yields the data in large pieces. Reads one piece ahead, so that reading and hashing overlap. */
export async function* verityChunks(
  source: ByteSource,
  { dataBlocks, dataBlockBytes }: VerityParameters,
): AsyncGenerator<Uint8Array> {
  const totalBytes = dataBlocks * dataBlockBytes
  const start = (offset: number) => readExactly(source, offset, Math.min(verityReadBytes, totalBytes - offset))
  let next = totalBytes === 0 ? null : start(0)
  for (let offset = 0; next !== null; ) {
    const chunk = await next
    offset += chunk.length
    next = offset < totalBytes ? start(offset) : null
    // Errors are reported by `await`, not as unhandled rejections.
    next?.catch(() => {})
    yield chunk
  }
}
