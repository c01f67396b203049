// Names of backups in a directory that keeps the newest N, and which of them go. Pure.

import { iso } from '../base/clock.ts'

const NAME = /^strongroom-\d{8}T\d{6}Z\.age$/
/** A run that was killed leaves this. */
const PARTIAL = /^strongroom-\d{8}T\d{6}Z\.age\.partial$/

/** Sorts by time. */
export function backupName(nowMs: number): string {
  const digits = iso(nowMs)
    .replace(/\.\d+Z$/, 'Z')
    .replaceAll(/[-:]/g, '')
  return `strongroom-${digits}.age`
}

/** Returns all except the newest `keep`, and leftovers of killed runs. Other files are not ours. */
export function surplusOf(names: readonly string[], keep: number): string[] {
  const made = names.filter(name => NAME.test(name)).toSorted()
  return [...made.slice(0, Math.max(0, made.length - keep)), ...names.filter(name => PARTIAL.test(name))]
}
