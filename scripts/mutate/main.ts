// Mutation testing: puts small faults into pure modules, runs their unit tests, and lists the faults that no test saw.
// Usage: bun run mutate [ROOM…] [--sample 300] [--seed 1] [--lanes 2] [--file PATH]. Without a room: all of them.
// The exit status is 1 when a room has less than 90 % of its mutants found.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { runCommand } from '../lib/command.ts'
import { print } from '../lib/terminal.ts'
import { getsMutants, importsOf, ROOMS, sampled, testsFor } from './choose.plan.ts'
import { type Mutant, mutantsOf, withMutant } from './mutants.ts'
import { mutantPathVariable, mutatedPathVariable } from './preload.ts'

const root = resolve(import.meta.dir, '../..')
const foundShareMin = 0.9
/** A mutant may loop for ever: its tests get this much more time than without it. */
const slowerTimes = 5
const slowerMs = 10_000
const cleanTimeoutMs = 300_000
/** For one test without a fault, on a busy machine too. */
const testTimeoutMs = 120_000

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    sample: { type: 'string', default: '300' },
    seed: { type: 'string', default: '1' },
    lanes: { type: 'string', default: '2' },
    file: { type: 'string' },
  },
})

type Candidate = {
  readonly path: string
  readonly source: string
  readonly tests: readonly string[]
  readonly mutant: Mutant
}
type Room = {
  readonly name: string
  readonly found: number
  readonly all: number
  readonly survivors: readonly string[]
}

const directory = mkdtempSync(join(tmpdir(), 'strongroom-mutate-'))
const imports = new Map(
  [...new Bun.Glob('{src,test,scripts}/**/*.{ts,tsx}').scanSync({ cwd: root })].map(path => [
    path,
    importsOf(path, read(path)),
  ]),
)
/** How long the tests of a file take without a fault. A failure without one says nothing of mutants. */
const cleanMs = new Map<string, Promise<number>>()

const names = flags.file === undefined ? (positionals.length > 0 ? positionals : ROOMS) : [flags.file]
const rooms: Room[] = []
try {
  for (const name of names) rooms.push(await testRoom(name))
} finally {
  rmSync(directory, { recursive: true, force: true })
}
print('')
for (const { name, found, all } of rooms) {
  print(`${percent(found, all).padStart(6)}  ${String(found).padStart(4)} of ${String(all).padStart(4)} found  ${name}`)
}
process.exit(rooms.every(({ found, all }) => all > 0 && found >= foundShareMin * all) ? 0 : 1)

async function testRoom(name: string): Promise<Room> {
  const candidates = sampled(candidatesOf(name), Number(flags.sample), Number(flags.seed))
  print(`── ${name}: ${candidates.length} mutants`)
  const survivors: string[] = []
  const waiting = [...candidates]
  const lane = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const end = await endOf(next)
      if (end === 'found') continue
      survivors.push(lineOf(next, end))
      print(survivors.at(-1) ?? '')
    }
  }
  await Promise.all(Array.from({ length: Number(flags.lanes) }, lane))
  return { name, found: candidates.length - survivors.length, all: candidates.length, survivors }
}

function candidatesOf(name: string): Candidate[] {
  const pattern = flags.file === undefined ? `src/${name}/**/*.ts` : name
  const paths = [...new Bun.Glob(pattern).scanSync({ cwd: root })].sort()
  return paths.flatMap(path => {
    const source = read(path)
    if (flags.file === undefined && !getsMutants(path, source)) return []
    const tests = testsFor(path, imports)
    return mutantsOf(source, path).map(mutant => ({ path, source, tests, mutant }))
  })
}

async function endOf({ path, source, tests, mutant }: Candidate): Promise<'found' | 'survived' | 'has no test'> {
  if (tests.length === 0) return 'has no test'
  const key = tests.join(' ')
  const known =
    cleanMs.get(key) ??
    runTests(tests, {}, cleanTimeoutMs).then(({ exitCode, durationMs, output }) => {
      if (exitCode !== 0) throw new Error(`these tests fail without a mutant: ${key}\n${output}`)
      return durationMs
    })
  cleanMs.set(key, known)
  const tookMs = await known
  const mutantPath = join(directory, `${crypto.randomUUID()}-${basename(path)}`)
  writeFileSync(mutantPath, withMutant(source, mutant))
  const env = { [mutatedPathVariable]: resolve(root, path), [mutantPathVariable]: mutantPath }
  const { exitCode } = await runTests(tests, env, slowerTimes * tookMs + slowerMs)
  rmSync(mutantPath)
  return exitCode === 0 ? 'survived' : 'found'
}

function runTests(tests: readonly string[], env: Record<string, string>, timeoutMs: number) {
  const preload = `--preload=${resolve(import.meta.dir, 'preload.ts')}`
  const options = [preload, `--timeout=${testTimeoutMs}`, '--bail', '--only-failures']
  const argv = [process.execPath, 'test', ...options, ...tests.map(test => `./${test}`)]
  return runCommand(argv, { cwd: root, env, timeoutMs })
}

function lineOf({ path, source, mutant }: Candidate, end: string): string {
  const before = source.slice(mutant.start, mutant.end).split('\n')[0]
  return `${end}: ${path}:${mutant.line}: ${mutant.kind}: ${before} → ${mutant.replacement.split('\n')[0]}`
}

function percent(found: number, all: number): string {
  return all === 0 ? '–' : `${((found / all) * 100).toFixed(1)} %`
}

function read(path: string): string {
  return readFileSync(resolve(root, path), 'utf8')
}
