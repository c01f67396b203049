// Git's tree id of a source, by the code that the build VM runs, over the archive that it gets. Effects: reads the
// source; writes its files into a temporary directory, and removes them.

import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { takeArchive } from '../../linux/source/archive-tree.ts'
import { SourceFailure } from '../../linux/source/failure.ts'
import type { AskedSource } from '../../verifier/build/question.ts'
import { InputFault } from '../exit.ts'
import { MIB } from '../input-file.ts'
import { type Packed, packSource } from './pack.ts'
import { listSource } from './source-files.ts'

/** Larger sources are for git, or for a service that says so itself. */
const archiveBytesMax = 1024 * MIB
const unpackedBytesMax = 8 * 1024 * MIB
const entriesMax = 400_000

export type SourceTreeIds = Extract<AskedSource, { kind: 'tree' }>

export type PackedSource = Packed & {
  /** Remarks on files that were left out. */
  readonly leftOut: readonly string[]
}

/** Faults: invalid_request. */
export async function packDirectory(directory: string): Promise<PackedSource> {
  const { paths, leftOut } = await listSource(directory)
  return { ...(await packSource(directory, paths, archiveBytesMax)), leftOut }
}

/** Tree id of a directory, packed as `build submit` packs it, or of an archive file. Fault invalid_request. */
export async function treeOf(path: string, param: string, projectDir: string | null): Promise<SourceTreeIds> {
  const found = statSync(path, { throwIfNoEntry: false })
  if (found?.isDirectory() === true) return await treeOfPacked((await packDirectory(path)).bytes, param, projectDir)
  if (found?.isFile() === true && found.size > 0 && found.size <= archiveBytesMax) {
    return await treeOfFile({ device: path, sizeBytes: found.size }, param, projectDir)
  }
  throw new InputFault(`--${param} ${path} is no directory, and no archive of at most ${archiveBytesMax} bytes`, {
    param,
    remedy: 'name the directory or the archive that was sent',
  })
}

/** Tree id of an archive in memory. */
export async function treeOfPacked(
  bytes: Uint8Array,
  param: string,
  projectDir: string | null,
): Promise<SourceTreeIds> {
  return await inTemporary(async directory => {
    const device = join(directory, 'archive')
    writeFileSync(device, bytes, { mode: 0o600 })
    return await treeOfFile({ device, sizeBytes: bytes.length }, param, projectDir)
  })
}

async function treeOfFile(
  archive: { readonly device: string; readonly sizeBytes: number },
  param: string,
  projectDir: string | null,
): Promise<SourceTreeIds> {
  return await inTemporary(async directory => {
    const into = join(directory, 'source')
    mkdirSync(into)
    try {
      const bounds = { bytesMax: unpackedBytesMax, entriesMax }
      const { tree } = await takeArchive({ ...archive, into, projectDir, ...bounds })
      return { kind: 'tree', sha1: tree.sha1, sha256: tree.sha256 }
    } catch (error) {
      if (!(error instanceof SourceFailure)) throw error
      throw new InputFault(error.message, { param, remedy: 'correct the source: no build service would take it' })
    }
  })
}

async function inTemporary<T>(work: (directory: string) => Promise<T>): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-source-'))
  try {
    return await work(directory)
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}
