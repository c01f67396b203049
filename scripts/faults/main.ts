// `bun run faults [--scenario NAME]… [--points N|all] [--seed N] [--only NAME:POINT] [--minutes N] [--list]`: kills
// the daemon with SIGKILL before each system call with an effect outside of it, starts it again, and looks for what is
// lost, double or left. Prints a line for each point and a table at the end. Exit status: 0, 1 when anything was
// found, 2 on wrong usage.
//
// Runs the compiled appliance in a network namespace of its own, with real QEMU. Needs root and dist/strongroom
// (scripts/build-appliance.ts).

import { parseArgs } from 'node:util'
import { print, printError, table } from '../lib/terminal.ts'
import { imageDir } from '../rigs/appliance.ts'
import { createNetns } from '../rigs/netns.ts'
import { accountsScenario } from './accounts.ts'
import { buildsScenario } from './builds.ts'
import { gatewayUpdateScenario, gatewayVmScenario } from './gateway-vm.ts'
import { claimScenario, instancesScenario, restartScenario } from './instances.ts'
import { retentionScenario, usageScenario } from './ledger.ts'
import { drainScenario, poolScenario } from './pool.ts'
import type { Scenario } from './scenario.ts'
import { startScenario } from './start.ts'
import { type PointResult, runScenario } from './suite.ts'

export const SCENARIOS: readonly Scenario[] = [
  startScenario,
  accountsScenario,
  instancesScenario,
  poolScenario,
  drainScenario,
  restartScenario,
  buildsScenario,
  usageScenario,
  retentionScenario,
  gatewayVmScenario,
  claimScenario,
  gatewayUpdateScenario,
]

type Options = {
  readonly scenarios: readonly Scenario[]
  readonly points: number | 'all'
  readonly seed: number
  readonly only: number | null
  readonly minutes: number
}

const insideVariable = 'STRONGROOM_FAULTS_INSIDE'
const minutesDefault = 60
const pointsDefault = 40
const usage =
  'usage: bun run faults [--scenario NAME]... [--points N|all] [--seed N] [--only NAME:POINT] [--minutes N] [--list]'

if (import.meta.main) process.exit(await main(process.argv.slice(2)))

async function main(argv: readonly string[]): Promise<number> {
  const options = readArguments(argv)
  if (options === null) {
    printError(`${usage}\nscenarios: ${SCENARIOS.map(({ name }) => name).join(', ')}`)
    return 2
  }
  if (options === 'list') {
    for (const { name, about } of SCENARIOS) print(`${name}: ${about}`)
    return 0
  }
  if (process.env[insideVariable] === undefined) return runInside(argv)
  return runAll(options)
}

/** Runs this program again in a namespace that goes with it, whatever is left in there. */
async function runInside(argv: readonly string[]): Promise<number> {
  const image = await imageDir()
  using netns = createNetns()
  const child = Bun.spawn(netns.argv([process.execPath, import.meta.path, ...argv]), {
    env: { ...process.env, STRONGROOM_IMAGE_DIR: image, [insideVariable]: '1' },
    stdin: 'ignore',
    stdout: 'inherit',
    stderr: 'inherit',
  })
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal))
  return (await child.exited) ?? 1
}

async function runAll({ scenarios, points, seed, only, minutes }: Options): Promise<number> {
  const endMs = performance.now() + minutes * 60_000
  let isInterrupted = false
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      isInterrupted = true
      printError('the point that is being tried is the last one')
    })
  }
  const isOver = () => isInterrupted || performance.now() > endMs
  const results: PointResult[] = []
  const broken: string[] = []
  print(`seed ${seed}`)
  for (const scenario of scenarios) {
    try {
      await runScenario(scenario, {
        points,
        seed,
        only,
        isOver,
        onTotal: (total, chosen) =>
          print(`${scenario.name}: ${total} points, ${chosen} of them tried: ${scenario.about}`),
        onResult: result => {
          results.push(result)
          print(cellsOf(result).join('  '))
        },
      })
    } catch (error) {
      broken.push(scenario.name)
      print(`${scenario.name}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`)
    }
  }
  for (const line of summaryLines(results)) print(line)
  if (performance.now() > endMs) print(`stopped after ${minutes} minutes; --minutes allows more`)
  return broken.length === 0 && results.length > 0 && results.every(result => result.findings.length === 0) ? 0 : 1
}

function cellsOf({ scenario, point, injected, convergedMs, findings }: PointResult): string[] {
  return [
    `${scenario}:${point}`,
    injected ?? 'not reached: the run was over',
    convergedMs === null ? '-' : `${(convergedMs / 1000).toFixed(1)} s`,
    findings.length === 0 ? 'nothing' : findings.join('; '),
  ]
}

/** The whole table, then a line for each scenario. */
export function summaryLines(results: readonly PointResult[]): string[] {
  const rows = results.map(cellsOf)
  const names = [...new Set(results.map(result => result.scenario))]
  const sums = names.map(name => {
    const own = results.filter(result => result.scenario === name)
    const killed = own.filter(result => result.injected !== null)
    const slowestMs = Math.max(0, ...killed.map(result => result.convergedMs ?? 0))
    const places = new Set(killed.map(result => result.injected)).size
    const found = own.filter(result => result.findings.length > 0).length
    return [name, `${killed.length}`, `${places}`, `${(slowestMs / 1000).toFixed(1)} s`, `${found}`]
  })
  return [
    '',
    ...table([['point', 'injected before', 'converged in', 'leaked, lost or double'], ...rows]),
    '',
    ...table([['scenario', 'kills', 'different places', 'slowest', 'with findings'], ...sums], [1, 2, 3, 4]),
    `${results.filter(result => result.injected !== null).length} kills in all`,
  ]
}

function readArguments(argv: readonly string[]): Options | 'list' | null {
  try {
    const { values } = parseArgs({
      args: [...argv],
      options: {
        scenario: { type: 'string', multiple: true, default: [] },
        points: { type: 'string', default: `${pointsDefault}` },
        seed: { type: 'string', default: `${Math.floor(Math.random() * 1_000_000)}` },
        only: { type: 'string' },
        minutes: { type: 'string', default: `${minutesDefault}` },
        list: { type: 'boolean', default: false },
      },
    })
    if (values.list) return 'list'
    const [onlyName, onlyPoint] = values.only?.split(':') ?? []
    const asked = onlyName === undefined ? values.scenario : [onlyName]
    const scenarios = asked.length === 0 ? SCENARIOS : SCENARIOS.filter(({ name }) => asked.includes(name))
    const points = values.points === 'all' ? 'all' : Number(values.points)
    const only = onlyName === undefined ? null : Number(onlyPoint)
    const numbers = [points === 'all' ? 1 : points, Number(values.seed), only ?? 0, Number(values.minutes)]
    const isSound = numbers.every(number => Number.isInteger(number) && number >= 0)
    if (!isSound || scenarios.length < Math.max(1, new Set(asked).size)) return null
    return { scenarios, points, seed: Number(values.seed), only, minutes: Number(values.minutes) }
  } catch {
    return null
  }
}
