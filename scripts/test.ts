// Runs the tests phase by phase and ends with one line: `N passed, N failed`. Started by scripts/test, which sets up
// first.
//
// Each phase has a bound on its time, and the whole run has one. A phase that ends without a report, or a file of
// which no test ran, counts as a failure; so does a run without any test. A file that failed runs once more, alone,
// after its phase (lib/repeat.ts).

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { type CommandResult, runCommand } from './lib/command.ts'
import {
  failedFilesOf,
  fileTimesOf,
  judge,
  judgeWithout,
  type Run,
  skipReasonsOf,
  summaryLine,
  sumTallies,
  type Tally,
} from './lib/junit.ts'
import { clearLeftovers, endMarked, killMarked, runMarkVariable } from './lib/leftovers.ts'
import { busyPercent, processorTimes } from './lib/machine.ts'
import {
  BUILD_BESIDE,
  MEMORY_KEPT,
  PHASE_NAMES,
  PHASES,
  type PhaseName,
  phaseOf,
  queuesOf,
  testFiles,
} from './lib/phases.ts'
import { type FailedFile, type FlakyFile, judgeFlaky, repeatFailed } from './lib/repeat.ts'
import { Reuse } from './lib/results/reuse.ts'
import { startBusyLoops } from './lib/starve.ts'
import { type Print, print, seconds } from './lib/terminal.ts'
import { timingOptions } from './lib/timings.ts'

const runTimeoutMs = 85 * 60_000
const checkTimeoutMs = 300_000
/** For the processes of a run that is interrupted, after SIGKILL. */
const stopMs = 10_000
const shownExcerpts = 20
const shownSlowest = 10
const builds = [
  { name: 'build strongroom-guest', argv: ['scripts/build-guest.ts'], timeoutMs: 300_000 },
  { name: 'build strongroom-builder', argv: ['scripts/build-builder.ts'], timeoutMs: 300_000 },
  { name: 'build strongroom-enclave', argv: ['scripts/build-enclave.ts'], timeoutMs: 300_000 },
  { name: 'build the instance image', argv: ['scripts/build-image.ts', 'instance'], timeoutMs: 1_500_000 },
  { name: 'build the builder image', argv: ['scripts/build-image.ts', 'builder'], timeoutMs: 1_500_000 },
  { name: 'build the inference image', argv: ['scripts/build-image.ts', 'inference'], timeoutMs: 900_000 },
  { name: 'build strongroom', argv: ['scripts/build-appliance.ts'], timeoutMs: 300_000 },
] as const

type Context = {
  readonly mark: string
  readonly reportsDir: string
  readonly endMs: number
  readonly seen: Seen
  readonly reuse: Reuse
}

/** Figures and flaky files that the end of the run shows. */
type Seen = {
  readonly fileTimes: Map<string, number>
  readonly phases: string[]
  readonly flaky: FlakyFile[]
}

/** `failed` has the results that `tally` leaves out. */
type PhaseResult = { readonly tally: Tally; readonly failed: readonly FailedFile[] }

const NO_FILES: PhaseResult = { tally: sumTallies([]), failed: [] }

const { values: flags, positionals: patterns } = parseArgs({
  allowPositionals: true,
  options: {
    'with-check': { type: 'boolean', default: false },
    list: { type: 'boolean', default: false },
    /** Runs the files beside busy loops. */
    starve: { type: 'boolean', default: false },
    /** Runs long series of cases whole (rigs/all.ts). */
    all: { type: 'boolean', default: false },
    /** Does not run a file that passed on this machine with the same inputs (lib/results). */
    reuse: { type: 'boolean', default: false },
    /** Another tree than this repository, for tests of this runner. */
    root: { type: 'string', default: resolve(import.meta.dir, '..') },
  },
})
const { root } = flags
/** A signal ends this run: nothing else starts. */
let isStopping = false

const files = testFiles(root, patterns)
if (flags.list) {
  for (const file of files) print(`${phaseOf(file)}  ${file}`)
  process.exit(0)
}
process.exit(await main())

