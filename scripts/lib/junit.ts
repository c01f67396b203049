// Reads the JUnit report of `bun test`. Pure. Only what Bun 1.4.5 writes: nested testsuite, testcase, failure,
// skipped.
//
// The report alone proves nothing: a file that does not load has no suite in it and only the exit status tells, and a
// run that calls process.exit() writes no report at all. `judge` therefore compares it with the files that were asked
// for.

export type TestCase = {
  readonly file: string
  /** Where it begins in its file. */
  readonly line: number
  readonly name: string
  readonly outcome: 'passed' | 'failed' | 'skipped'
  readonly durationMs: number
  /** The error's message; empty if there is none. */
  readonly message: string
}

export type Tally = {
  readonly passed: number
  readonly failed: number
  readonly skipped: number
  /** The tests that failed, each with its file. */
  readonly failedTests: readonly string[]
  /** Why something counts as failed beyond the tests themselves. */
  readonly problems: readonly string[]
  /** The end of what the runner printed about each failed test. */
  readonly excerpts: readonly string[]
}

export type Run = {
  /** Test files that were asked for, as paths from the repository's root. */
  readonly files: readonly string[]
  /** Text of the report; null when there is none. */
  readonly report: string | null
  readonly exitCode: number | null
  readonly timedOut: boolean
  readonly timeoutMs: number
  readonly output: string
}

