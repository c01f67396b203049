// Hosts of a fleet for tests, without appliances: their rows, their leases, instances on them. Effects: statements to
// PostgreSQL.

import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { giveUpInstancesOf } from '../../../src/fleet/hosts/give-up.ts'
import { joinHost } from '../../../src/fleet/hosts/hosts.query.ts'
import { Lease, type LeaseDeps } from '../../../src/fleet/hosts/lease.ts'
import { newestOf } from '../../../src/fleet/migrations.ts'
import type { Postgres } from '../../../src/fleet/postgres.ts'
import { ownerRole } from './server.ts'

/** An id that tells the host's name in failures. */
export const hostId = (name: string) => `host-${name}`

export const report = {
  version: '0.1.0',
  schema: newestOf(),
  now_ms: 0,
  domain: 'agents.internal',
  lacking: null,
  warm: 0,
  memory_mib_used: 0,
  memory_mib_total: 4096,
  vcpus_used: 0,
  vcpus_total: 8,
  image: null,
  operator_key: '',
  addresses: { ns: null, instances: null, inference: null, builds: null },
}

export async function addHosts(postgres: Postgres, ...names: readonly string[]): Promise<void> {
  for (const name of names) {
    await postgres.transact(tx => joinHost(tx, { id: hostId(name), name, role: ownerRole, nowMs: Date.now() }))
  }
}

/** Its renewals wait as long for an answer as the connection's other statements, however slow the machine is. */
export function leaseOf(postgres: Postgres, name: string, given: Partial<LeaseDeps> = {}): Lease {
  return new Lease({
    postgres: unhurried(postgres),
    hostId: hostId(name),
    platform: 'tcg',
    lostAfterMs: 60_000,
    report: () => ({ places: 5, report }),
    giveUp: giveUpInstancesOf,
    clock: systemClock,
    log: silentLogger,
    onEvent: () => {},
    ...given,
  })
}

/** Without bounds of single statements. */
export function unhurried({ query, transact }: Pick<Postgres, 'query' | 'transact'>): LeaseDeps['postgres'] {
  return { query: (text, values) => query(text, values), transact }
}

/** Instances on a host, of an organization that is made for them. */
export async function addInstances(postgres: Postgres, host: string, ...names: readonly string[]): Promise<void> {
  await postgres.transact(async tx => {
    await tx.query(
      "INSERT INTO organizations (id, slug, status, created_at_ms) VALUES ('o', 'o', 'active', 0) ON CONFLICT DO NOTHING",
    )
    for (const name of names) {
      await tx.query(
        `INSERT INTO instances (id, host_id, organization_id, name, hostname, desired, status, agent, public_key,
           inference_mode, inference_model, created_at_ms, changed_at_ms)
         VALUES ($1, $2, 'o', $1, $1, 'present', 'ready', 'a', 'k', 'm', 'm', 0, 0)`,
        [name, hostId(host)],
      )
    }
  })
}

export async function statuses(postgres: Postgres): Promise<Record<string, string>> {
  const rows = await postgres.query<{ name: string; status: string }>(
    'SELECT name, status FROM instances ORDER BY name',
  )
  return Object.fromEntries(rows.map(({ name, status }) => [name, status]))
}
