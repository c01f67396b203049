// Writes a model's disk from a GGUF file: erofs (erofs.ts), veritysetup's superblock, the dm-verity tree. Reads the
// file once. Effects: reads one file, writes one.

import type { FileHandle } from 'node:fs/promises'
import { verityTreeOffset } from '../../attest/verity/root.ts'
import { type VerityParameters, writeVeritySuperblock } from '../../attest/verity/superblock.ts'
import { VerityTree, verityLevels } from '../../attest/verity/tree.ts'
import { present } from '../../base/assert.ts'
import { toHex } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import type { WorkloadModel } from '../../contract/vm/workload.ts'
import { blockSha256 } from '../../linux/native-hash.ts'
import { erofsHead, erofsHeadBytes } from './erofs.ts'
import { erofsBlockBytes, erofsBlocks, hashOffsetOf } from './extent.ts'

export type ModelDiskFacts = Pick<WorkloadModel, 'rootHash' | 'hashOffset' | 'fileSha256' | 'fileBytes'>

export type Progress = (done: { readonly bytes: number; readonly totalBytes: number }) => void

/** A multiple of the block's size. */
const readBytes = 4 * 1024 * 1024

/** Without salt, so that the same file has the same root hash everywhere, and one pass over it is enough. */
function parametersOf(fileBytes: number): VerityParameters {
  return {
    dataBlockBytes: erofsBlockBytes,
    hashBlockBytes: erofsBlockBytes,
    dataBlocks: erofsBlocks(fileBytes),
    salt: new Uint8Array(0),
  }
}

/** Returns the size of the whole disk for a file of this size. */
export function modelDiskBytes(fileBytes: number): number {
  const parameters = parametersOf(fileBytes)
  const treeBlocks = verityLevels(parameters).reduce((sum, level) => sum + level.blockCount, 0)
  return verityTreeOffset(parameters, hashOffsetOf(fileBytes)) + treeBlocks * erofsBlockBytes
}

/**
 * Writes the disk of the `fileBytes` bytes of `source` to `target`, which must be empty. Rejects if the signal is
 * aborted. Throws Fault conflict if the source is shorter.
 */
export async function writeModelDisk(
  {
    source,
    fileBytes,
    target,
  }: { readonly source: FileHandle; readonly fileBytes: number; readonly target: FileHandle },
  { onProgress, signal }: { readonly onProgress: Progress; readonly signal: AbortSignal },
): Promise<ModelDiskFacts> {
  const parameters = parametersOf(fileBytes)
  const hashOffset = hashOffsetOf(fileBytes)
  const treeOffset = verityTreeOffset(parameters, hashOffset)
  const levels = verityLevels(parameters)
  const finished: { readonly offset: number; readonly block: Uint8Array }[] = []
  const tree = new VerityTree(parameters, {
    hash: blockSha256(),
    onHashBlock: (level, index, block) => {
      const { firstBlock } = present(levels[level], 'a level of the tree')
      finished.push({ offset: treeOffset + (firstBlock + index) * erofsBlockBytes, block: block.slice() })
    },
  })
  const add = async (bytes: Uint8Array, offset: number) => {
    tree.update(bytes)
    await writeAt(target, bytes, offset)
    for (const { offset: at, block } of finished.splice(0)) await writeAt(target, block, at)
  }
  await add(erofsHead(fileBytes), 0)
  const sha256 = new Bun.CryptoHasher('sha256')
  const buffer = new Uint8Array(readBytes)
  for (let at = 0; at < fileBytes; ) {
    signal.throwIfAborted()
    const length = Math.min(readBytes, fileBytes - at)
    await readExactly(source, buffer.subarray(0, length), at)
    sha256.update(buffer.subarray(0, length))
    const paddedLength = Math.ceil(length / erofsBlockBytes) * erofsBlockBytes
    buffer.fill(0, length, paddedLength)
    await add(buffer.subarray(0, paddedLength), erofsHeadBytes + at)
    at += length
    onProgress({ bytes: at, totalBytes: fileBytes })
  }
  const rootHash = tree.finish()
  for (const { offset, block } of finished.splice(0)) await writeAt(target, block, offset)
  // The guest takes the parameters from workload.json. The superblock is for people and their tools.
  const superblock = new Uint8Array(treeOffset - hashOffset)
  superblock.set(writeVeritySuperblock(parameters, uuidOf(rootHash)))
  await writeAt(target, superblock, hashOffset)
  return { rootHash: toHex(rootHash), hashOffset, fileSha256: sha256.digest('hex'), fileBytes }
}

async function readExactly(source: FileHandle, into: Uint8Array, offset: number): Promise<void> {
  for (let done = 0; done < into.length; ) {
    const { bytesRead } = await source.read(into, done, into.length - done, offset + done)
    if (bytesRead === 0) throw new Fault('conflict', 'it became shorter while it was read')
    done += bytesRead
  }
}

async function writeAt(target: FileHandle, bytes: Uint8Array, offset: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await target.write(bytes, done, bytes.length - done, offset + done)
    done += bytesWritten
  }
}

/** Derives a version 8 UUID (RFC 9562, section 5.8) from the root hash. */
function uuidOf(rootHash: Uint8Array): Uint8Array {
  const uuid = rootHash.slice(0, 16)
  uuid[6] = (present(uuid[6], 'a hash has 32 bytes') & 0x0f) | 0x80
  uuid[8] = (present(uuid[8], 'a hash has 32 bytes') & 0x3f) | 0x80
  return uuid
}
