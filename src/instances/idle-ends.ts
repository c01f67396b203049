// Ends instances whose idle time is over, and takes snapshots by the owner's schedule. The VM counts, inside; this host
// polls it, and ends it in the ordinary way. Effects: the VMs, the store's directory, sleeping.

import type { Clock } from '../base/clock.ts'
import { messageOf } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { sweepLater } from '../base/work/sweep.ts'
import type { CertificateRequest } from '../contract/vm/agent-responses.ts'
import type { Store } from '../store/db.ts'
import { listLiving } from '../store/directory/instance.query.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import { organizationById } from '../store/directory/organization.query.ts'
import type { VmEngine } from '../vm/engine.ts'

export type IdleDeps = {
  readonly directory: Pick<Store['directory'], 'db'>
  readonly hostId: string
  readonly clock: Clock
  readonly log: Logger
  /** The idle time of an organization's instances by its slug, in minutes; null for none. */
  readonly minutesOf: (slug: string) => number | null
  readonly pollIdle: VmEngine['pollIdle']
  /** Reports whether the last snapshot that the VM signed was not kept; the VM then takes the next one earlier. */
  readonly isSnapshotLost: (instance: Instance) => boolean
  /** Called each time that an instance is not idle. */
  readonly noteUsed: (instance: Instance) => void
  readonly published: {
    /** Called at each poll with the ports that the instance's owner publishes. */
    readonly note: (instance: Instance, asked: readonly CertificateRequest[]) => void
    /** Called before each round. */
    readonly noteLiving: (hostnames: ReadonlySet<string>) => void
  }
  /** Takes a snapshot that is due. Never rejects. */
  readonly takeScheduled: (instance: Instance) => Promise<void>
  /**
   * Takes a snapshot before the end. False if it should be tried again later; a snapshot that fails prevents no end.
   */
  readonly beforeEnd: (instance: Instance) => Promise<boolean>
  readonly endIdle: (instance: Instance) => Promise<void>
}

/** A request to the gateway leaves a trace in the VM for this long. */
const intervalMs = 60_000
/** Time for a busy guest to answer. */
const askTimeoutMs = 30_000

/** Polls every minute until the signal is aborted. Never rejects. */
export async function runIdleEnds(deps: IdleDeps, signal: AbortSignal): Promise<void> {
  const busy = new Set<string>()
  await sweepLater({ clock: deps.clock, intervalMs, signal }, () => {
    // A snapshot takes minutes, and the next round does not wait for it.
    endIdleOnes(deps, busy).catch(error => deps.log.warn('idle instances were not looked for', { error }))
  })
}

/** Polls each VM of a ready instance once, and ends those that are idle. Leaves out those that are `busy` with that. */
export async function endIdleOnes(deps: IdleDeps, busy: Set<string>): Promise<void> {
  const { directory, hostId } = deps
  const living = listLiving(directory.db, hostId)
  deps.published.noteLiving(new Set(living.map(({ hostname }) => hostname)))
  const ready = living.filter(({ id, status }) => status === 'ready' && !busy.has(id))
  await Promise.all(
    ready.map(async instance => {
      busy.add(instance.id)
      await endIfIdle(deps, instance).finally(() => busy.delete(instance.id))
    }),
  )
}

async function endIfIdle(deps: IdleDeps, instance: Instance): Promise<void> {
  const { directory, minutesOf, isSnapshotLost, pollIdle, takeScheduled, noteUsed, endIdle, log } = deps
  const { vmId } = instance
  if (vmId === null) return
  const slug = organizationById(directory.db, instance.organizationId)?.slug
  const isIdleNow = async () => {
    const minutes = slug === undefined ? null : minutesOf(slug)
    const poll = { minutes, ...(isSnapshotLost(instance) ? { isSnapshotLost: true as const } : {}) }
    const { isIdle, isSnapshotDue, published } = await pollIdle(vmId, poll, askTimeoutMs)
    deps.published.note(instance, published ?? [])
    if (isSnapshotDue === true) await takeScheduled(instance)
    return isIdle
  }
  try {
    if (!(await isIdleNow())) return noteUsed(instance)
    // The owner may have come back during the snapshot.
    if (!(await takeWhileIdle(deps, instance, isIdleNow)) || !(await isIdleNow())) return
    log.info('an instance ends, because its idle time is over', { instance: instance.id })
    await endIdle(instance)
  } catch (error) {
    // A VM of an earlier release refuses the question.
    log.debug('a VM did not say whether it is idle', { instance: instance.id, reason: messageOf(error) })
  }
}

/**
 * Takes the snapshot before the end, and polls on meanwhile: the VM counts a longer pause as use, and a request leaves
 * its trace for a minute only. False if the instance was used, or the snapshot should be tried again later.
 */
async function takeWhileIdle(
  { clock, log, beforeEnd }: IdleDeps,
  instance: Instance,
  isIdleNow: () => Promise<boolean>,
): Promise<boolean> {
  let wasUsed = false
  const isTaken = new AbortController()
  const polling = sweepLater({ clock, intervalMs, signal: isTaken.signal }, async () => {
    try {
      if (!(await isIdleNow())) wasUsed = true
    } catch (error) {
      // The poll after the snapshot decides.
      log.debug('a VM did not say whether it is idle', { instance: instance.id, reason: messageOf(error) })
    }
  })
  try {
    return (await beforeEnd(instance)) && !wasUsed
  } finally {
    isTaken.abort()
    await polling
  }
}
