// `scripts/agents [--latest] [--record] [--list] [PATTERN…]`: runs the command-line agents that people use, as npm has
// them, against the gateway with a scripted engine. Prints a line for each scenario, and for one that fails what the
// agent printed. Exit status: 0, 1 when a scenario failed, 2 on wrong usage.
//
//   --latest   the newest versions instead of the pinned ones (scripts/rigs/agents/cli.ts)
//   --record   writes the requests of each program to test/vectors/agents, without its texts
//   PATTERN    only scenarios whose name, such as claude-code/mcp, holds it

import { writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { print, printError, seconds } from './lib/terminal.ts'
import { installAgent, versionOf } from './rigs/agents/cli.ts'
import { encodeSessions, type Session } from './rigs/agents/fixture.ts'
import { playScenario } from './rigs/agents/play.ts'
import { OWN, SCENARIOS, type Scenario } from './rigs/agents/scenarios.ts'

const usage = 'usage: scripts/agents [--latest] [--record] [--list] [PATTERN...]'
const fixtures = resolve(import.meta.dir, '../test/vectors/agents')

if (import.meta.main) process.exit(await main(process.argv.slice(2)))

async function main(argv: readonly string[]): Promise<number> {
  const options = readOptions(argv)
  if (options === null) {
    printError(usage)
    return 2
  }
  const chosen = SCENARIOS.filter(
    ({ program, name }) =>
      options.patterns.length === 0 || options.patterns.some(pattern => `${program}/${name}`.includes(pattern)),
  )
  if (options.list) {
    for (const { program, name } of chosen) print(`${program}/${name}`)
    return 0
  }
  let failures = 0
  for (const [program, scenarios] of Map.groupBy(chosen, row => row.program)) {
    const installed = await installAgent(program, options)
    if ('problem' in installed) {
      print(`FAILED  ${program}: ${installed.problem}`)
      failures += scenarios.length
      continue
    }
    const sessions: Session[] = []
    for (const scenario of scenarios) {
      const session = await ran(scenario, installed.path)
      if (session === null) failures += 1
      else sessions.push(session)
    }
    if (options.record && sessions.length === scenarios.length) {
      const version = await versionOf(installed.path)
      writeFileSync(resolve(fixtures, `${program}.json`), encodeSessions({ program, version, sessions, own: OWN }))
    }
  }
  print(failures === 0 ? 'all scenarios passed' : `${failures} of ${chosen.length} scenarios FAILED`)
  return failures === 0 ? 0 : 1
}

function readOptions(argv: readonly string[]) {
  const flag = { type: 'boolean', default: false } as const
  try {
    const { values, positionals } = parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: { latest: flag, record: flag, list: flag },
    })
    return { ...values, patterns: positionals }
  } catch {
    return null
  }
}

/** The session; null if the scenario failed. */
async function ran(scenario: Scenario, path: string): Promise<Session | null> {
  const label = `${scenario.program}/${scenario.name}`
  const startedMs = performance.now()
  try {
    const session = await playScenario(scenario, path)
    print(`${seconds(performance.now() - startedMs)}  passed  ${label}`)
    return session
  } catch (error) {
    print(`${seconds(performance.now() - startedMs)}  FAILED  ${label}`)
    print(error instanceof Error ? error.message : String(error))
    return null
  }
}
