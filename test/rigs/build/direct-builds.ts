// A database in memory with two organizations and builds put straight into it, for direct tests of service C's parts.

import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { newUuid } from '../../../src/base/ids.ts'
import { openStore } from '../../../src/store/db.ts'
import { buildById, insertBuild, insertBuildVm } from '../../../src/store/directory/build.query.ts'
import type { Build } from '../../../src/store/directory/build.table.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'

export type NewBuild = Partial<
  Pick<Build, 'hostId' | 'organizationId' | 'nonce' | 'vmId' | 'sourceKind' | 'createdAtMs'>
>

export function directBuilds() {
  const clock = createManualClock()
  const store = openStore(':memory:', { clock })
  const { db } = store.directory
  for (const slug of ['acme', 'globex']) insertOrganization(db, { id: slug, slug, nowMs: 0 })
  let count = 0
  /** Adds a build of acme at this host, a second after the one before, with `changes`. Returns its id. */
  const add = (changes: NewBuild = {}): string => {
    count += 1
    const id = newUuid()
    const { createdAtMs: nowMs = clock.nowMs() - 100_000 + count * 1_000, ...row } = changes
    insertBuild(db, {
      id,
      hostId: store.hostId,
      organizationId: 'acme',
      nonce: count.toString(16).padStart(4, '0'),
      sourceKind: 'archive',
      sourceName: null,
      sourceBytes: 3,
      sourceSha256: 'ab'.repeat(32),
      repoUrl: null,
      repoRef: null,
      projectDir: null,
      toolchain: null,
      reproduce: false,
      options: null,
      waivers: [],
      fetchCaSha256: null,
      cratesMirror: null,
      vmId: null,
      diskBytes: 3,
      ...row,
      nowMs,
    })
    return id
  }
  const reserve = (organizationId: string | null, vmId = newUuid()): string => {
    const row = { hostId: store.hostId, kind: 'reserved', imageDigest: 'aa'.repeat(32), shape: 's' } as const
    insertBuildVm(db, { ...row, vmId, organizationId, nowMs: clock.nowMs(), expiresAtMs: clock.nowMs() + 60_000 })
    return vmId
  }
  const get = (id: string): Build => {
    const build = buildById(db, id)
    if (build === null) throw new Error(`there is no build ${id}`)
    return build
  }
  return { store, clock, db, add, reserve, get, [Symbol.dispose]: () => store.close() }
}
