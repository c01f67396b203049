// Looks at this host's fleet for `strongroom doctor`, with or without a daemon. Effects: reads the files of the
// configuration, a few statements to PostgreSQL that change nothing.

import { systemClock } from '../../../base/clock.ts'
import { Fault, messageOf } from '../../../base/fault.ts'
import { systemRandom } from '../../../base/ids.ts'
import { silentLogger } from '../../../base/log.ts'
import { REMEDIES } from '../../../base/remedies.ts'
import { resultOr } from '../../../base/result-or.ts'
import { databaseText } from '../../../config/fleet/database-url.ts'
import type { Config } from '../../../config/schema.ts'
import { fleetSchema, POSTGRES_LIMITS, type PostgresTarget } from '../../../fleet/driver.ts'
import { adviceFor, reasonOf } from '../../../fleet/failures.ts'
import { createFleetAdmin } from '../../../fleet/hosts/fleet-admin.ts'
import { checkSchema, newestOf } from '../../../fleet/migrations.ts'
import { openPeers } from '../../../fleet/peers/open.ts'
import { readPeerKey } from '../../../fleet/peers/peer-key.ts'
import type { PeerReach } from '../../../fleet/peers/watch.ts'
import { poolerProblem, poolerRemedy } from '../../../fleet/pooler.ts'
import { openPostgres, type Postgres } from '../../../fleet/postgres.ts'
import { fleetTarget } from '../../../fleet/target.ts'
import { ownRecords } from '../../fleet/direct.ts'
import type { FleetFacts } from './fleet.plan.ts'

const listenerCount = 1
/** Connections of commands at a time. */
const commandCount = 2

/** Null if this host is in no fleet. Never throws. */
export async function collectFleetFacts(config: Config, stateDir: string): Promise<FleetFacts | null> {
  if (config.fleet.database === '') return null
  let target: PostgresTarget | null = null
  try {
    target = fleetTarget(config)
    return target === null ? null : await readFacts(target, stateDir)
  } catch (error) {
    const database = target === null ? 'fleet' : databaseText(target)
    const code = error instanceof Fault ? error.code : 'internal'
    const advice = adviceFor(error)
    const reason = code === 'fleet.unavailable' || advice !== null ? reasonOf(error) : messageOf(error)
    return { kind: 'unread', database, reason, remedy: advice?.remedy ?? REMEDIES[code] }
  }
}

async function readFacts(target: PostgresTarget, stateDir: string): Promise<FleetFacts> {
  const pooler = await poolerProblem(target)
  if (pooler !== null) return { kind: 'unread', database: databaseText(target), reason: pooler, remedy: poolerRemedy }
  const postgres = await openPostgres({ target, clock: systemClock, log: silentLogger })
  try {
    const schema = await checkSchema(postgres)
    const hostId = ownRecords(stateDir)?.hostId ?? null
    const reached = await reachPeers(postgres, stateDir, hostId)
    return {
      kind: 'read',
      database: databaseText(target),
      schema,
      schemaNewest: newestOf(),
      ...(await serverFacts(postgres)),
      // The driver accepts no other connection then; the server may see that of a pooler.
      isTls: target.caPem !== null,
      hosts: await createFleetAdmin({ postgres, hostId, clock: systemClock, reached: () => reached }).list(),
    }
  } finally {
    await postgres.close()
  }
}

/**
 * Calls the other hosts with this host's own key, with or without a daemon. Empty if there is no key yet, or it may not
 * be read.
 */
async function reachPeers(postgres: Postgres, stateDir: string, hostId: string | null): Promise<readonly PeerReach[]> {
  const key = hostId === null ? null : resultOr(() => readPeerKey(stateDir, hostId), null)
  if (key === null) return []
  const peers = openPeers({ key, postgres, clock: systemClock, random: systemRandom, log: silentLogger })
  await peers.watch.greetAll(new AbortController().signal)
  return peers.watch.view()
}

async function serverFacts(postgres: Postgres) {
  const beganMs = systemClock.monotonicMs()
  const [row] = await postgres.query<{
    readonly name: string
    readonly isSuperuser: boolean
    readonly isOwner: boolean
    readonly names: string
    readonly commit: string
    readonly most: number
    readonly owner: string | null
    readonly endsChanges: boolean | null
  }>(
    `SELECT current_user AS name, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS "isSuperuser",
       pg_has_role(current_user, (SELECT nspowner FROM pg_namespace WHERE nspname = '${fleetSchema}'), 'MEMBER') AS "isOwner",
       current_setting('synchronous_standby_names') AS names, current_setting('synchronous_commit') AS commit,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer AS most,
       o.rolname AS owner, pg_has_role(o.oid, 'pg_signal_backend', 'USAGE')
         AND pg_has_role(o.oid, 'pg_read_all_stats', 'USAGE') AS "endsChanges"
     FROM (SELECT 1) AS one LEFT JOIN pg_namespace n ON n.nspname = '${fleetSchema}' LEFT JOIN pg_roles o ON o.oid = n.nspowner`,
  )
  return {
    answerMs: systemClock.monotonicMs() - beganMs,
    role: { name: row?.name ?? '', isSuperuser: row?.isSuperuser ?? false, isOwner: row?.isOwner ?? false },
    owner: { name: row?.owner ?? '', endsChanges: row?.endsChanges ?? true },
    synchronousStandbyNames: row?.names ?? '',
    synchronousCommit: row?.commit ?? '',
    connectionsMax: row?.most ?? 0,
    connectionsPerHost: POSTGRES_LIMITS.connectionCountMax + listenerCount + commandCount,
  }
}