async function main(): Promise<number> {
  const mark = crypto.randomUUID()
  const reportsDir = mkdtempSync(join(tmpdir(), 'srt-reports-'))
  const seen: Seen = { fileTimes: new Map(), phases: [], flaky: [] }
  const reuse = new Reuse(root, { isAll: flags.all, isReusing: flags.reuse, phases: files.map(phaseOf) })
  const context = { mark, reportsDir, endMs: performance.now() + runTimeoutMs, seen, reuse }
  const loops = flags.starve ? starve() : null
  const stop = () => void stopRun(context)
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, stop)
  const tallies: Tally[] = []
  try {
    tallies.push(...(await runAll(context)))
  } catch (error) {
    print(error instanceof Error ? (error.stack ?? error.message) : String(error))
    tallies.push(failure('the test runner itself failed'))
  }
  loops?.[Symbol.dispose]()
  await clearUp(context)
  const sum = sumTallies([...tallies, judgeFlaky(seen.flaky)])
  const total = sum.passed + sum.failed === 0 ? { ...sum, failed: 1, problems: ['no test ran'] } : sum
  print('')
  showFigures(seen)
  for (const line of reuse.summary()) print(line)
  // Once more below all the output: a log is often kept by its end alone.
  for (const excerpt of total.excerpts.slice(0, shownExcerpts)) print(`${excerpt}\n`)
  for (const failed of total.failedTests) print(`failed: ${failed}`)
  for (const problem of total.problems) print(`problem: ${problem}`)
  for (const { file, excerpts } of seen.flaky) {
    for (const excerpt of excerpts.slice(0, shownExcerpts)) print(`${excerpt}\n`)
    print(`flaky: ${file} failed as above and passed when repeated; add it to test/flaky.md`)
  }
  print(summaryLine(total))
  return total.failed === 0 ? 0 : 1
}

/** Ends every process of the run and removes what they made. A second signal waits for the same end. */
async function stopRun(context: Context): Promise<void> {
  if (isStopping) return
  isStopping = true
  print('interrupted')
  await endMarked(context.mark, stopMs)
  await clearUp(context)
  print('0 passed, 1 failed')
  process.exit(130)
}

async function clearUp({ mark, reportsDir }: Context): Promise<void> {
  for (const { thing, removed, why } of await clearLeftovers(mark)) {
    print(`left over: ${thing.kind} ${thing.name}: ${removed ? 'removed' : 'not removed'} (${why})`)
  }
  rmSync(reportsDir, { recursive: true, force: true })
}

function starve(): Disposable {
  const loops = startBusyLoops({ secondsMax: runTimeoutMs / 1000 })
  print(`${loops.pids.length} busy loops run beside the tests`)
  return loops
}

function showFigures({ fileTimes, phases }: Seen): void {
  for (const phase of phases) print(phase)
  const slowest = [...fileTimes].sort(([, a], [, b]) => b - a).slice(0, shownSlowest)
  for (const [file, durationMs] of slowest) print(`slowest: ${seconds(durationMs)}  ${file}`)
}

async function runAll(context: Context): Promise<Tally[]> {
  const tallies: Tally[] = []
  if (flags['with-check'])
    tallies.push(await runStep('check', ['scripts/check.ts', '--no-unit'], checkTimeoutMs, context))
  const buildFirst = files.some(file => PHASES[phaseOf(file)].needsBuild)
  let built = false
  for (const name of PHASE_NAMES) {
    const chosen = files.filter(file => phaseOf(file) === name)
    const isBuilding = buildFirst && name === BUILD_BESIDE
    if (PHASES[name].needsBuild && !built) {
      if (chosen.length > 0) tallies.push(failure(`${name}: ${chosen.length} files not run, the build failed`))
      continue
    }
    const [results, { tally, failed }] = await Promise.all([
      isBuilding ? runBuilds(context) : [],
      chosen.length > 0 ? runPhase(name, chosen, isBuilding, context) : NO_FILES,
    ])
    built ||= isBuilding && results.every(result => result.failed === 0)
    tallies.push(...results, tally, await repeatFiles(name, failed, context))
  }
  return tallies
}

