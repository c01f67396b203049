// The records of a gateway whose host is in a fleet, put together as the appliance does. Effects: connections to
// PostgreSQL, SQL on the host's database; both go on until the process ends.

import { composeDirectory, type DirectoryLink } from '../../../src/appliance/fleet/directory.ts'
import type { Fleet } from '../../../src/appliance/fleet/hosts.ts'
import { newUuid } from '../../../src/base/ids.ts'
import type { Runtime } from '../../../src/base/runtime.ts'
import { parseDatabaseUrl } from '../../../src/config/fleet/database-url.ts'
import { joinHost } from '../../../src/fleet/hosts/hosts.query.ts'
import { Lease } from '../../../src/fleet/hosts/lease.ts'
import { openPostgres } from '../../../src/fleet/postgres.ts'
import type { Store } from '../../../src/store/db.ts'
import { report } from '../../rigs/postgres/hosts.ts'
import { until } from '../../rigs/until.ts'

const name = 'gateway'
const firstCopyMs = 30_000

type JoinDeps = Pick<Runtime, 'clock' | 'log'> & { readonly store: Store; readonly database: string }

export type Joined = {
  readonly store: Store
  readonly fleet: Pick<Fleet, 'database'>
  readonly link: Pick<DirectoryLink, 'isMember'>
}

export async function joinFleet({ store, database, clock, log }: JoinDeps): Promise<Joined> {
  const parsed = parseDatabaseUrl(database)
  if (!parsed.ok) throw new Error(parsed.problem)
  const target = { ...parsed.address, caPem: null, applicationName: name }
  const postgres = await openPostgres({ target, clock, log })
  const { hostId } = store
  await postgres.transact(tx => joinHost(tx, { id: hostId, name, role: target.user, nowMs: clock.nowMs() }))
  const lease = new Lease({
    ...{ postgres, hostId, platform: 'tcg', lostAfterMs: 60_000, clock, log },
    // Instances go to the other hosts.
    report: () => ({ places: 0, report }),
    giveUp: async () => 0,
    onEvent: () => {},
    onMembership: is => served.link.setMember(is),
  })
  const fleet = { database: { postgres, target, name } }
  const served: ReturnType<typeof composeDirectory> = composeDirectory({ fleet, store, clock, log })
  const nothing = { onCreated: () => {}, onDeleted: () => {}, onLeft: () => {}, onChanged: () => {} }
  served.link.follow({ take: () => ({ vmId: newUuid(), start: 'cold' }), ...nothing })
  served.start()
  void lease.run(new AbortController().signal)
  await until('the first copy of the directory', firstCopyMs, () => served.link.waitsFor() === null)
  await until('the fleet takes it', firstCopyMs, () => served.link.isMember())
  return { store: served.store, fleet, link: served.link }
}
