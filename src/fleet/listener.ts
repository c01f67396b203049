// Wakes this host when another one has changed the directory (LISTEN). Effects: one connection to PostgreSQL, which is
// reopened after it ends. Notifications only shorten the wait for a change: callers also poll at intervals.

import { type Clock, onAbort, pause } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { BackOff } from '../base/work/back-off-state.ts'
import {
  openSingle,
  POSTGRES_LIMITS,
  type PostgresLimits,
  type PostgresTarget,
  type SingleConnection,
} from './driver.ts'
import { reasonOf } from './failures.ts'
import { type Announcement, announcementChannel, readAnnouncement } from './replica/announcement.codec.ts'

const retryRange = { minMs: 200, maxMs: 4_000 }

/** Interval of statements that detect a connection that a firewall has silently dropped. */
const probeEveryMs = 30_000

export type ListenerDeps = {
  readonly target: PostgresTarget
  readonly limits?: Partial<PostgresLimits>
  readonly clock: Clock
  readonly log: Logger
  /**
   * Called with the version that was created; null for a new connection, which may have missed some. Must not throw.
   */
  readonly onChange: (announcement: Announcement | null) => void
  readonly signal: AbortSignal
}

/** Listens until the signal is aborted. Never rejects. */
export async function listenForChanges(deps: ListenerDeps): Promise<void> {
  const { clock, log, signal } = deps
  const backOff = new BackOff(retryRange, clock)
  while (!signal.aborted) {
    try {
      await listenOnce(deps, () => backOff.reset())
    } catch (error) {
      log.debug('no connection that listens to the directory', { problem: reasonOf(error) })
    }
    if (!signal.aborted) await pause(clock, backOff.failed(), signal)
  }
}

/** Listens on one connection. Returns or rejects when it ends. */
async function listenOnce(deps: ListenerDeps, onConnected: () => void): Promise<void> {
  const { target, limits, clock, signal } = deps
  const connection = await openSingle(target, { ...POSTGRES_LIMITS, ...limits })
  const ended = new Promise<void>(resolve => connection.client.once('end', () => resolve()))
  const stop = onAbort(signal, connection.destroy)
  try {
    await connection.connect()
    connection.client.on('notification', ({ payload }) => deps.onChange(readAnnouncement(payload)))
    await connection.client.query(`LISTEN ${announcementChannel}`)
    onConnected()
    deps.onChange(null)
    await Promise.race([ended, probe(connection, clock, signal)])
  } finally {
    stop()
    connection.destroy()
  }
}

/** Rejects if a statement gets no response. */
async function probe({ client }: SingleConnection, clock: Clock, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await pause(clock, probeEveryMs, signal)
    if (!signal.aborted) await client.query('SELECT 1')
  }
}
