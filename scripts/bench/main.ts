// `bun run bench NAME [--json]`: runs scripts/bench/NAME.bench.ts and prints its figures beside their aims. With
// --json standard output is one object and nothing else. Exit status: 0, 1 when the benchmark failed, 2 on wrong
// usage. A missed aim is no failure: the figures say so.

import { basename } from 'node:path'
import { machineFacts } from '../lib/machine.ts'
import { type Print, print, printError } from '../lib/terminal.ts'
import { type Figures, reportLines, reportOf } from './bench-report.ts'

export type BenchContext = {
  readonly repoRoot: string
  /** Progress, on standard error. */
  readonly note: Print
  /** Aborts on SIGINT and SIGTERM; undo what was made and return. */
  readonly signal: AbortSignal
}

export type Bench = (context: BenchContext) => Promise<Figures>

const suffix = '.bench.ts'

if (import.meta.main) process.exit(await main(process.argv.slice(2)))

async function main(argv: readonly string[]): Promise<number> {
  const names = [...new Bun.Glob(`*${suffix}`).scanSync({ cwd: import.meta.dir })]
    .map(file => basename(file, suffix))
    .sort()
  const asked = readArguments(argv)
  if (asked === null || !names.includes(asked.name)) {
    printError(`usage: bun run bench NAME [--json]\nbenchmarks: ${names.join(', ') || 'none'}`)
    return 2
  }
  const { name, json } = asked
  const controller = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => controller.abort(new Error(signal)))
  const loaded: { readonly run: Bench } = await import(`./${name}${suffix}`)
  try {
    const repoRoot = new URL('../..', import.meta.url).pathname
    const figures = await loaded.run({ repoRoot, note: printError, signal: controller.signal })
    const machine = machineFacts()
    const say = json ? printError : print
    for (const line of reportLines(name, machine, figures)) say(line)
    if (json) print(JSON.stringify(reportOf(name, machine, figures)))
    return 0
  } catch (error) {
    printError(error instanceof Error ? (error.stack ?? error.message) : String(error))
    return 1
  }
}

function readArguments(argv: readonly string[]): { name: string; json: boolean } | null {
  const json = argv.includes('--json')
  const [name, ...rest] = argv.filter(argument => argument !== '--json')
  return name === undefined || rest.length > 0 ? null : { name, json }
}
