// Which tests measure time, and so need the processors to themselves (scripts/lib/phases.ts). Pure.

import { codeOf } from './source.ts'
import type { Tree } from './tree.ts'

/** A bound beyond it leaves room for whatever else runs on a machine. */
const closeMs = 1_000

/** A time in milliseconds, or when something was, that must be below a number. */
const bound =
  /(?:\b\w*Ms\b\W*|performance\.now\(\)[^\n<]*)(?:\)\s*\.toBeLessThan(?:OrEqual)?\(|(?:- \w+ )?<=? )\s*(?:Math\.max\()?([\d_]+)/g

/** Files of the slow phase, where several run at a time, that hold a clock to close bounds. */
export function phaseFaults(tree: Tree): string[] {
  const faults: string[] = []
  for (const [path, text] of tree) {
    if (!path.endsWith('.slow.test.ts')) continue
    for (const [found, limit = ''] of codeOf(text).matchAll(bound)) {
      if (Number(limit.replaceAll('_', '')) < closeMs)
        faults.push(`${path}: measures time (${found.trim()}): name it .alone.test.ts`)
    }
  }
  return faults
}
