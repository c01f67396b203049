// Downloads in a directory of the user: found again with --cache, and written by --cache and --save. Effects: files.

import { closeSync, constants, fstatSync, mkdirSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { Malformed } from '../../attest/malformed.ts'
import { type Check, verdict } from '../../attest/verdict.ts'
import { messageOf } from '../../base/fault.ts'
import { inputFault, isDirectory, readUpTo } from '../../terminal/input-file.ts'
import { writeOutputs } from '../../terminal/output-file.ts'
import { failureOf } from '../../terminal/verdict-exit.ts'

/** A file of the directory. */
export type CacheEntry = {
  readonly file: string
  readonly fileBytesMax: number
  /** Whether a later version replaces the file, as with revocation lists. */
  readonly isRenewed: boolean
  /** Returns the time until which the file is in force. Throws Malformed for any other file. */
  readonly untilMs: (bytes: Uint8Array) => number
}

/** A file that is renewed is downloaded again after this time, even if it is still in force. */
const renewalMs = 24 * 3_600_000

/** Returns a cached file that is in force; null if there is none, or it cannot be read. */
export function findCached(
  directory: string,
  { file, fileBytesMax: bytesMax, isRenewed, untilMs }: CacheEntry,
  { asOfMs, nowMs }: { readonly asOfMs: number; readonly nowMs: number },
): Uint8Array | null {
  const found = readRegular(join(directory, file), bytesMax)
  if (found === null) return null
  const ageMs = nowMs - found.modifiedMs
  if (isRenewed && (ageMs < 0 || ageMs >= renewalMs)) return null
  try {
    return untilMs(found.bytes) > asOfMs ? found.bytes : null
  } catch (error) {
    if (error instanceof Malformed) return null
    throw error
  }
}

/** Returns null for a larger file, anything but a regular file, and after any error of the system. Never waits. */
function readRegular(path: string, bytesMax: number): { bytes: Uint8Array; modifiedMs: number } | null {
  let fd: number | null = null
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
    const found = fstatSync(fd)
    if (!found.isFile() || found.size > bytesMax) return null
    const bytes = readUpTo(fd, bytesMax + 1, found.size)
    return bytes.length > bytesMax ? null : { bytes, modifiedMs: found.mtimeMs }
  } catch {
    return null
  } finally {
    if (fd !== null) closeSync(fd)
  }
}

export type KeepOptions = { readonly cache?: string | undefined; readonly save?: string | undefined }

/**
 * Makes the directory of --cache, inside one that exists. Throws InputFault if that of --save does not exist, or the
 * other cannot be made. Called before any request.
 */
export function requireDirectory({ cache, save }: KeepOptions): void {
  for (const [param, path] of Object.entries({ cache, save })) {
    if (path === undefined || isDirectory(path)) continue
    if (param === 'cache') makeDirectory({ path, param })
    else throw inputFault({ path, param }, 'there is no such directory', 'make it, or name another')
  }
}

function makeDirectory(input: { readonly path: string; readonly param: string }): void {
  try {
    mkdirSync(input.path, { mode: 0o700 })
  } catch (error) {
    throw inputFault(input, `no directory, and none can be made: ${messageOf(error)}`, 'make it, or name another')
  }
}

export type NewFile = { readonly file: string; readonly bytes: Uint8Array }

/**
 * Writes all files, or none if one fails, and returns their paths and lines for the user. A file that may be the
 * reason of a bad verdict is not kept; a policy may refuse what is genuine. Throws InputFault if --save cannot be
 * written; a cache is a convenience that must not cost the verdict.
 */
export function keepFiles(
  files: readonly NewFile[],
  { checks, cache, save }: KeepOptions & { readonly checks: readonly Check[] },
): { readonly saved: string[]; readonly hints: string[] } {
  const directory = cache ?? save
  if (directory === undefined || files.length === 0) return { saved: [], hints: [] }
  const failure = failureOf(verdict(checks))
  if (failure !== null && failure !== 'policy') {
    const bad = checks.find(({ outcome, required }) => outcome === 'fail' || (required && outcome !== 'pass'))
    return { saved: [], hints: [`nothing was saved: ${bad?.name} did not pass`] }
  }
  const param = cache === undefined ? 'save' : 'cache'
  const saved = files.map(({ file, bytes }) => ({ path: join(directory, file), param, bytes }))
  try {
    writeOutputs(saved, { replaces: true })
  } catch (error) {
    if (cache === undefined) throw error
    return { saved: [], hints: [`nothing was saved: ${messageOf(error)}`] }
  }
  return { saved: saved.map(({ path }) => path), hints: saved.map(({ path }) => `saved ${path}`) }
}
