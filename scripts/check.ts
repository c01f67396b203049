// Everything that can be checked in under a minute, without root and without VMs: `bun run check`.
// Prints one line for each step with its time, and the output of steps that fail. Exit status 1 on any failure.
//
// The unit tests are those of the unit phase (lib/phases.ts): every test without a suffix that says it is slow or needs
// root, built images or VMs. The rules about the tree itself, test/meta, are a step of their own.
//
// Test files share the modules of their worker process (`--no-isolate`), which saves a fifth of the processors' time;
// `scripts/test --all` runs the same files isolated. Results of the last type check and durations of test files are
// reused.

import { existsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { runCommand } from './lib/command.ts'
import { MEMORY_KEPT, phaseOf, testFiles } from './lib/phases.ts'
import { print, seconds } from './lib/terminal.ts'
import { cacheDirOf, timingOptions } from './lib/timings.ts'

type Check = { readonly name: string; readonly argv: readonly string[]; readonly timeoutMs: number }

const root = resolve(import.meta.dir, '..')
const cacheDir = cacheDirOf(root)
const { values: flags } = parseArgs({ options: { 'no-unit': { type: 'boolean', default: false } } })

const startedMs = performance.now()
const failed = await runChecks(checks())
const verdict = failed.length === 0 ? 'all checks passed' : `FAILED: ${failed.join(', ')}`
print(`${seconds(performance.now() - startedMs)}  ${verdict}`)
process.exit(failed.length === 0 ? 0 : 1)

/** The longest first, so that none of them runs alone at the end. */
function checks(): Check[] {
  const bun = process.execPath
  const tsc = [bun, 'node_modules/typescript/bin/tsc', '--pretty', 'false']
  const biome = [bun, 'node_modules/@biomejs/biome/bin/biome', 'check', '--error-on-warnings']
  const types = ['--project', '.', '--incremental', '--tsBuildInfoFile', resolve(cacheDir, 'types.tsbuildinfo')]
  const unit = testFiles(root).filter(file => phaseOf(file) === 'unit')
  const meta = unit.filter(file => file.startsWith('test/meta/'))
  const rest = unit.filter(file => !meta.includes(file))
  const folders = ['src/attest', 'src/verifier', 'src/verifier/fetch', 'src/console/web'].filter(folder =>
    existsSync(resolve(root, folder, 'tsconfig.json')),
  )
  return [
    ...(flags['no-unit'] || rest.length === 0
      ? []
      : // Now and then a test waits.
        [{ name: 'unit tests', argv: testArgv(rest, availableParallelism() + 1), timeoutMs: 300_000 }]),
    { name: 'types', argv: [...tsc, ...types], timeoutMs: 300_000 },
    {
      name: 'format and lint',
      argv: [...biome, '--diagnostic-level=warn', '--max-diagnostics=50', '.'],
      timeoutMs: 300_000,
    },
    { name: 'layers, sizes, hygiene', argv: testArgv(meta, 1), timeoutMs: 300_000 },
    ...folders.map(folder => ({
      name: `types of ${folder} alone`,
      argv: [...tsc, '--project', folder],
      timeoutMs: 300_000,
    })),
    { name: 'OpenAPI drift', argv: [bun, 'scripts/openapi.ts', '--check'], timeoutMs: 300_000 },
  ]
}

function testArgv(files: readonly string[], workers: number): string[] {
  const options = [`--parallel=${workers}`, '--no-isolate', '--timeout=20000', '--only-failures']
  return [
    process.execPath,
    'test',
    ...options,
    ...(workers > 1 ? timingOptions(root, files) : []),
    ...files.map(file => `./${file}`),
  ]
}

/** Runs as many at a time as there are processors. Returns the names of those that failed. */
async function runChecks(queue: Check[]): Promise<string[]> {
  const failures: string[] = []
  const worker = async () => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      const { name, argv, timeoutMs } = next
      const result = await runCommand(argv, { timeoutMs, cwd: root, env: { ...MEMORY_KEPT, NO_COLOR: '1' } })
      if (result.exitCode === 0) {
        print(`${seconds(result.durationMs)}  ${name}`)
        continue
      }
      failures.push(name)
      const why = result.timedOut ? `not done after ${timeoutMs / 1000} s` : `exit status ${result.exitCode}`
      print(`${seconds(result.durationMs)}  ${name}: FAILED, ${why}\n${result.output}`)
    }
  }
  await Promise.all(Array.from({ length: availableParallelism() }, worker))
  return failures
}
