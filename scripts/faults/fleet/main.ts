// `bun run faults:fleet [--seed N] [--faults N] [--hosts N] [--clients N] [--group NAME]...`: hosts of a fleet, their
// database, their clocks and the ways between them fail at random, and their operator restores, forgets, clones and
// renews them, while clients create, delete and spend. Prints the seed, each fault, and what was checked; a seed
// repeats the faults. Exit status: 0, 1 when anything was lost, doubled or left behind, 2 on wrong usage.
//
// Needs PostgreSQL and libfaketime (scripts/setup installs them).

import { parseArgs } from 'node:util'
import { print, printError } from '../../lib/terminal.ts'
import { hasFakeTime } from '../../rigs/postgres/pair.ts'
import { hasPostgres } from '../../rigs/postgres/server.ts'
import { FAULT_GROUPS, type FaultGroup } from './faults.ts'
import { type RunOptions, runFaults } from './run.ts'

const usage = 'usage: bun run faults:fleet [--seed N] [--faults N] [--hosts N] [--clients N] [--group NAME]...'
const defaults = { faults: '1000', hosts: '3', clients: '5' }
const hostsMin = 2

if (import.meta.main) process.exit(await main(process.argv.slice(2)))

async function main(argv: readonly string[]): Promise<number> {
  const options = readArguments(argv)
  if (options === null) {
    printError(usage)
    return 2
  }
  if (!hasPostgres || !hasFakeTime) {
    printError('needs PostgreSQL and libfaketime (scripts/setup installs them)')
    return 2
  }
  const { seed, faultCount, hostCount, clientCount } = options
  print(`seed ${seed}`)
  try {
    for (const line of await runFaults(options)) print(line)
    return 0
  } catch (error) {
    print(error instanceof Error ? error.message : String(error))
    const sizes = `--seed ${seed} --faults ${faultCount} --hosts ${hostCount} --clients ${clientCount}`
    const again = [sizes, ...options.groups.map(group => `--group ${group}`)].join(' ')
    print(`to repeat the faults: bun run faults:fleet ${again}`)
    return 1
  }
}

function readArguments(argv: readonly string[]): RunOptions | null {
  try {
    const { values } = parseArgs({
      args: [...argv],
      options: {
        seed: { type: 'string', default: `${Math.floor(Math.random() * 1_000_000)}` },
        faults: { type: 'string', default: defaults.faults },
        hosts: { type: 'string', default: defaults.hosts },
        clients: { type: 'string', default: defaults.clients },
        group: { type: 'string', multiple: true, default: [...FAULT_GROUPS] },
      },
    })
    const [seed = 0, faultCount = 0, hostCount = 0, clientCount = 0] = [
      ...[values.seed, values.faults, values.hosts, values.clients].map(Number),
    ]
    const isSound = [seed, faultCount, hostCount, clientCount].every(number => Number.isInteger(number) && number >= 0)
    if (!isSound || hostCount < hostsMin || clientCount < 1) return null
    const isGroup = (name: string): name is FaultGroup => FAULT_GROUPS.some(group => group === name)
    if (!values.group.every(isGroup)) return null
    return { seed, faultCount, hostCount, clientCount, groups: values.group.filter(isGroup), print }
  } catch {
    return null
  }
}
