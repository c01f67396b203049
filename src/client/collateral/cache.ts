// Downloads in a directory of the user: found again with --cache, and written by --cache and --save. Effects: files.

import { statSync } from 'node:fs'
import { join } from 'node:path'
import { Malformed } from '../../attest/malformed.ts'
import { type Check, verdict } from '../../attest/verdict.ts'
import { Fault } from '../../base/fault.ts'
import type { Run } from '../../terminal/command.ts'
import { inputFault, isDirectory, readInput } from '../../terminal/input-file.ts'
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
  const path = join(directory, file)
  const found = statSync(path, { throwIfNoEntry: false })
  if (found?.isFile() !== true) return null
  const ageMs = nowMs - found.mtimeMs
  if (isRenewed && (ageMs < 0 || ageMs >= renewalMs)) return null
  try {
    const bytes = readInput({ path, param: 'cache', bytesMax })
    return untilMs(bytes) > asOfMs ? bytes : null
  } catch (error) {
    if (error instanceof Malformed || error instanceof Fault) return null
    throw error
  }
}

export type KeepOptions = { readonly cache?: string | undefined; readonly save?: string | undefined }

/** Throws InputFault if the directory of --cache or --save does not exist. Called before any request. */
export function requireDirectory({ cache, save }: KeepOptions): void {
  for (const [param, path] of Object.entries({ cache, save })) {
    if (path === undefined || isDirectory(path)) continue
    throw inputFault({ path, param }, 'there is no such directory', 'make it, or name another')
  }
}

export type NewFile = { readonly file: string; readonly bytes: Uint8Array }

/**
 * Writes all files, or none if one fails. A file that may be the reason of a bad verdict is not kept; a policy may
 * refuse what is genuine. Returns the paths.
 */
export async function keepFiles(
  run: Run,
  files: readonly NewFile[],
  { checks, cache, save }: KeepOptions & { readonly checks: readonly Check[] },
): Promise<string[]> {
  const directory = cache ?? save
  if (directory === undefined || files.length === 0) return []
  const failure = failureOf(verdict(checks))
  if (failure !== null && failure !== 'policy') {
    const bad = checks.find(({ outcome, required }) => outcome === 'fail' || (required && outcome !== 'pass'))
    await run.hint(`nothing was saved: ${bad?.name} did not pass`)
    return []
  }
  const param = cache === undefined ? 'save' : 'cache'
  const saved = files.map(({ file, bytes }) => ({ path: join(directory, file), param, bytes }))
  writeOutputs(saved, { replaces: true })
  for (const { path } of saved) await run.hint(`saved ${path}`)
  return saved.map(({ path }) => path)
}
