// How long each test file took in earlier runs, so that the runner starts the longest first. Effects: a directory.

import { mkdirSync } from 'node:fs'
import { resolve } from 'node:path'

/** Type information and the test files' durations of earlier checks. May be deleted. */
export function cacheDirOf(root: string): string {
  const directory = resolve(root, 'node_modules/.cache/strongroom-check')
  mkdirSync(directory, { recursive: true })
  return directory
}

/** Options of `bun test` with several workers. */
export function timingOptions(root: string): string[] {
  return [`--timings=${resolve(cacheDirOf(root), 'durations.json')}`, '--update-timings']
}
