// dm-verity over a root image: the tree goes behind the file system, after veritysetup's superblock. Effects.

import { stat, truncate } from 'node:fs/promises'
import { sha256File } from '../digest.ts'
import { ImageFault } from '../image-fault.ts'
import { runTool } from '../tool.ts'

export const verityBlockBytes = 4096

/** Parameters by which the kernel checks the root, besides the root hash. */
export type Verity = {
  readonly rootHash: string
  readonly salt: string
  readonly uuid: string
  readonly dataBlocks: number
  /** Bytes; where veritysetup's superblock is. The tree begins one block later. */
  readonly hashOffset: number
  readonly hashStartBlock: number
}

/** Appends the tree to `path`. Salt and UUID come from the file system's digest: equal bytes, equal tree. */
export async function appendVerity(path: string): Promise<Verity> {
  const { size } = await stat(path)
  const dataBlocks = Math.ceil(size / verityBlockBytes)
  const hashOffset = dataBlocks * verityBlockBytes
  await truncate(path, hashOffset)
  const salt = await sha256File(path)
  const uuid = uuidOf(salt)
  const printed = await runTool(
    [
      'veritysetup',
      'format',
      '--hash=sha256',
      `--data-block-size=${verityBlockBytes}`,
      `--hash-block-size=${verityBlockBytes}`,
      `--data-blocks=${dataBlocks}`,
      `--hash-offset=${hashOffset}`,
      `--salt=${salt}`,
      `--uuid=${uuid}`,
      path,
      path,
    ],
    { timeoutMs: 120_000 },
  )
  const rootHash = /^Root hash:\s+([0-9a-f]{64})$/m.exec(printed)?.[1]
  if (rootHash === undefined) throw new ImageFault('tool_failed', `veritysetup printed no root hash:\n${printed}`)
  return { rootHash, salt, uuid, dataBlocks, hashOffset, hashStartBlock: dataBlocks + 1 }
}

/** The parameters as the initrd reads them from the command line. */
export function verityArguments(verity: Verity): string[] {
  return [
    `strongroom.root_hash=${verity.rootHash}`,
    `strongroom.salt=${verity.salt}`,
    `strongroom.data_blocks=${verity.dataBlocks}`,
    `strongroom.hash_start=${verity.hashStartBlock}`,
  ]
}

/** A version 8 UUID (RFC 9562, section 5.8) out of a hexadecimal digest. */
export function uuidOf(digest: string): string {
  const hex = `${digest.slice(0, 12)}8${digest.slice(13, 16)}a${digest.slice(17, 32)}`
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20, 32)].join('-')
}