const tag = /<(\/?)(testsuites|testsuite|testcase|failure|error|skipped)\b((?:[^>"]|"[^"]*")*?)(\/?)>/g

/** Every test of a report, in its order. */
export function testCasesOf(report: string): TestCase[] {
  const cases: TestCase[] = []
  let open: { -readonly [Field in keyof TestCase]: TestCase[Field] } | null = null
  for (const [, closing, element, attributes = '', empty] of report.matchAll(tag)) {
    if (element === 'testcase') {
      if (closing === '') {
        open = {
          file: attribute(attributes, 'file'),
          line: Number(attribute(attributes, 'line')),
          name: [attribute(attributes, 'classname'), attribute(attributes, 'name')].filter(Boolean).join(' > '),
          outcome: 'passed',
          durationMs: Number(attribute(attributes, 'time')) * 1000,
          message: '',
        }
      }
      if (open !== null && (closing === '/' || empty === '/')) {
        cases.push(open)
        open = null
      }
    } else if (open !== null && closing === '') {
      open.outcome = element === 'skipped' ? 'skipped' : 'failed'
      if (element !== 'skipped') open.message = attribute(attributes, 'message')
    }
  }
  return cases
}

/** Result of a run of `bun test`. Anything that could hide a failure counts as one. */
export function judge(run: Run): Tally {
  return judgeCases(run, casesOf(run), hasStrayError(run))
}

/** Files of one process that run again if a failure belongs to none of them. */
const wholeMax = 8

/**
 * Returns the files to which the failures of a run belong, so that each may run once more: lists of one file; all files
 * in one list if a failure belongs to none of them, such as the end of their process. Empty if nothing failed, or if
 * such a run had too many files or no time left.
 */
export function failedFilesOf(run: Run): string[][] {
  if (judge(run).failed === 0) return []
  if (run.files.length === 1) return [[...run.files]]
  const cases = casesOf(run)
  const isGood = (file: string) => {
    const own = cases.filter(test => test.file === file)
    return own.length > 0 && own.every(({ outcome }) => outcome !== 'failed')
  }
  const failed = run.files.filter(file => !isGood(file))
  if (run.timedOut) return []
  if (judgeWithout(run, failed).failed === 0 && run.report !== null) return failed.map(file => [file])
  return run.files.length <= wholeMax ? [[...run.files]] : []
}

/** Returns the result of a run without some of its files, to which all its failures belong. */
export function judgeWithout(run: Run, files: readonly string[]): Tally {
  const rest = run.files.filter(file => !files.includes(file))
  if (rest.length === 0) return sumTallies([])
  const cases = casesOf(run).filter(({ file }) => !files.includes(file))
  // The failures of the other files explain the exit status.
  const exitCode = files.length === 0 ? run.exitCode : 0
  const tally = judgeCases({ ...run, files: rest, exitCode }, cases, hasStrayError(run))
  const failed = cases.filter(({ outcome }) => outcome === 'failed')
  return { ...tally, excerpts: failed.map(test => excerptOf(test, tally.excerpts)) }
}

/** Files that run in parallel show an error behind its verdict, so that the excerpt may lack the error's message. */
function excerptOf({ name, message }: TestCase, excerpts: readonly string[]): string {
  const verdict = `(fail) ${name}`
  const excerpt = excerpts.find(text => text.includes(verdict)) ?? verdict
  return excerpt.includes(message) ? excerpt : `${excerpt}\n${message}`
}

function casesOf({ report }: Run): TestCase[] {
  return report === null ? [] : testCasesOf(report)
}

/**
 * Whether an error was thrown outside of every test. The report leaves it out, and another file's failure would explain
 * the exit status. A file that does not load is such an error, too, and has a problem of its own.
 */
function hasStrayError(run: Run): boolean {
  const errors = [...Bun.stripANSI(run.output).matchAll(/^# Unhandled error between tests$/gm)]
  const reported = new Set(casesOf(run).map(({ file }) => file))
  return errors.length > run.files.filter(file => !reported.has(file)).length
}

/** Returns how long the tests of each file took together. */
export function fileTimesOf(run: Run): Map<string, number> {
  const times = new Map<string, number>()
  for (const { file, durationMs } of casesOf(run)) times.set(file, (times.get(file) ?? 0) + durationMs)
  return times
}

function judgeCases(run: Run, cases: readonly TestCase[], hasStray: boolean): Tally {
  const count = (outcome: TestCase['outcome']) => cases.filter(test => test.outcome === outcome).length
  const problems: string[] = []
  if (hasStray) problems.push('an error outside of every test')
  if (run.timedOut) problems.push(`not done after ${Math.round(run.timeoutMs / 1000)} s: stopped`)
  if (run.report === null) {
    if (!run.timedOut) problems.push(`ended without a report, exit status ${run.exitCode}`)
  } else {
    const reported = new Set(cases.map(({ file }) => file))
    for (const file of run.files) if (!reported.has(file)) problems.push(`${file}: no test ran; did it load?`)
    const explained = count('failed') > 0 || problems.length > 0
    if (run.exitCode !== 0 && !explained) problems.push(`every test passed, but exit status ${run.exitCode}`)
  }
  const skippedFiles = new Set(cases.filter(test => test.outcome === 'skipped').map(test => test.file))
  const reasons = skipReasonsOf(run.output)
  if (reasons.length < skippedFiles.size) {
    problems.push(`skipped without printing \`not run: REASON\`: ${[...skippedFiles].join(', ')}`)
  }
  const failedTests = cases.filter(test => test.outcome === 'failed').map(({ file, name }) => `${file}: ${name}`)
  const failed = failedTests.length + problems.length
  return {
    passed: count('passed'),
    failed,
    skipped: count('skipped'),
    failedTests,
    problems,
    excerpts: excerptsOf(run.output),
  }
}

/** Reasons that tests printed for not running, as `not run: REASON` on a line of its own. */
export function skipReasonsOf(output: string): string[] {
  return [...output.matchAll(/^not run: (\S.*)$/gm)].map(match => match[1] ?? '')
}

const excerptLines = 40

/** The last lines up to the verdict of each failed test: what it printed, the error, where. Colours are left out. */
export function excerptsOf(output: string): string[] {
  const excerpts: string[] = []
  let from = 0
  const lines = Bun.stripANSI(output).split('\n')
  for (const [at, line] of lines.entries()) {
    if (!/^\((?:fail|pass|skip)\) /.test(line)) continue
    // Below the verdict the runner says that the time was over.
    const end = lines[at + 1]?.startsWith('  ^ ') ? at + 2 : at + 1
    if (line.startsWith('(fail)')) excerpts.push(lines.slice(Math.max(from, end - excerptLines), end).join('\n'))
    from = end
  }
  return excerpts
}

export function sumTallies(tallies: readonly Tally[]): Tally {
  const sum = (pick: (tally: Tally) => number) => tallies.reduce((total, tally) => total + pick(tally), 0)
  return {
    passed: sum(tally => tally.passed),
    failed: sum(tally => tally.failed),
    skipped: sum(tally => tally.skipped),
    failedTests: tallies.flatMap(tally => tally.failedTests),
    problems: tallies.flatMap(tally => tally.problems),
    excerpts: tallies.flatMap(tally => tally.excerpts),
  }
}

/** The closing line of a test run. */
export function summaryLine(tally: Tally): string {
  const skipped = tally.skipped === 0 ? '' : `, ${tally.skipped} skipped`
  return `${tally.passed} passed, ${tally.failed} failed${skipped}`
}

function attribute(attributes: string, name: string): string {
  const value = new RegExp(`(?:^|\\s)${name}="([^"]*)"`).exec(attributes)?.[1] ?? ''
  return value
    .replace(/&lt;/g, '<')
    .replace(/&gt;/g, '>')
    .replace(/&quot;/g, '"')
    .replace(/&apos;/g, "'")
    .replace(/&#(\d+);/g, (_all, code) => String.fromCodePoint(Number(code)))
    .replace(/&amp;/g, '&')
}
