// Retention of builds: records by age, files by age and size. Effects: the store, files.

import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { ClockGuard } from '../base/work/clock-guard.ts'
import { sweep } from '../base/work/sweep.ts'
import type { DirectoryStore } from '../store/db.ts'
import {
  buildDiskBytes,
  deleteBuild,
  listBuildHosts,
  listBuildIds,
  listExpiredBuilds,
  noteRemoved,
  oldestOfLargestOwner,
} from '../store/directory/build.query.ts'
import { listBuildsWithFiles } from '../store/directory/deletion.query.ts'
import type { BuildFiles } from './files.ts'
import type { BuildsSettings } from './types.ts'

export type BuildRetentionDeps = {
  readonly directory: Pick<DirectoryStore, 'db' | 'change'>
  readonly hostId: string
  readonly files: BuildFiles
  readonly clock: Clock
  readonly guard: Pick<ClockGuard, 'mayDelete'>
  readonly log: Logger
  /** `resultBytesMax` limits all files of builds together. */
  readonly settings: Pick<BuildsSettings, 'retentionMs' | 'resultBytesMax'>
}

const intervalMs = 10 * 60 * 1000
/** No share: deletes of this daemon. */
const batchMax = 100
/** No share: deletes of this daemon. */
const removalsMax = 1_000

export class BuildRetention {
  readonly #deps: BuildRetentionDeps
  /** Directories that had no record at the last check. */
  #orphans: ReadonlySet<string> = new Set()

  constructor(deps: BuildRetentionDeps) {
    this.#deps = deps
  }

  /**
   * Removes files of finished builds until this many more bytes fit: the oldest of the organization that holds the
   * most, so that a heavy user evicts its own files. Returns false if they do not fit.
   */
  makeRoom(bytes: number): boolean {
    const { directory, hostId, files, clock, log, settings } = this.#deps
    for (let count = 0; count <= removalsMax; count += 1) {
      if (buildDiskBytes(directory.db, hostId) + bytes <= settings.resultBytesMax) return true
      const build = oldestOfLargestOwner(directory.db, hostId)
      if (build === null) return false
      // Mark the removal first, so that only existing files are offered.
      noteRemoved(directory.db, { id: build.id, nowMs: clock.nowMs() })
      files.remove(build.id)
      log.info('the files of a build were removed to make room', { build: build.id, bytes: build.diskBytes })
    }
    return false
  }

  /** Removes the files of an organization's finished builds. Their records stay until they expire. */
  removeFilesOf(organizationId: string): void {
    const { directory, hostId, files, clock } = this.#deps
    for (let rounds = 0; rounds < removalsMax; rounds += 1) {
      const ids = listBuildsWithFiles(directory.db, { organizationId, hostId, limit: batchMax })
      for (const id of ids) {
        // Remove the files first, because they are no longer offered; a record without the mark is found again.
        files.remove(id)
        noteRemoved(directory.db, { id, nowMs: clock.nowMs() })
      }
      if (ids.length < batchMax) return
    }
  }

  /** Removes directories without a record: builds that had not been accepted when an earlier daemon was killed. */
  removeOrphans(): void {
    this.#removeOrphans(() => true)
  }

  /** Runs while builds are being accepted: removes only files that had no record at the previous check either. */
  #removeOldOrphans(): void {
    const { directory, hostId, files } = this.#deps
    const before = this.#orphans
    this.#removeOrphans(name => before.has(name))
    this.#orphans = new Set(files.orphans(listBuildIds(directory.db, hostId)))
  }

  #removeOrphans(mayRemove: (name: string) => boolean): void {
    const { directory, hostId, files, log } = this.#deps
    const orphans = files.orphans(listBuildIds(directory.db, hostId)).filter(mayRemove)
    for (const name of orphans) files.remove(name)
    if (orphans.length > 0) log.info('files of builds that were never accepted were removed', { count: orphans.length })
  }

  /** Runs until the signal is aborted. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    await sweep({ clock: this.#deps.clock, intervalMs, signal }, async () => {
      try {
        if (this.#deps.guard.mayDelete()) await this.removeExpired(signal)
        this.makeRoom(0)
        this.#removeOldOrphans()
      } catch (error) {
        this.#deps.log.error('expired builds were not removed', { error })
      }
    })
  }

  async removeExpired(signal: AbortSignal): Promise<number> {
    const { directory, hostId, log } = this.#deps
    let removed = await this.#removeExpiredOf(hostId, signal)
    // No other host removes records of hosts that have left.
    const others = listBuildHosts(directory.db).filter(id => id !== hostId)
    for (const other of others) if (!signal.aborted) removed += await this.#removeExpiredOf(other, signal)
    if (removed > 0) log.info('expired builds removed', { count: removed })
    return removed
  }

  async #removeExpiredOf(ofHost: string, signal: AbortSignal): Promise<number> {
    const { directory, hostId, files, clock, settings } = this.#deps
    let removed = 0
    while (!signal.aborted) {
      const expired = { hostId: ofHost, finishedBeforeMs: clock.nowMs() - settings.retentionMs, limit: batchMax }
      const ids = listExpiredBuilds(directory.db, expired)
      if (ids.length === 0) break
      // Remove the files first: a record without files is found again.
      if (ofHost === hostId) for (const id of ids) files.remove(id)
      const count = await directory.change(tx => {
        if (ofHost !== hostId && tx.hosts.find(ofHost) !== null) return 0
        for (const id of ids) deleteBuild(tx, id)
        return ids.length
      })
      removed += count
      if (count < batchMax) break
      await clock.sleep(0, signal)
    }
    return removed
  }
}
