// Carries out accepted deletions of organizations. Effects: the store; instances, builds and files through functions.
// Each organization has one level-triggered worker, which checks what is left and ends it, so that a daemon that was
// killed at any point continues from there.

import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { createWorkers, type Workers } from '../base/work/workers.ts'
import type { Store } from '../store/db.ts'
import { endDeletion, listDeleting, type Remains, remainsOf, revokeAll } from '../store/directory/deletion.query.ts'
import { instanceById } from '../store/directory/instance.query.ts'
import { organizationById } from '../store/directory/organization.query.ts'
import type { Organization } from '../store/directory/organization.table.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import type { AdminDeps } from './deps.ts'

export type RemovalDeps = {
  readonly store: Pick<Store, 'directory' | 'ledger'>
  readonly clock: Clock
  readonly log: Logger
  readonly deleteInstance: AdminDeps['deleteInstance']
  readonly cancelBuild: AdminDeps['cancelBuild']
  /** Removes the files of an organization's finished builds. Null if service C is off. */
  readonly removeBuildFiles: ((organizationId: string) => void) | null
}

/** Instances end in seconds; nothing reports that a build's VM is gone. */
const sweepMs = 5_000

export class Removal {
  readonly #deps: RemovalDeps
  readonly #workers: Workers

  constructor(deps: RemovalDeps) {
    this.#deps = deps
    this.#workers = createWorkers({
      clock: deps.clock,
      work: id => this.look(id),
      onFailure: ({ key, error, retryMs }) =>
        deps.log.warn('an organization was not wholly deleted; it will be tried again', {
          organization: key,
          retryMs,
          error,
        }),
    })
  }

  start(): void {
    this.#workers.sweep(sweepMs, () => {
      try {
        for (const { id } of listDeleting(this.#deps.store.directory.db)) this.wake(id)
      } catch (error) {
        this.#deps.log.error('organizations to delete could not be looked up', { error })
      }
    })
  }

  /** Call it when a deletion was accepted. Never throws, never waits. */
  wake(organizationId: string): void {
    this.#workers.wake(organizationId)
  }

  stop(): Promise<void> {
    return this.#workers.stop()
  }

  /** Ends what is left, and the deletion once nothing is. */
  async look(id: string): Promise<void> {
    const { store, clock, log, deleteInstance, cancelBuild, removeBuildFiles } = this.#deps
    const { db } = store.directory
    const organization = organizationById(db, id)
    if (organization === null || !isDeleting(organization)) return
    // A running claim may have made a key for its instance since.
    await store.directory.change(tx => revokeAll(tx, { id, nowMs: clock.nowMs() }))
    const remains = remainsOf(db, id)
    for (const { id: instanceId } of remains.instances) {
      // Also instances that are being deleted, because their host may have been lost in the meantime.
      const instance = instanceById(db, instanceId)
      if (instance !== null) await deleteInstance(instance, organization)
    }
    for (const build of remains.builds) await cancelBuild?.(build)
    removeBuildFiles?.(id)
    if (waitsFor(remainsOf(db, id)).length > 0) return
    const nowMs = clock.nowMs()
    if (!(await store.directory.change(tx => endDeletion(tx, { id, nowMs })))) return
    const { slug } = organization
    noteEvent(store.ledger.db, log, { nowMs, kind: 'organization.deleted', subject: id, detail: { slug } })
    log.info('organization deleted', { organization: id, slug })
  }
}

function isDeleting({ deletingAtMs, deletedAtMs }: Organization): boolean {
  return deletingAtMs !== null && deletedAtMs === null
}

/** Describes what a deletion waits for; empty if nothing is left. Pure. */
export function waitsFor(remains: Remains): string[] {
  const parts: [number, string, string][] = [
    [remains.instances.length, 'instance', 'instances'],
    [remains.buildsOpen, 'build', 'builds'],
    [remains.reservedVms, 'reserved build VM', 'reserved build VMs'],
    [remains.buildsWithFiles - remains.buildsOpen, 'build with files', 'builds with files'],
  ]
  return parts.filter(([n]) => n > 0).map(([n, what, plural]) => `${n} ${n === 1 ? what : plural}`)
}
