// Everything that can be checked in under a minute, without root and without VMs: `bun run check`. One line for each
// step with its time; the output of a step only when it fails. Exit status 1 on any failure.
//
// The unit tests here are those of the unit phase (lib/phases.ts): every test without a suffix that says it is slow or
// needs root, built images or VMs. The rules about the tree itself, test/meta, are a step of their own.

import { existsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { runCommand } from './lib/command.ts'
import { phaseOf, testFiles } from './lib/phases.ts'
import { print, seconds } from './lib/terminal.ts'

type Check = { readonly name: string; readonly argv: readonly string[]; readonly timeoutMs: number }

const root = resolve(import.meta.dir, '..')
const { values: flags } = parseArgs({ options: { 'no-unit': { type: 'boolean', default: false } } })

const startedMs = performance.now()
const failed = await runChecks(checks())
const verdict = failed.length === 0 ? 'all checks passed' : `FAILED: ${failed.join(', ')}`
print(`${seconds(performance.now() - startedMs)}  ${verdict}`)
process.exit(failed.length === 0 ? 0 : 1)

function checks(): Check[] {
  const bun = process.execPath
  const tsc = [bun, 'node_modules/typescript/bin/tsc', '--pretty', 'false']
  const all: Check[] = [
    {
      name: 'format and lint',
      argv: [
        bun,
        'node_modules/@biomejs/biome/bin/biome',
        'check',
        '--error-on-warnings',
        '--diagnostic-level=warn',
        '--max-diagnostics=50',
        '.',
      ],
      timeoutMs: 60_000,
    },
    { name: 'types', argv: [...tsc, '--project', '.'], timeoutMs: 120_000 },
  ]
  for (const folder of ['src/attest', 'src/verifier', 'src/verifier/fetch']) {
    if (!existsSync(resolve(root, folder, 'tsconfig.json'))) continue
    all.push({ name: `types of ${folder} alone`, argv: [...tsc, '--project', folder], timeoutMs: 60_000 })
  }
  const unit = testFiles(root).filter(file => phaseOf(file) === 'unit')
  const meta = unit.filter(file => file.startsWith('test/meta/'))
  all.push({ name: 'layers, sizes, hygiene', argv: testArgv(meta, 1), timeoutMs: 60_000 })
  all.push({ name: 'OpenAPI drift', argv: [bun, 'scripts/openapi.ts', '--check'], timeoutMs: 60_000 })
  const rest = unit.filter(file => !meta.includes(file))
  if (!flags['no-unit'] && rest.length > 0) {
    // Now and then a test waits.
    all.push({ name: 'unit tests', argv: testArgv(rest, availableParallelism() + 1), timeoutMs: 120_000 })
  }
  return all
}

function testArgv(files: readonly string[], workers: number): string[] {
  const paths = files.map(file => `./${file}`)
  return [process.execPath, 'test', `--parallel=${workers}`, '--timeout=20000', '--only-failures', ...paths]
}

/** Runs as many at a time as there are processors. Returns the names of those that failed. */
async function runChecks(queue: Check[]): Promise<string[]> {
  const failures: string[] = []
  const worker = async () => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      const { name, argv, timeoutMs } = next
      const result = await runCommand(argv, { timeoutMs, cwd: root, env: { NO_COLOR: '1' } })
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
