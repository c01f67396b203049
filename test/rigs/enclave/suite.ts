// The gateway's own tests against the enclave: the same files in a separate `bun test`, in which
// scripts/rigs/gateway/server.ts and rigs/gateway/real-gateway.ts start each gateway as an enclave. `bun
// test/rigs/enclave/suite.ts FILE…` runs some of them. Effects: processes, files.

import { expect } from 'bun:test'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { judge, skipReasonsOf, type Tally, type TestCase, testCasesOf } from '../../../scripts/lib/junit.ts'
import { PHASES, type PhaseName, phaseOf, testFiles } from '../../../scripts/lib/phases.ts'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { builtEnclaveProcess } from '../../../scripts/rigs/built/enclave-process.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { openAuthority } from '../../../src/http/authority.ts'

export type SuiteRun = Tally & {
  readonly cases: readonly TestCase[]
  /** Tests that were left out, each with its reason. */
  readonly left: readonly { readonly test: string; readonly reason: string }[]
  readonly output: string
}

const root = resolve(import.meta.dir, '../../..')

/** Calls that start a gateway, in this process or in another program. */
const starts = /\b(?:startGateway|startRealGateway|eachWithGateway)\(|rigs\/gateway\/load-plan\.ts/

/** Every test file of the gateway in one of these phases, from the repository's root; new files are found too. */
export function gatewayTestFiles(phases: readonly PhaseName[]): string[] {
  return testFiles(root, ['test/inference/']).filter(
    file => phases.includes(phaseOf(file)) && starts.test(readFileSync(join(root, file), 'utf8')),
  )
}

/** All of them; those with a real model (`image`) start their worker themselves. */
export const gatewayPhases = ['unit', 'slow', 'alone'] as const satisfies readonly PhaseName[]

type PassOptions = {
  /** How many processes serve the clients of each gateway. */
  readonly processes?: number
  /** How many tests of a sample each file has at most; a file with few of them has one. */
  readonly perFileMax?: number
}

/**
 * Runs the files, or `sampleOf` their tests unless the run is exhaustive. Fails unless each of those tests passes in
 * the enclave or says why it needs the host.
 */
export async function expectPassesInEnclave(
  files: readonly string[],
  timeoutMs: number,
  { processes = 1, perFileMax }: PassOptions = {},
): Promise<void> {
  const all = await testsOf(files)
  expect(all.length).toBeGreaterThanOrEqual(files.length)
  const expected = runsAll ? all : sampleOf(all, perFileMax)
  const run = await runAgainstEnclave(files, timeoutMs, { processes, only: runsAll ? null : expected })
  for (const { test: name, reason } of run.left) process.stdout.write(`not run: in the enclave: ${name}: ${reason}\n`)
  if (run.failed > 0) process.stderr.write(run.output)
  expect([run.failed, run.problems]).toEqual([0, []])
  // None is missing, and each that was left out has a reason of its own.
  const nameOf = ({ file, name }: { file: string; name: string }) => `${file}: ${name}`
  expect(run.cases.map(nameOf).toSorted()).toEqual(expected.map(nameOf).toSorted())
  const skipped = run.cases.filter(item => item.outcome === 'skipped').map(nameOf)
  expect(run.left.map(item => item.test).toSorted()).toEqual(skipped.toSorted())
  expect(run.passed).toBe(expected.length - skipped.length)
  process.stderr.write(
    `in the enclave: ${run.passed} of ${expected.length} chosen tests; ${files.length} files have ${all.length}\n`,
  )
}

/** A longer table gives one test for each so many rows. */
const rowsPerTest = 16

/** Programs and libraries of others, and what they send: the same requests, whoever answers them. */
const ofClients = /^test\/inference\/(?:agents\/|clients)|stock-client/

/** A bounded sample has one of so many tests of a file. */
const itemsPerItem = 6

/** One of so many tests of such a file. */
const clientTestsPerTest = 4

/**
 * Returns every test that stands by itself, and some of each table. The rows of a table are the same test with other
 * inputs, and all of them run in the host's process. Tables differ in the row they begin with, so each nested table has
 * its turn. Few tests of clients are in it. Each file keeps `perFileMax` of these tests at most, evenly spread.
 */
export function sampleOf(tests: readonly TestCase[], perFileMax = Number.POSITIVE_INFINITY): TestCase[] {
  const tables = [...Map.groupBy(tests, ({ file, line }) => `${file}:${line}`).values()]
  const chosen = tables.flatMap((rows, table) => {
    const first = table % Math.min(rows.length, rowsPerTest)
    const some = rows.filter((_, at) => at % rowsPerTest === first)
    const file = rows[0]?.file ?? ''
    if (!ofClients.test(file)) return some
    const place = tables.filter(([row]) => row?.file === file).indexOf(rows)
    return place % clientTestsPerTest === 0 ? some.slice(0, 1) : []
  })
  const byFile = [...Map.groupBy(chosen, ({ file }) => file).values()]
  // Rows of the same name run together.
  const keys = new Set(byFile.flatMap(own => evenlySpread(own, perFileMax)).map(keyOf))
  return tests.filter(test => keys.has(keyOf(test)))
}

/** `most` of the items, or one of each `itemsPerItem` if that is fewer. */
function evenlySpread<T>(items: readonly T[], most: number): T[] {
  if (most === Number.POSITIVE_INFINITY) return [...items]
  const count = Math.min(most, Math.ceil(items.length / itemsPerItem))
  return Array.from({ length: count }, (_, at) => items[Math.floor(((at + 0.5) * items.length) / count)] as T)
}

function keyOf({ file, line, name }: TestCase): string {
  return `${file}:${line}: ${name}`
}

/** The tests of these files, as they are when they run in their own process. None of them is run. */
export async function testsOf(files: readonly string[]): Promise<TestCase[]> {
  const dir = mkdtempSync(join(tmpdir(), 'srt-suite-'))
  try {
    const { report } = await runTests(dir, files, {
      more: ['--test-name-pattern=no test has this name'],
      timeoutMs: 300_000,
    })
    return testCasesOf(report ?? '')
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
}

type SuiteOptions = {
  /** How many of them serve the clients of each gateway. */
  readonly processes?: number
  /** The tests to run; null means all. */
  readonly only?: readonly TestCase[] | null
}

export async function runAgainstEnclave(
  files: readonly string[],
  timeoutMs: number,
  { processes = 1, only = null }: SuiteOptions = {},
): Promise<SuiteRun> {
  const dir = mkdtempSync(join(tmpdir(), 'srt-suite-'))
  try {
    const random = systemRandom
    const { nowMs } = systemClock
    const authority = await openAuthority({ kind: 'clients', stateDir: dir, names: ['localhost'], nowMs, random })
    const env = {
      STRONGROOM_TEST_GATEWAY: 'enclave',
      STRONGROOM_TEST_AUTHORITY: dir,
      STRONGROOM_TEST_ENCLAVE: await builtEnclaveProcess(),
      ...(processes === 1 ? {} : { STRONGROOM_TEST_PROCESSES: String(processes) }),
      // So every client of these tests trusts the host's authority, without a word in its test.
      NODE_EXTRA_CA_CERTS: authority.caFile,
    }
    const more = only === null ? [] : [`--test-name-pattern=${patternOf(only)}`]
    const whole = await runTests(dir, files, { env, more, timeoutMs })
    const run = only === null ? whole : { ...whole, report: reportOn(only, whole.report) }
    const cases = testCasesOf(run.report ?? '')
    return { ...judge({ files, timeoutMs, ...run }), cases, left: leftOut(cases, run.output), output: run.output }
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
}

/** The runner matches names of groups and tests joined by a space; its report joins them by ` > `. */
export function patternOf(tests: readonly TestCase[]): string {
  const escaped = (text: string) => text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')
  const names = tests.map(({ name }) => name.split(' > ').map(escaped).join('(?: | > )'))
  return `^(?:${[...new Set(names)].join('|')})$`
}

/** Without tests that were not asked for, which the runner reports as skipped. */
function reportOn(tests: readonly TestCase[], report: string | null): string | null {
  const asked = new Set(tests.map(keyOf))
  const isAsked = (element: string) => testCasesOf(element).every(test => asked.has(keyOf(test)))
  return (
    report?.replace(/<testcase\b(?:[^>"]|"[^"]*")*?(?:\/>|>.*?<\/testcase>)/gs, text => (isAsked(text) ? text : '')) ??
    null
  )
}

type RunOptions = {
  readonly env?: Readonly<Record<string, string>>
  readonly more?: readonly string[]
  readonly timeoutMs: number
}

async function runTests(dir: string, files: readonly string[], { env = {}, more = [], timeoutMs }: RunOptions) {
  const reportFile = join(dir, 'report.xml')
  const options = [`--timeout=${PHASES.slow.testTimeoutMs}`, '--reporter=junit', `--reporter-outfile=${reportFile}`]
  const child = Bun.spawn([process.execPath, 'test', ...options, ...more, ...files.map(file => `./${file}`)], {
    cwd: root,
    // A test run calls nobody at its end: what it leaves behind lies here.
    env: { ...process.env, NO_COLOR: '1', TMPDIR: dir, ...env },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: timeoutMs,
  })
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  const report = existsSync(reportFile) ? readFileSync(reportFile, 'utf8') : null
  return { report, exitCode: child.exitCode, timedOut: child.signalCode !== null, output: stdout + stderr }
}

/** A reason belongs to the first test that was skipped at its place or after it; tests of one table share theirs. */
function leftOut(cases: readonly TestCase[], output: string): SuiteRun['left'] {
  const skipped = cases.filter(item => item.outcome === 'skipped')
  return skipReasonsOf(output).flatMap(text => {
    const [, reason = text, file = '', line = ''] = /^(.*) \((\S+):(\d+)\)$/.exec(text) ?? []
    const after = skipped.filter(item => item.file === file && item.line >= Number(line))
    const first = Math.min(...after.map(item => item.line))
    return after.filter(item => item.line === first).map(item => ({ test: `${item.file}: ${item.name}`, reason }))
  })
}

if (import.meta.main) {
  const asked = process.argv.slice(2)
  const run = await runAgainstEnclave(asked.length === 0 ? gatewayTestFiles(gatewayPhases) : asked, 1_200_000)
  process.stdout.write(run.output)
  process.exit(run.failed === 0 ? 0 : 1)
}
