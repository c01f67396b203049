// Hosts of a fleet, their database, their clocks and the ways between them fail at random, and their operator restores,
// forgets and clones them, while clients create, delete and spend; a checker looks for what was lost, doubled or left
// behind. STRONGROOM_FLEET_SEED repeats a run's faults, STRONGROOM_FLEET_FAULTS asks for more, STRONGROOM_FLEET_HOSTS
// and STRONGROOM_FLEET_CLIENTS for another size. `bun run faults:fleet` is the same as a command.

import { test } from 'bun:test'
import { runFaults } from '../../../scripts/faults/fleet/run.ts'
import { print } from '../../../scripts/lib/terminal.ts'
import { hasFakeTime } from '../../../scripts/rigs/postgres/pair.ts'
import { hasPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'

const seed = Number(process.env.STRONGROOM_FLEET_SEED ?? Date.now() % 1_000_000)
const faultCount = Number(process.env.STRONGROOM_FLEET_FAULTS ?? 40)
const hostCount = Number(process.env.STRONGROOM_FLEET_HOSTS ?? 3)
const clientCount = Number(process.env.STRONGROOM_FLEET_CLIENTS ?? 5)

// Goal: every acknowledged create is there exactly once on every host, no name twice, no delete undone, no VM, tap or
// address left over or given twice, no cent of usage and no byte of egress lost or double, no budget passed; a restored
// dump loses what was changed after it and nothing else; a copy of a host and a forgotten host serve no client.
test.skipIf(skipUnless(hasPostgres && hasFakeTime, 'needs PostgreSQL and libfaketime (scripts/setup installs them)'))(
  'random faults',
  async () => {
    print(`STRONGROOM_FLEET_SEED=${seed} STRONGROOM_FLEET_FAULTS=${faultCount}`)
    for (const line of await runFaults({ seed, faultCount, hostCount, clientCount, print })) print(line)
  },
  900_000 + faultCount * 2_000,
)
