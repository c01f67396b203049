// A test file that failed runs once more, alone, after its phase. A file that then passes is flaky: the run may still
// pass, and its end names the file. So do all files of a process whose failure belongs to none of them. Pure but for
// the second runs.

import { sumTallies, type Tally } from './junit.ts'

/** A run with more flaky files fails: chance alone does not explain them. */
export const flakyMax = 3
/** Files of one phase that run again; with more failures the tree is broken. */
const repeatedMax = 10

export type FailedFile = {
  /** One file, or all of one process. */
  readonly files: readonly string[]
  /** Result of the first run that has them. */
  readonly first: Tally
}

export type FlakyFile = { readonly file: string; readonly excerpts: readonly string[] }

export type Repeated = {
  /** Results of the second runs; those of the first where there was no second. */
  readonly tally: Tally
  readonly flaky: readonly FlakyFile[]
}

/** `runAgain`: runs each of these files alone; null if there is no time left. */
export async function repeatFailed(
  failed: readonly FailedFile[],
  runAgain: (files: readonly string[]) => Promise<Tally | null>,
): Promise<Repeated> {
  const tallies: Tally[] = []
  const flaky: FlakyFile[] = []
  for (const { files, first } of failed) {
    const second = failed.length > repeatedMax ? null : await runAgain(files)
    tallies.push(second ?? first)
    if (second !== null && second.failed === 0) flaky.push({ file: files.join(', '), excerpts: firstFailures(first) })
  }
  return { tally: sumTallies(tallies), flaky }
}

/** Result of the flaky files as such: a failure if there are too many. */
export function judgeFlaky(flaky: readonly FlakyFile[]): Tally {
  const none = sumTallies([])
  if (flaky.length <= flakyMax) return none
  const problem = `${flaky.length} files failed and passed when repeated; a run may have ${flakyMax} of them`
  return { ...none, failed: 1, problems: [problem] }
}

function firstFailures({ excerpts, failedTests, problems }: Tally): readonly string[] {
  return excerpts.length > 0 ? excerpts : [...failedTests, ...problems]
}
