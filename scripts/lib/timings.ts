// How long each test file took in earlier runs, so that the runner starts the longest first. Effects: a directory.

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { STARTS_FIRST as longest } from './phases.ts'

/** Type information and the test files' durations of earlier checks. May be deleted. */
export function cacheDirOf(root: string): string {
  const directory = resolve(root, 'node_modules/.cache/strongroom-check')
  mkdirSync(directory, { recursive: true })
  return directory
}

/**
 * Options of `bun test` with several workers, which take the longest file first if the durations of all are known. A
 * file without one counts as short, unless it is among the longest.
 */
export function timingOptions(root: string, files: readonly string[]): string[] {
  const path = resolve(cacheDirOf(root), 'durations.json')
  const known = durationsIn(path)
  const assumed = files.map(file => [file, longest.includes(file) ? assumedMs.longest : assumedMs.other] as const)
  writeFileSync(path, JSON.stringify({ version: 1, files: { ...Object.fromEntries(assumed), ...known } }))
  return [`--timings=${path}`, '--update-timings']
}

const assumedMs = { longest: 60_000, other: 2_000 }

/** Empty if there is no such file, or none that can be read: it is only a cache. */
function durationsIn(path: string): Record<string, number> {
  try {
    return JSON.parse(readFileSync(path, 'utf8')).files
  } catch {
    return {}
  }
}
