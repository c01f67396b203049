import { describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import {
  excerptsOf,
  failedFilesOf,
  fileTimesOf,
  judge,
  judgeWithout,
  type Run,
  skipReasonsOf,
  summaryLine,
  sumTallies,
  testCasesOf,
} from '../../../scripts/lib/junit.ts'
import { reasonToKeep } from '../../../scripts/lib/leftovers.ts'
import { busyPercent } from '../../../scripts/lib/machine.ts'
import {
  BUILD_BESIDE,
  groupsOf,
  inOrder,
  MOSTLY_WAITING,
  PHASE_NAMES,
  PHASES,
  phaseOf,
  queuesOf,
  STARTS_FIRST,
  testFiles,
} from '../../../scripts/lib/phases.ts'

const report = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="bun test" tests="4" failures="1" skipped="1">
  <testsuite name="test/a.test.ts" file="test/a.test.ts" tests="4">
    <testcase name="1 &lt; 2 &amp;&quot;&#10;" classname="" time="0.5" file="test/a.test.ts" line="2" assertions="1" />
    <testsuite name="d" file="test/a.test.ts" line="5">
      <testcase name="in" classname="d" time="0" file="test/a.test.ts"><skipped message="later" /></testcase>
      <testcase name="bad > x" classname="d" time="0" file="test/a.test.ts">
        <failure type="Error" message="a > b">text &lt;testcase /&gt;</failure>
      </testcase>
    </testsuite>
    <testcase name="last" classname="" time="0" file="test/a.test.ts" />
  </testsuite>
</testsuites>`
const passed = '<testsuites><testcase name="a" classname="" time="0" file="test/a.test.ts" /></testsuites>'
const good: Run = {
  files: ['test/a.test.ts'],
  report: passed,
  exitCode: 0,
  timedOut: false,
  timeoutMs: 1000,
  output: '',
}

// Goal: every test of a report is read once, with its outcome, whatever characters its name has.
test('testCasesOf', () => {
  expect(testCasesOf(report).map(({ name, outcome, durationMs }) => [name, outcome, durationMs])).toEqual([
    ['1 < 2 &"\n', 'passed', 500],
    ['d > in', 'skipped', 0],
    ['d > bad > x', 'failed', 0],
    ['last', 'passed', 0],
  ])
})

// Goal: the end of a run says again why each test failed, a test that took too long included, and nothing of others.
test('excerptsOf', () => {
  const long = Array.from({ length: 100 }, (_, at) => `line ${at}`)
  const output = [
    ...['a.test.ts:', 'error: one', '\u001b[31m(fail)\u001b[0m bad [0.2ms]', 'of a good test', '(pass) good'],
    ...['(fail) late [100ms]', '  ^ this test timed out after 100ms.', ...long, '(fail) long', '', ' 3 fail'],
  ]
  expect(excerptsOf(output.join('\n'))).toEqual([
    'a.test.ts:\nerror: one\n(fail) bad [0.2ms]',
    '(fail) late [100ms]\n  ^ this test timed out after 100ms.',
    [...long.slice(-39), '(fail) long'].join('\n'),
  ])
})

describe('judge', () => {
  // Goal: a clean run counts its tests and nothing else.
  test('a clean run', () =>
    expect(judge(good)).toEqual({ passed: 1, failed: 0, skipped: 0, failedTests: [], problems: [], excerpts: [] }))

  // Goal: no way to end without having tested passes for success.
  test.each([
    ['no report', { report: null }, 0, 1],
    ['no report after a timeout', { report: null, timedOut: true, exitCode: null }, 0, 1],
    ['a report, then a timeout', { timedOut: true, exitCode: null }, 1, 1],
    ['a file without a test', { files: ['test/a.test.ts', 'test/b.test.ts'] }, 1, 1],
    ['a file that did not load', { files: ['test/a.test.ts', 'test/b.test.ts'], exitCode: 1 }, 1, 1],
    ['an error after the last test', { exitCode: 1 }, 1, 1],
    ['death by a signal', { exitCode: null }, 1, 1],
    ['a failed test', { report, exitCode: 1, output: 'not run: needs root' }, 2, 1],
    ['a skip without a reason', { report, exitCode: 1 }, 2, 2],
  ])('%s', (_name, change, passed, failed) => {
    expect(judge({ ...good, ...change })).toMatchObject({ passed, failed })
  })

  // Goal: a failure belongs to its file where the report says so, and else to all files of a small process; a larger
  // one is not repeated.
  test('files that failed', () => {
    const [a, b] = ['test/a.test.ts', 'test/b.test.ts']
    const suite = (file: string, inner: string) =>
      `<testcase name="of ${file}" classname="" time="0.25" file="${file}">${inner}</testcase>`
    const reportOf = (...suites: string[]) => `<testsuites>${suites.join('')}</testsuites>`
    const bad = '<failure type="Error" message="no &lt;luck&gt;">text</failure>'
    const two = { ...good, files: [a, b], exitCode: 1, report: reportOf(suite(a, ''), suite(b, bad)) }
    expect(failedFilesOf(two)).toEqual([[b]])
    expect(judgeWithout(two, [b])).toMatchObject({ passed: 1, failed: 0 })
    expect(judgeWithout(two, [a])).toMatchObject({ passed: 0, failed: 1, excerpts: [`(fail) of ${b}\nno <luck>`] })
    expect(fileTimesOf(two)).toEqual(
      new Map([
        [a, 250],
        [b, 250],
      ]),
    )
    expect(failedFilesOf({ ...two, exitCode: 0, report: reportOf(suite(a, ''), suite(b, '')) })).toEqual([])
    expect(failedFilesOf({ ...two, report: reportOf(suite(a, '')) })).toEqual([[b]])
    const stray = '\n\x1b[31m# Unhandled error between tests\x1b[0m\n-----\nerror: late\n'
    expect(judge({ ...two, output: stray }).problems).toEqual(['an error outside of every test'])
    for (const whole of [{ report: null }, { report: reportOf(suite(a, ''), suite(b, '')) }, { output: stray }]) {
      expect(failedFilesOf({ ...two, ...whole })).toEqual([[a, b]])
    }
    const many = Array.from({ length: 9 }, (_, at) => `test/${at}.test.ts`)
    expect(failedFilesOf({ ...two, files: many, report: null })).toEqual([])
    expect(failedFilesOf({ ...two, timedOut: true })).toEqual([])
    expect(failedFilesOf({ ...good, report: null })).toEqual([[a]])
    expect(failedFilesOf(good)).toEqual([])
  })

  // Goal: whoever reads only the end of a run knows what failed.
  test('names the tests that failed', () => {
    expect(judge({ ...good, report, exitCode: 1 }).failedTests).toEqual(['test/a.test.ts: d > bad > x'])
  })

  // Goal: the report of Bun itself is what we take it for, also when a file does not load or ends the process.
  test('real runs', () => {
    const dir = mkdtempSync(join(tmpdir(), 'srt-junit-'))
    const runs = {
      'a.test.ts': "import { test } from 'bun:test'\ntest('a', () => {})\ntest('b', () => { throw new Error('c') })",
      'b.test.ts': "import './nowhere.ts'",
      'c.test.ts': "import { test } from 'bun:test'\ntest('a', () => process.exit(0))",
    }
    try {
      const judged = Object.entries(runs).map(([file, text]) => {
        writeFileSync(join(dir, file), text)
        const path = join(dir, `${file}.xml`)
        const argv = [process.execPath, 'test', '--reporter=junit', `--reporter-outfile=${path}`, `./${file}`]
        const { exitCode } = Bun.spawnSync(argv, { cwd: dir, stdout: 'ignore', stderr: 'ignore' })
        return judge({ ...good, files: [file], exitCode, report: readReport(path) })
      })
      expect(judged.map(({ passed, failed }) => [passed, failed])).toEqual([
        [1, 1],
        [0, 1],
        [0, 1],
      ])
    } finally {
      rmSync(dir, { recursive: true })
    }
  })
})

// Goal: the closing line has exactly the form that readers of it expect.
test('summaryLine', () => {
  const sum = sumTallies([
    judge(good),
    { passed: 3, failed: 1, skipped: 2, failedTests: [], problems: ['a'], excerpts: [] },
  ])
  expect(summaryLine(sum)).toBe('4 passed, 1 failed, 2 skipped')
  expect(summaryLine(sumTallies([]))).toBe('0 passed, 0 failed')
})

// Goal: only whole lines give a reason.
test('skipReasonsOf', () => {
  expect(skipReasonsOf('not run: needs root\nnot run:\nwas not run: no\nnot run: b')).toEqual(['needs root', 'b'])
})

// Goal: each suffix has its phase; `alone` runs one file at a time, those that share processors two or three.
test('phaseOf', () => {
  const files = [
    'test/base/a.test.ts',
    'test/host/a.slow.test.ts',
    'test/host/a.alone.test.ts',
    'test/vm/a.root.test.ts',
    'test/e2e/a.image.test.ts',
  ]
  expect(files.map(phaseOf)).toEqual([...PHASE_NAMES])
  expect(PHASE_NAMES.map(name => PHASES[name].lanes)).toEqual([availableParallelism() + 1, 6, 1, 3, 3])
  expect(PHASE_NAMES.map(name => PHASES[name].filesEach)).toEqual([null, 8, 1, 1, 1])
  // Built files must exist before a phase needs them.
  const needing = PHASE_NAMES.filter(name => PHASES[name].needsBuild)
  expect(Math.min(...needing.map(name => PHASE_NAMES.indexOf(name)))).toBeGreaterThan(PHASE_NAMES.indexOf(BUILD_BESIDE))
  expect(BUILD_BESIDE).not.toBe('alone')
})

// Goal: the figure behind the choice of lanes is the share of time that the processors had work.
test('busyPercent', () => {
  const idle = { busyMs: 1_000, allMs: 4_000 }
  expect(busyPercent(idle, { busyMs: 1_150, allMs: 4_200 })).toBe(75)
  expect([busyPercent(idle, { busyMs: 1_200, allMs: 4_200 }), busyPercent(idle, idle)]).toEqual([100, 0])
})

// Goal: the longest files start first, none is lost, and the list names existing files that share lanes.
test('inOrder', () => {
  const all = testFiles(resolve(import.meta.dir, '../../..'))
  expect(inOrder(all).slice(0, STARTS_FIRST.length)).toEqual([...STARTS_FIRST])
  expect(inOrder(all).toSorted()).toEqual(all)
  expect(inOrder(['test/b.test.ts', STARTS_FIRST[1] ?? '', 'test/a.test.ts', STARTS_FIRST[0] ?? ''])).toEqual([
    ...STARTS_FIRST.slice(0, 2),
    'test/b.test.ts',
    'test/a.test.ts',
  ])
  expect(STARTS_FIRST.filter(file => PHASES[phaseOf(file)].lanes === 1)).toEqual([])
})

// Goal: slow files of one room share processes, eight at most; the longest have one each; no other phase groups files.
test('groupsOf', () => {
  const rooms = (room: string, count: number) =>
    Array.from({ length: count }, (_, at) => `test/${room}/${String(at).padStart(2, '0')}.slow.test.ts`)
  const long = 'test/builds/fleet.slow.test.ts'
  expect(STARTS_FIRST).toContain(long)
  const files = [...rooms('attest', 9), long, ...rooms('client', 2)]
  expect(groupsOf('slow', files)).toEqual([[long], rooms('attest', 8), rooms('attest', 9).slice(8), rooms('client', 2)])
  expect(groupsOf('root', ['test/a/a.root.test.ts', 'test/a/b.root.test.ts'])).toEqual([
    ['test/a/a.root.test.ts'],
    ['test/a/b.root.test.ts'],
  ])
  expect([groupsOf('unit', ['test/a.test.ts', 'test/b.test.ts']), groupsOf('unit', []), groupsOf('slow', [])]).toEqual([
    [['test/a.test.ts', 'test/b.test.ts']],
    [],
    [],
  ])
})

// Goal: the files of a phase that mostly wait have a separate queue, and the list names real files of that phase.
test('queuesOf', () => {
  const files = testFiles(resolve(import.meta.dir, '../../..'))
  const expected = [
    'test/enclave-host/hostile-vm.alone.test.ts',
    'test/host/network/nft-watch.alone.test.ts',
    'test/inference/upstream/neighbours.alone.test.ts',
  ]
  expect([MOSTLY_WAITING, expected.filter(file => !files.includes(file))]).toEqual([expected, []])
  const own = files.filter(file => phaseOf(file) === 'alone')
  const [others, waiting, ...more] = queuesOf('alone', own)
  expect([waiting?.flat().toSorted(), more]).toEqual([expected, []])
  expect(others?.flat().toSorted()).toEqual(own.filter(file => !expected.includes(file)).toSorted())
  expect([queuesOf('slow', ['test/a/a.slow.test.ts']), queuesOf('root', [])]).toEqual([
    [[['test/a/a.slow.test.ts']]],
    [],
  ])
})

// Goal: a cleanup never takes what another run may be using; only the names of processes that have ended may go.
test('reasonToKeep', () => {
  const names = ['srt-70-1', 'srt-71-1', 'srt_71_nft', 'srt-701-1', 'srt-x1', 'srt-71']
  expect(names.filter(name => reasonToKeep(name, new Set([70])) === null)).toEqual([
    'srt-71-1',
    'srt_71_nft',
    'srt-701-1',
  ])
})

function readReport(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}
