// Computes git's tree id of a source with the build VM's code, over the archive that it receives. Effects: reads the
// source; writes its files into a temporary directory, and removes them.

import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { takeArchive } from '../../linux/source/archive-tree.ts'
import { SourceFailure } from '../../linux/source/failure.ts'
import { InputFault } from '../../terminal/exit.ts'
import { MIB, readInput } from '../../terminal/input-file.ts'
import type { AskedSource } from '../../verifier/build/question.ts'
import { type Packed, packSource } from './pack.ts'
import { listSource, type SourceFiles } from './source-files.ts'

/** Larger sources need git, or a service that states a higher limit. */
const archiveBytesMax = 1024 * MIB
const unpackedBytesMax = 8 * 1024 * MIB
const entriesMax = 400_000

export type SourceTreeIds = Extract<AskedSource, { kind: 'tree' }>

export type PackedSource = Packed & {
  /** Remarks on files that were left out. */
  readonly leftOut: readonly string[]
}

/** Packs a directory, with the ignored files of `include`. Fault invalid_request. */
export async function packDirectory(directory: string, include: readonly string[] = []): Promise<PackedSource> {
  return await packFiles(directory, await listSource(directory, include))
}

/** Packs these files of a directory. Fault invalid_request. */
export async function packFiles(directory: string, { paths, leftOut }: SourceFiles): Promise<PackedSource> {
  return { ...(await packSource(directory, paths, archiveBytesMax)), leftOut }
}

/** Reports whether a source is a file. */
export function isArchiveFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === true
}

/** Reads an archive. Throws Fault invalid_request if it is unreadable, or larger than any service accepts. */
export function readArchive(path: string): Uint8Array {
  return readInput({ path, param: 'source', bytesMax: archiveBytesMax })
}

/**
 * Returns the tree id of a directory, packed like `build submit` with this `include`, or of an archive file, and
 * remarks on what it left out. Fault invalid_request.
 */
export async function treeOf(
  path: string,
  param: string,
  { projectDir, include }: { readonly projectDir: string | null; readonly include: readonly string[] },
): Promise<Pick<UnpackedSource, 'tree' | 'leftOut'>> {
  const found = statSync(path, { throwIfNoEntry: false })
  if (found?.isDirectory() === true) {
    const packed = await packDirectory(path, include)
    const { tree, leftOut } = await unpackPacked(packed.bytes, param, projectDir)
    return { tree, leftOut: [...packed.leftOut, ...leftOut] }
  }
  refuseInclude(include)
  if (found?.isFile() === true && found.size > 0 && found.size <= archiveBytesMax) {
    return await unpack({ device: path, sizeBytes: found.size }, param, projectDir)
  }
  throw new InputFault(`--${param} ${path} is no directory, and no archive of at most ${archiveBytesMax} bytes`, {
    param,
    remedy: 'name the directory or the archive that was sent',
  })
}

/** Throws Fault invalid_request if a path is included: only a directory has files to leave out. */
export function refuseInclude(include: readonly string[]): void {
  if (include.length === 0) return
  throw new InputFault('--include is for a directory', {
    param: 'include',
    remedy: 'leave it out, or name the directory of the project as the source',
  })
}

/** An archive in memory, unpacked like in the build VM. */
export type UnpackedSource = {
  readonly tree: SourceTreeIds
  readonly fileCount: number
  /** Remarks on entries that the build VM skips. */
  readonly leftOut: readonly string[]
  /** Paths of Git LFS pointers. */
  readonly lfsPointers: readonly string[]
}

/** Returns the tree id of an archive in memory. Fault invalid_request. */
export async function treeOfPacked(
  bytes: Uint8Array,
  param: string,
  projectDir: string | null,
): Promise<SourceTreeIds> {
  return (await unpackPacked(bytes, param, projectDir)).tree
}

/** Unpacks an archive and removes its files. Throws Fault invalid_request if no service would accept it. */
export async function unpackPacked(
  bytes: Uint8Array,
  param: string,
  projectDir: string | null,
): Promise<UnpackedSource> {
  return await inTemporary(async directory => {
    const device = join(directory, 'archive')
    writeFileSync(device, bytes, { mode: 0o600 })
    return await unpack({ device, sizeBytes: bytes.length }, param, projectDir)
  })
}

async function unpack(
  archive: { readonly device: string; readonly sizeBytes: number },
  param: string,
  projectDir: string | null,
): Promise<UnpackedSource> {
  return await inTemporary(async directory => {
    const into = join(directory, 'source')
    mkdirSync(into)
    try {
      const bounds = { bytesMax: unpackedBytesMax, entriesMax, unprivileged: [] }
      const { tree, unpacked } = await takeArchive({ ...archive, into, projectDir, ...bounds })
      const { fileCount, leftOut } = unpacked
      const { sha1, sha256, lfsPointers } = tree
      return { tree: { kind: 'tree', sha1, sha256 }, fileCount, leftOut, lfsPointers }
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