/** Runs the failed files of a phase once more, one at a time, with the phase's time for all of them. */
async function repeatFiles(name: PhaseName, failed: readonly FailedFile[], context: Context): Promise<Tally> {
  if (failed.length === 0) return sumTallies([])
  print(`── ${name}: ${failed.length} failed files run once more`)
  const startedMs = performance.now()
  const { tally, flaky } = await repeatFailed(failed, async files => {
    const tallies: Tally[] = []
    for (const file of files) {
      const timeoutMs = PHASES[name].timeoutMs - (performance.now() - startedMs)
      if (timeoutMs <= 0) return null
      const { tally: again, failed: twice } = await runFiles(name, [file], { timeoutMs, isAlone: true }, context)
      tallies.push(again, ...twice.map(({ first }) => first))
    }
    return sumTallies(tallies)
  })
  context.seen.flaky.push(...flaky)
  print(`${seconds(performance.now() - startedMs)}  ${name}, repeated: ${summaryLine(tally)}`)
  return tally
}

async function runBuilds(context: Context): Promise<Tally[]> {
  const tallies: Tally[] = []
  for (const { name, argv, timeoutMs } of builds) {
    const tally = await runStep(name, argv, timeoutMs, context)
    tallies.push(tally)
    if (tally.failed > 0) break
  }
  return tallies
}

/** A script that must succeed and holds no tests of its own: nothing to count unless it fails. */
async function runStep(name: string, argv: readonly string[], timeoutMs: number, context: Context): Promise<Tally> {
  print(`── ${name}`)
  const result = await run([process.execPath, ...argv], timeoutMs, context)
  print(`${seconds(result.durationMs)}  ${name}${result.exitCode === 0 ? '' : ': FAILED'}`)
  if (result.exitCode === 0) {
    context.reuse.built(name, result.output)
    return sumTallies([])
  }
  return failure(
    `${name}: ${result.timedOut ? `not done after ${timeoutMs / 1000} s` : `exit status ${result.exitCode}`}`,
  )
}

async function runPhase(
  name: PhaseName,
  chosen: readonly string[],
  isBesideBuild: boolean,
  context: Context,
): Promise<PhaseResult> {
  const startedMs = performance.now()
  const phase = PHASES[name]
  print(`── ${name}: ${chosen.length} files`)
  const { run: toRun, kept } = context.reuse.divide(name, chosen)
  if (kept !== null) print(kept.line)
  const lanesEach = phase.filesEach === null ? 1 : phase.lanes
  const lanes = queuesOf(name, toRun).flatMap(queue => Array.from({ length: lanesEach }, () => queue))
  const isAlone = lanes.length === 1 && !isBesideBuild
  const results: PhaseResult[] = kept === null ? [] : [{ tally: kept.tally, failed: [] }]
  const notRun = (group: readonly string[]): PhaseResult => ({
    tally: failure(`${group.join(', ')}: not run, the ${name} phase has used its ${phase.timeoutMs / 1000} s`),
    failed: [],
  })
  const runLane = async (queue: string[][]) => {
    for (let group = queue.shift(); group !== undefined; group = queue.shift()) {
      const leftMs = phase.timeoutMs - (performance.now() - startedMs)
      results.push(leftMs > 0 ? await runFiles(name, group, { timeoutMs: leftMs, isAlone }, context) : notRun(group))
    }
  }
  const before = processorTimes()
  await Promise.all(lanes.map(runLane))
  const tally = sumTallies(results.map(result => result.tally))
  const failed = results.flatMap(result => result.failed)
  const busy = `processors ${busyPercent(before, processorTimes())} % busy`
  const once = failed.length === 0 ? '' : `, ${failed.length} files failed`
  const line = `${seconds(performance.now() - startedMs)}  ${name}: ${summaryLine(tally)}${once} (${busy})`
  print(line)
  context.seen.phases.push(line)
  return { tally, failed }
}

