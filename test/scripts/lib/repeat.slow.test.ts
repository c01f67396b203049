// Goal: a test file that fails by chance costs one more run of it, and a file that fails fails the run.

import { afterAll, describe, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { startBusyLoops } from '../../../scripts/lib/starve.ts'
import { until } from '../../../scripts/rigs/until.ts'

const directory = mkdtempSync(join(tmpdir(), 'srt-repeat-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))
const runner = resolve(import.meta.dir, '../../../scripts/test.ts')

/** Fails at its first run, of which it leaves a mark, and passes from then on. */
function failingOnce(root: string, name: string): string {
  const mark = JSON.stringify(join(root, `${name}.ran`))
  return `import { existsSync, writeFileSync } from 'node:fs'
    import { test } from 'bun:test'
    test('holds', () => {})
    test('${name} by chance', () => {
      if (existsSync(${mark})) return
      writeFileSync(${mark}, '')
      throw new Error('chance of ${name}')
    })`
}

const passing = "import { test } from 'bun:test'\ntest('a', () => {})\ntest('b', () => {})"
const failing = "import { test } from 'bun:test'\ntest('a', () => {})\ntest('bad', () => { throw new Error('always') })"

/** Runs the runner on a tree of these test files. */
async function runTree(name: string, fileOf: (root: string) => Readonly<Record<string, string>>, ...flags: string[]) {
  const root = join(directory, name)
  mkdirSync(join(root, 'test'), { recursive: true })
  for (const [file, text] of Object.entries(fileOf(root))) writeFileSync(join(root, 'test', file), text)
  const argv = [process.execPath, runner, '--root', root, ...flags]
  const env = { ...process.env, STRONGROOM_CACHE: join(directory, 'cache') }
  const child = Bun.spawn(argv, { cwd: root, env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
  const [output, code] = await Promise.all([child.stdout.text(), child.exited])
  const lines = output.trimEnd().split('\n')
  return { code, lines, last: lines.at(-1), output, flaky: lines.filter(line => line.startsWith('flaky: ')) }
}

describe.each([
  ['unit', '.test.ts'],
  ['slow', '.slow.test.ts'],
])('in the %s phase', (phase, suffix) => {
  test('goal: a file that fails once passes by its second run, and is named with its first failure', async () => {
    const run = await runTree(`once-${phase}`, root => ({
      [`good${suffix}`]: passing,
      [`once${suffix}`]: failingOnce(root, 'once'),
    }))
    expect([run.code, run.last]).toEqual([0, '4 passed, 0 failed'])
    expect(run.flaky).toEqual([
      `flaky: test/once${suffix} failed as above and passed when repeated; add it to test/flaky.md`,
    ])
    const end = run.lines.slice(run.lines.lastIndexOf('')).join('\n')
    expect(end).not.toContain('failed: ')
    expect(run.output.slice(run.output.indexOf('slowest: '))).toContain('chance of once')
    expect(
      run.lines
        .filter(line => line.startsWith('slowest: '))
        .map(line => line.split('  ').at(-1))
        .sort(),
    ).toEqual([`test/good${suffix}`, `test/once${suffix}`])
    expect(run.output).toMatch(new RegExp(`${phase}: 2 passed, 0 failed, 1 files failed \\(processors \\d+ % busy\\)`))
  }, 120_000)

  test('goal: a file that fails twice fails the run, and its second run counts', async () => {
    const run = await runTree(`always-${phase}`, () => ({ [`good${suffix}`]: passing, [`bad${suffix}`]: failing }))
    expect([run.code, run.last, run.flaky]).toEqual([1, '3 passed, 1 failed', []])
    expect(run.lines).toContain(`failed: test/bad${suffix}: bad`)
  }, 120_000)

  test('goal: a file that does not load, or ends its process, runs again and fails', async () => {
    const run = await runTree(`broken-${phase}`, () => ({
      [`good${suffix}`]: passing,
      [`unloaded${suffix}`]: "import './nowhere.ts'",
    }))
    expect([run.code, run.last, run.flaky]).toEqual([1, '2 passed, 1 failed', []])
  }, 120_000)
})

test('goal: three flaky files pass, and a fourth fails the run', async () => {
  const trees = (count: number) => (root: string) =>
    Object.fromEntries(Array.from({ length: count }, (_, at) => [`f${at}.test.ts`, failingOnce(root, `f${at}`)]))
  const three = await runTree('three', trees(3))
  expect([three.code, three.last, three.flaky.length]).toEqual([0, '6 passed, 0 failed', 3])
  const four = await runTree('four', trees(4))
  expect([four.code, four.last, four.flaky.length]).toEqual([1, '8 passed, 1 failed', 4])
  expect(four.lines).toContain('problem: 4 files failed and passed when repeated; a run may have 3 of them')
}, 120_000)

test('goal: with --reuse a file that passed runs again only when what it reads has changed, or when it did not pass', async () => {
  const own = (body: string) => `import { test } from 'bun:test'\nimport './rig.ts'\n${body}`
  const files = (rig: string, bad: string) => () => ({
    'rig.ts': rig,
    'a.test.ts': passing,
    'b.slow.test.ts': own("test('b', () => {})\ntest('c', () => {})"),
    'd.slow.test.ts': own(`test('d', () => { ${bad} })`),
    'e.slow.test.ts': passing,
  })
  const before = '// One.'
  const changed = 'export const two = 2'
  const throwing = "throw new Error('bad')"
  expect((await runTree('reuse', files(before, throwing))).last).toBe('6 passed, 1 failed')
  // The file that failed has no result.
  const again = await runTree('reuse', files(before, throwing), '--reuse')
  expect(again.last).toBe('2 passed, 1 failed, 4 skipped')
  expect(again.output).toMatch(/^not run again: 2 files, 4 tests; they passed here with the same inputs since 20\d\d-/m)
  expect((await runTree('reuse', files(before, ''), '--reuse')).last).toBe('3 passed, 0 failed, 4 skipped')
  // A comment in what a test reads changes nothing that the test could see. Unit tests run each time.
  expect((await runTree('reuse', files('// Two.', ''), '--reuse')).last).toBe('2 passed, 0 failed, 5 skipped')
  expect((await runTree('reuse', files(changed, ''), '--reuse')).last).toBe('5 passed, 0 failed, 2 skipped')
  // Nothing is left out without the flag.
  expect((await runTree('reuse', files(changed, ''))).last).toBe('7 passed, 0 failed')
}, 300_000)

test('goal: a run during which somebody writes to the tree leaves no result', async () => {
  const writing = (root: string) => `import { writeFileSync } from 'node:fs'
    import { test } from 'bun:test'
    test('a', () => writeFileSync(${JSON.stringify(join(root, 'test/other.ts'))}, String(performance.now())))`
  const tree = (root: string) => ({ 'a.slow.test.ts': writing(root), 'other.ts': '' })
  expect((await runTree('written', tree)).last).toBe('1 passed, 0 failed')
  expect((await runTree('written', tree, '--reuse')).last).toBe('1 passed, 0 failed')
}, 120_000)

test('goal: with --starve busy loops run beside the tests, and none is left after them', async () => {
  const seen = join(directory, 'loops')
  const counting = `import { writeFileSync } from 'node:fs'
    import { test } from 'bun:test'
    test('a', () => {
      const { stdout } = Bun.spawnSync(['pgrep', '--parent', String(process.ppid), '--exact', 'timeout'])
      writeFileSync(${JSON.stringify(seen)}, stdout.toString())
    })`
  const run = await runTree('starve', () => ({ 'a.slow.test.ts': counting }), '--starve')
  expect([run.code, run.last]).toEqual([0, '1 passed, 0 failed'])
  const pids = readFileSync(seen, 'utf8').trim().split('\n')
  expect(pids.length).toBe(4 * navigator.hardwareConcurrency)
  await until('the loops have ended', 60_000, () => pids.every(pid => !existsSync(`/proc/${pid}`)))
}, 120_000)

test('goal: busy loops end with the process that they are for', async () => {
  const watched = Bun.spawn(['sleep', '600'])
  const loops = startBusyLoops({ count: 2, watchedPid: watched.pid, secondsMax: 600 })
  try {
    expect(loops.pids.filter(pid => existsSync(`/proc/${pid}`))).toHaveLength(2)
    watched.kill('SIGKILL')
    await watched.exited
    await until('the loops have ended', 60_000, () => loops.pids.every(pid => !existsSync(`/proc/${pid}`)))
  } finally {
    loops[Symbol.dispose]()
    watched.kill('SIGKILL')
  }
}, 120_000)
