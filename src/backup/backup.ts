// Makes a backup beside a running daemon: one sealed file, whole or not there. Effects: reads the state directory and
// the configuration; writes the file, and a directory of its own below the state directory that it removes.

import {
  closeSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  statSync,
  writeSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { Fault, wrapFault } from '../base/fault.ts'
import type { LoadedConfig } from '../config/load.ts'
import { removeFile, removeTree } from '../linux/files/removal.ts'
import { ensureDir, syncDirectory } from '../linux/files.ts'
import { lockFile } from '../linux/lock.ts'
import { collect } from './collect.ts'
import { backupName, surplusOf } from './keep.plan.ts'
import type { Manifest } from './manifest.ts'
import { type PipeTarget, pipeTo } from './pipe.ts'
import { type Seal, seal } from './seal.ts'
import { tarStream } from './tar.ts'

export type BackupOptions = {
  readonly stateDir: string
  readonly loaded: LoadedConfig
  readonly seal: Seal
  /** Whether the operator key of the state directory signs the manifest. */
  readonly isSigned: boolean
  readonly nowMs: number
  /** Reads usage that the database may lack; the function that it returns adds that usage to a copy. */
  readonly readJournal?: (stateDir: string) => (copy: string) => void
}

export type MadeBackup = {
  /** The path, or the name and how it was handed over. */
  readonly file: string
  readonly bytes: number
  readonly manifest: Manifest
  /** SHA-384 of the ID key that signed the manifest; null if unsigned. */
  readonly signer: Uint8Array | null
}

const scratchName = 'backup.partial'
const lockName = 'backup.lock'

/**
 * Writes `file`, mode 0600; an existing one is replaced by the whole new one. One backup at a time. Faults: conflict
 * (another one is being made), not_found (no operator key to sign with), store.*, host.disk_full, internal,
 * invalid_request (a recipient).
 */
export async function makeBackup(file: string, options: BackupOptions): Promise<MadeBackup> {
  using _ = lockFile(join(options.stateDir, lockName))
  return await writeBackup(file, options)
}

/** Writes a file named by the time, then removes the oldest until `keep` are left. Faults as above. */
export async function keepBackups(
  directory: string,
  keep: number,
  options: BackupOptions,
): Promise<MadeBackup & { readonly removed: readonly string[] }> {
  using _ = lockFile(join(options.stateDir, lockName))
  // An existing directory keeps its mode, because it may be shared.
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  const made = await writeBackup(join(directory, backupName(options.nowMs)), options)
  const removed = surplusOf(readdirSync(directory), keep)
  for (const name of removed) removeFile(join(directory, name))
  return { ...made, removed }
}

/** Gives the backup to a command instead of a file. Faults as above, and those of the command (pipe.ts). */
export async function pipeBackup(
  target: Pick<PipeTarget, 'command' | 'timeoutMs'>,
  options: BackupOptions,
): Promise<MadeBackup> {
  using _ = lockFile(join(options.stateDir, lockName))
  const name = backupName(options.nowMs)
  return await sealed(options, async stream => ({
    file: `${name} by --to-command`,
    bytes: await pipeTo({ ...target, name }, stream),
  }))
}

async function writeBackup(file: string, options: BackupOptions): Promise<MadeBackup> {
  refuseSpecial(file)
  return await sealed(options, async stream => {
    await writeWhole(file, stream)
    return { file, bytes: statSync(file).size }
  })
}

type Written = Pick<MadeBackup, 'file' | 'bytes'>

async function sealed(
  { stateDir, loaded, nowMs, ...options }: BackupOptions,
  write: (stream: ReadableStream<Uint8Array>) => Promise<Written>,
): Promise<MadeBackup> {
  // A killed run has left it.
  const scratchDir = join(stateDir, scratchName)
  removeTree(scratchDir)
  ensureDir(scratchDir, { mode: 0o700 })
  try {
    const { isSigned, readJournal = () => () => {} } = options
    const { manifest, signer, files } = await collect({ stateDir, loaded, scratchDir, isSigned, nowMs, readJournal })
    const written = await write(await seal(tarStream(files, Math.floor(nowMs / 1000)), options.seal))
    return { ...written, manifest, signer }
  } finally {
    removeTree(scratchDir)
  }
}

/** The rename would put a file in place of a device or a directory. */
function refuseSpecial(file: string): void {
  const there = lstatSync(file, { throwIfNoEntry: false })
  if (there === undefined || there.isFile()) return
  throw new Fault('invalid_request', `${file} is there and no regular file`)
}

/** The name appears with the last byte on the disk. */
async function writeWhole(file: string, stream: ReadableStream<Uint8Array>): Promise<void> {
  const partial = `${file}.partial`
  try {
    removeFile(partial)
    const fd = openSync(partial, 'wx', 0o600)
    try {
      for await (const piece of stream) for (let at = 0; at < piece.length; ) at += writeSync(fd, piece, at)
      fsyncSync(fd)
    } finally {
      closeSync(fd)
    }
    renameSync(partial, file)
    syncDirectory(dirname(file))
  } catch (error) {
    removeFile(partial)
    throw error instanceof Fault ? error : wrapFault(error, `write ${file}`)
  }
}