async function runFiles(
  name: PhaseName,
  group: readonly string[],
  { timeoutMs, isAlone }: { readonly timeoutMs: number; readonly isAlone: boolean },
  context: Context,
): Promise<PhaseResult> {
  const phase = PHASES[name]
  const reportPath = join(context.reportsDir, `${crypto.randomUUID()}.xml`)
  const workers = phase.filesEach === null && group.length > 1 ? workerOptions(phase.lanes, group) : []
  const argv = [
    process.execPath,
    'test',
    ...workers,
    `--timeout=${phase.testTimeoutMs}`,
    ...(flags.all && group.length > 1 ? ['--isolate'] : []),
    '--only-failures',
    '--reporter=junit',
    `--reporter-outfile=${reportPath}`,
    ...group.map(file => `./${file}`),
  ]
  // Files that run beside each other show their output at their end.
  if (!isAlone) print(`── ${group.join(', ')}`)
  const env = name === 'alone' || name === 'image' ? {} : MEMORY_KEPT
  const result = await run(argv, timeoutMs, context, { onLine: isAlone ? print : null, env })
  if (!isAlone) print(result.output)
  const report = readReport(reportPath)
  const judged: Run = { files: group, report, timeoutMs, ...result }
  const tally = judge(judged)
  const [only, ...others] = group
  const times = others.length === 0 ? [[only ?? '', result.durationMs] as const] : fileTimesOf(judged)
  for (const [file, durationMs] of times) context.seen.fileTimes.set(file, durationMs)
  for (const problem of tally.problems) print(`problem: ${problem}`)
  if (phase.filesEach !== null) {
    const times = `${seconds(result.durationMs)} (${seconds(result.cpuMs).trim()} of processors)`
    print(`${times}  ${group.join(', ')}: ${summaryLine(tally)}`)
  }
  // The runner hides what passing tests print, so say again why some did not run.
  if (tally.skipped > 0) for (const reason of new Set(skipReasonsOf(result.output))) print(`not run: ${reason}`)
  const failed = failedFilesOf(judged)
  if (tally.failed === 0 || failed.length > 0) context.reuse.keep(name, judged, failed.flat())
  if (failed.length === 0) return { tally, failed: [] }
  const first = (files: readonly string[]) =>
    judgeWithout(
      judged,
      group.filter(other => !files.includes(other)),
    )
  return { tally: judgeWithout(judged, failed.flat()), failed: failed.map(files => ({ files, first: first(files) })) }
}

/**
 * Files share the modules of their worker process; an exhaustive run isolates them, and so finds a file that passes
 * only beside another. A file that failed runs once more in a process of its own.
 */
function workerOptions(count: number, group: readonly string[]): string[] {
  const isolation = flags.all ? [] : ['--no-isolate']
  return [`--parallel=${count}`, ...isolation, ...timingOptions(root, group)]
}

/** A child of this run, bounded by its own time and by the whole run's; after a timeout nothing of it stays alive. */
async function run(
  argv: readonly string[],
  timeoutMs: number,
  context: Context,
  {
    onLine = print,
    env = {},
  }: { readonly onLine?: Print | null; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<CommandResult> {
  if (isStopping) return new Promise(() => {})
  const leftMs = Math.max(1, context.endMs - performance.now())
  const mark = `${context.mark}.${crypto.randomUUID()}`
  const result = await runCommand(argv, {
    cwd: root,
    timeoutMs: Math.min(timeoutMs, leftMs),
    env: { ...env, [runMarkVariable]: mark, STRONGROOM_TEST_ALL: flags.all ? '1' : '' },
    ...(onLine === null ? {} : { onLine }),
  })
  if (result.timedOut) killMarked(mark)
  return result
}

function readReport(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}

function failure(problem: string): Tally {
  return { passed: 0, failed: 1, skipped: 0, failedTests: [], problems: [problem], excerpts: [] }
}
