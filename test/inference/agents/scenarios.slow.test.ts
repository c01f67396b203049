// Parts of a working day with agents of the command line, unchanged out of the registry, against the gateway with a
// scripted engine. scripts/agents runs the same with the newest versions.
//
// Starting an agent takes seconds of processor time, and some scenarios take three starts. The requests of every
// scenario were recorded, and sessions.slow.test.ts sends them all. So by default only the scenarios that depend most
// on the gateway's answers run with the real program; scripts/test --all runs the others, too.

import { expect, test } from 'bun:test'
import { installAgent } from '../../../scripts/rigs/agents/cli.ts'
import { playScenario } from '../../../scripts/rigs/agents/play.ts'
import { SCENARIOS } from '../../../scripts/rigs/agents/scenarios.ts'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'

/**
 * Tools that the answers name, compaction by the agent, and results near the limit of a body. The server's
 * compaction is in codex-compaction.slow.test.ts.
 */
const byDefault: readonly string[] = [
  ...['claude-code/tool-search', 'claude-code/compact', 'claude-code/large-results'],
  ...['codex/mcp', 'codex/compaction', 'opencode/mcp'],
]

const named = SCENARIOS.map(scenario => [`${scenario.program}/${scenario.name}`, scenario] as const)
const chosen = named.filter(([name]) => runsAll || byDefault.includes(name))
process.stdout.write(`${chosen.length} of ${named.length} scenarios\n`)

test('goal: each scenario of the sample exists', () => {
  const names: readonly string[] = named.map(([name]) => name)
  expect(byDefault.filter(name => !names.includes(name))).toEqual([])
})

test.each(chosen)(
  'goal: %s works, and no request of it is refused',
  async (name, scenario) => {
    const installed = await installAgent(scenario.program)
    if (skipUnless('path' in installed, `${name}: ${'problem' in installed ? installed.problem : ''}`)) return
    if (!('path' in installed)) return
    expect((await playScenario(scenario, installed.path)).exchanges.length).toBeGreaterThan(0)
  },
  1_440_000,
)
