// Files that commands write. Effects: writes the named files.

import { closeSync, fsyncSync, lstatSync, openSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { Fault, messageOf, systemErrorCode } from '../base/fault.ts'
import { syncDirectory, writeFileAtomic } from '../linux/files.ts'
import { inputFault } from './input-file.ts'

export type OutputFile = {
  readonly path: string
  /** The option that named it, without dashes. */
  readonly param: string
  readonly bytes: Uint8Array
}

/** Writes `--out`. Replaces regular files only: the rename would put a file in place of a device. */
export function writeOutput(path: string, bytes: Uint8Array): void {
  writeOutputs([{ path, param: 'out', bytes }], { replaces: true })
}

/**
 * All of these files or none: each lies whole beside its place before the first is moved there. `replaces`: regular
 * files that are there already. InputFault.
 */
export function writeOutputs(files: readonly OutputFile[], { replaces }: { readonly replaces: boolean }): void {
  const isNew = files.map((file, at) => {
    if (files.slice(0, at).some(({ path }) => resolve(path) === resolve(file.path)))
      throw inputFault(file, 'it is named twice', 'name two different files')
    return refusing(file, () => checkTarget(file, replaces))
  })
  const undo: string[] = []
  try {
    for (const file of files) {
      undo.push(stagedPath(file))
      refusing(file, () => writeFileAtomic(stagedPath(file), file.bytes, { mode: 0o644 }))
    }
    for (const [at, file] of files.entries()) {
      refusing(file, () => renameSync(stagedPath(file), file.path))
      if (isNew[at] === true) undo.push(file.path)
    }
    for (const directory of new Set(files.map(({ path }) => dirname(path)))) syncDirectory(directory)
  } catch (error) {
    for (const path of undo) rmSync(path, { force: true })
    throw error
  }
}

/** For a file that must not replace another, such as a key. InputFault. */
export function refuseExisting(path: string, param = 'file'): void {
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) return
  throw inputFault({ path, param }, 'it exists', 'name a file that does not exist yet')
}

/**
 * Writes a secret to a file that does not exist yet and that only its owner can read. A symbolic
 * link counts as existing. InputFault.
 */
export function writeNewSecret(path: string, param: string, text: string): void {
  const file = { path, param, bytes: Buffer.from(text) }
  refuseExisting(path, param)
  refusing(file, () => {
    const fd = openSync(path, 'wx', 0o600)
    try {
      writeFileSync(fd, file.bytes)
      fsyncSync(fd)
    } catch (error) {
      rmSync(path, { force: true })
      throw error
    } finally {
      closeSync(fd)
    }
    syncDirectory(dirname(path))
  })
}

function stagedPath({ path }: OutputFile): string {
  return `${path}.strongroom-part`
}

/** Whether there is nothing yet. */
function checkTarget({ path, param }: OutputFile, replaces: boolean): boolean {
  const existing = lstatSync(path, { throwIfNoEntry: false })
  if (existing === undefined) return true
  if (!existing.isFile()) throw new Error('it exists and is not a regular file')
  if (!replaces) refuseExisting(path, param)
  return false
}

function refusing<T>(file: OutputFile, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (error instanceof Fault && error.code === 'invalid_request') throw error
    const code = systemErrorCode(error instanceof Fault ? error.cause : error)
    const reason = code === 'ENOENT' ? 'there is no such directory' : messageOf(error)
    throw inputFault(file, reason, 'name a file that can be written')
  }
}
