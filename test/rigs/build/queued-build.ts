// A build that waits for a VM, put straight into the directory, and its end as service C writes it.

import { createClockGuard } from '../../../scripts/rigs/clock-guard.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { offeredModels } from '../../../src/contract/key-rules.ts'
import { mintGatewayKey } from '../../../src/inference/keys/authenticate.ts'
import { mintKey } from '../../../src/instances/http/auth.ts'
import { type Admin, createAdmin } from '../../../src/operator/api.ts'
import type { AdminDeps } from '../../../src/operator/deps.ts'
import type { Store } from '../../../src/store/db.ts'
import { buildById, insertBuild, moveBuild } from '../../../src/store/directory/build.query.ts'
import type { Build } from '../../../src/store/directory/build.table.ts'
import { findOrganization } from '../../../src/store/directory/organization.query.ts'
import { NO_ADMINISTRATORS } from '../admin.ts'

/** Its name and its reference would retitle a terminal. `slug`: null for nobody's. Returns its id. */
export function addQueuedBuild(
  store: Store,
  { slug, kind, nowMs }: { readonly slug: string | null; readonly kind: 'git' | 'archive'; readonly nowMs: number },
): string {
  const id = newUuid()
  const organizationId = slug === null ? null : (findOrganization(store.directory.db, slug)?.id ?? '')
  const none = { sourceName: null, sourceBytes: null, sourceSha256: null, repoUrl: null, repoRef: null }
  const source =
    kind === 'git'
      ? { ...none, repoUrl: 'https://git.example/demo.git', repoRef: 'main\u001b]0;owned\u0007' }
      : { ...none, sourceName: 'a\u001b]0;owned\u0007.tar.gz', sourceBytes: 7, sourceSha256: 'ab'.repeat(32) }
  insertBuild(store.directory.db, {
    id,
    organizationId,
    hostId: store.hostId,
    nonce: id.slice(0, 8),
    vmId: null,
    diskBytes: 0,
    nowMs,
    sourceKind: kind,
    projectDir: null,
    toolchain: null,
    reproduce: false,
    ...source,
    options: null,
    waivers: [],
    fetchCaSha256: null,
    cratesMirror: null,
  })
  return id
}

export function cancelQueuedBuild({ directory: { db } }: Store, id: string): Build | null {
  const ended = { to: 'cancelled', finishedAtMs: 1, errorType: 'cancelled', error: 'The build was cancelled.' } as const
  moveBuild(db, { id, from: 'queued', ...ended })
  return buildById(db, id)
}

/** The admin interface, asked for builds alone. */
export function buildsAdmin(
  store: Store,
  {
    cancelBuild,
    buildLog = null,
    hostName = () => null,
    nowMs,
  }: Pick<AdminDeps, 'cancelBuild'> &
    Partial<Pick<AdminDeps, 'buildLog' | 'hostName'>> & { readonly nowMs: () => number },
): Admin {
  const notAskedHere = () => {
    throw new Error('these tests ask for nothing of this kind')
  }
  return createAdmin({
    ...NO_ADMINISTRATORS,
    store,
    cancelBuild,
    buildLog,
    hostName,
    mintKey,
    mintGatewayKey,
    offeredModels: offeredModels([]),
    clock: { ...systemClock, nowMs },
    random: systemRandom,
    log: silentLogger,
    applyEgressLimits: notAskedHere,
    clockGuard: createClockGuard(systemClock),
    deleteInstance: notAskedHere,
    vm: () => null,
    status: notAskedHere,
    leaks: notAskedHere,
    collectors: [],
    consoleDir: notAskedHere,
    gateway: 'off',
  })
}
