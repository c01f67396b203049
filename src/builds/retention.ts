// Retention of builds: records by age, files by age and size. Effects: the store, files.

import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { ClockGuard } from '../base/work/clock-guard.ts'
import { sweep } from '../base/work/sweep.ts'
import type { DirectoryStore } from '../store/db.ts'
import {
  buildDiskBytes,
  deleteBuild,
  listBuildIds,
  listExpiredBuilds,
  noteRemoved,
  oldestOfLargestOwner,
} from '../store/directory/build.query.ts'
import { listBuildsWithFiles } from '../store/directory/deletion.query.ts'
import type { BuildFiles } from './files.ts'

export type BuildRetentionDeps = {
  readonly directory: Pick<DirectoryStore, 'db' | 'transact'>
  readonly hostId: string
  readonly files: BuildFiles
  readonly clock: Clock
  readonly guard: Pick<ClockGuard, 'mayDelete'>
  readonly log: Logger
  readonly retentionMs: number
  /** Bound on all files of builds together. */
  readonly resultBytesMax: number
}

const intervalMs = 10 * 60 * 1000
const batchMax = 100
const removalsMax = 1_000

export class BuildRetention {
  readonly #deps: BuildRetentionDeps

  constructor(deps: BuildRetentionDeps) {
    this.#deps = deps
  }

  /**
   * Removes files of finished builds until this many more bytes fit: the oldest of the organization that holds the
   * most, so that a heavy user evicts its own files. False: they do not fit.
   */
  makeRoom(bytes: number): boolean {
    const { directory, hostId, files, clock, log, resultBytesMax } = this.#deps
    for (let count = 0; count <= removalsMax; count += 1) {
      if (buildDiskBytes(directory.db) + bytes <= resultBytesMax) return true
      const build = oldestOfLargestOwner(directory.db, hostId)
      if (build === null) return false
      // The note first: what is offered is there.
      noteRemoved(directory.db, { id: build.id, nowMs: clock.nowMs() })
      files.remove(build.id)
      log.info('the files of a build made room for others', { build: build.id, bytes: build.diskBytes })
    }
    return false
  }

  /** Removes the files of an organization's finished builds; their records stay for their time. */
  removeFilesOf(organizationId: string): void {
    const { directory, hostId, files, clock } = this.#deps
    for (let rounds = 0; rounds < removalsMax; rounds += 1) {
      const ids = listBuildsWithFiles(directory.db, { organizationId, hostId, limit: batchMax })
      for (const id of ids) {
        // The files first, as nobody is offered them any more: a record without the note is found again.
        files.remove(id)
        noteRemoved(directory.db, { id, nowMs: clock.nowMs() })
      }
      if (ids.length < batchMax) return
    }
  }

  /** Directories that no record names: of builds that were not accepted when an earlier daemon was killed. */
  removeOrphans(): void {
    const { directory, hostId, files, log } = this.#deps
    const orphans = files.removeOrphans(listBuildIds(directory.db, hostId))
    if (orphans.length > 0) log.info('files of builds that nobody has accepted were removed', { count: orphans.length })
  }

  /** Until the signal. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    await sweep({ clock: this.#deps.clock, intervalMs, signal }, async () => {
      try {
        if (this.#deps.guard.mayDelete()) await this.removeExpired(signal)
        this.makeRoom(0)
      } catch (error) {
        this.#deps.log.error('expired builds were not removed', { error })
      }
    })
  }

  async removeExpired(signal: AbortSignal): Promise<number> {
    const { directory, hostId, files, clock, log, retentionMs } = this.#deps
    let removed = 0
    while (!signal.aborted) {
      const finishedBeforeMs = clock.nowMs() - retentionMs
      const ids = listExpiredBuilds(directory.db, { hostId, finishedBeforeMs, limit: batchMax })
      for (const id of ids) {
        // The files first: a record without them is found again.
        files.remove(id)
        directory.transact(tx => deleteBuild(tx, id))
      }
      removed += ids.length
      if (ids.length < batchMax) break
      await clock.sleep(0, signal)
    }
    if (removed > 0) log.info('expired builds removed', { count: removed })
    return removed
  }
}
