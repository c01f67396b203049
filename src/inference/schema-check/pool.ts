// Schedules jobs on schema children: one job at a time per key, keys with the least recent use first, so that a key
// with hostile schemas delays others by at most one job. Effects: those of the children.

import type { Clock } from '../../base/clock.ts'
import type { Deadlines } from '../../base/work/deadlines.ts'
import { BusyFault } from '../failure.ts'
import { ChildError, type SchemaChild, type StartSchemaChild } from './child.ts'
import type { Job, Reply } from './wire.ts'

export type PoolRequest = {
  /** Key of the job's client. */
  readonly key: string
  readonly job: Job
  /**
   * Whether the job checks text that is already generated. If so, it goes before the key's other jobs and is never
   * refused.
   */
  readonly isUrgent: boolean
  readonly signal: AbortSignal
}

export type PoolDeps = {
  readonly startChild: StartSchemaChild
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly deadlines: Deadlines
}

/** Share: one job at a time for a key; the keys with the least use go first. */
const childrenMax = 2
/** Share: `waitingPerKeyMax` for one key; the longest lane loses a job. */
const waitingMax = 512
/** Share: this limit is the share of one key. */
const waitingPerKeyMax = 64
const waitMs = 10_000
const waitUrgentMs = 30_000
/** Half-life of a key's recorded use. */
const usedHalfLifeMs = 30_000
/** No share: idle lanes with the least use are dropped. */
const lanesMax = 1_024

type QueuedCheck = PoolRequest & { readonly resolve: (reply: Reply) => void; readonly reject: (error: unknown) => void }

/** The jobs of one key. */
type Lane = { readonly waiting: QueuedCheck[]; isRunning: boolean; usedMs: number; usedAtMs: number }

type Slot = { child: SchemaChild | null; isBusy: boolean }

export class SchemaPool {
  readonly #deps: PoolDeps
  readonly #lanes = new Map<string, Lane>()
  readonly #slots: readonly Slot[] = Array.from({ length: childrenMax }, () => ({ child: null, isBusy: false }))
  #waitingCount = 0
  #isClosed = false

  constructor(deps: PoolDeps) {
    this.#deps = deps
  }

  /**
   * Runs a job. Rejects with BusyFault (too many wait, or the wait is too long), ChildError, or the signal's reason.
   */
  async run(request: PoolRequest): Promise<Reply> {
    request.signal.throwIfAborted()
    if (this.#isClosed) throw new ChildError('lost')
    const lane = this.#laneOf(request.key)
    if (!request.isUrgent) this.#makeRoom(lane)
    const { promise, resolve, reject } = Promise.withResolvers<Reply>()
    const waiting = { ...request, resolve, reject }
    const leave = (error: unknown) => {
      if (this.#remove(lane, waiting)) reject(error)
    }
    const onAbort = () => leave(request.signal.reason)
    const cancelWait = this.#deps.deadlines.after(request.isUrgent ? waitUrgentMs : waitMs, () => leave(busy()))
    request.signal.addEventListener('abort', onAbort, { once: true })
    const urgentCount = lane.waiting.filter(other => other.isUrgent).length
    lane.waiting.splice(request.isUrgent ? urgentCount : lane.waiting.length, 0, waiting)
    this.#waitingCount += 1
    this.#dispatch()
    try {
      return await promise
    } finally {
      cancelWait()
      request.signal.removeEventListener('abort', onAbort)
    }
  }

  /** Ends the children. */
  close(): void {
    this.#isClosed = true
    for (const lane of this.#lanes.values()) {
      for (const waiting of [...lane.waiting]) if (this.#remove(lane, waiting)) waiting.reject(new ChildError('lost'))
    }
    for (const slot of this.#slots) slot.child?.kill()
  }

  #laneOf(key: string): Lane {
    const known = this.#lanes.get(key)
    if (known !== undefined) return known
    if (this.#lanes.size >= lanesMax) this.#forgetIdleLanes()
    const lane = { waiting: [], isRunning: false, usedMs: 0, usedAtMs: this.#deps.clock.monotonicMs() }
    this.#lanes.set(key, lane)
    return lane
  }

  /** Drops the idle half with the least use; there are as many busy lanes as running requests. */
  #forgetIdleLanes(): void {
    const idle = [...this.#lanes].filter(([, lane]) => !lane.isRunning && lane.waiting.length === 0)
    idle.sort(([, a], [, b]) => this.#usedOf(a) - this.#usedOf(b))
    for (const [key] of idle.slice(0, Math.ceil(idle.length / 2))) this.#lanes.delete(key)
  }

  /**
   * Makes room if too many wait: drops the newest job of the longest lane, or the new one if it belongs to that lane.
   */
  #makeRoom(lane: Lane): void {
    if (lane.waiting.length >= waitingPerKeyMax) throw busy()
    if (this.#waitingCount < waitingMax) return
    let longest = lane
    for (const other of this.#lanes.values()) if (other.waiting.length > longest.waiting.length) longest = other
    const newest = longest.waiting.findLast(waiting => !waiting.isUrgent)
    if (longest === lane || newest === undefined) throw busy()
    this.#remove(longest, newest)
    newest.reject(busy())
  }

  #remove(lane: Lane, waiting: QueuedCheck): boolean {
    const at = lane.waiting.indexOf(waiting)
    if (at < 0) return false
    lane.waiting.splice(at, 1)
    this.#waitingCount -= 1
    return true
  }

  #dispatch(): void {
    for (const slot of this.#slots) {
      if (slot.isBusy) continue
      const lane = this.#nextLane()
      const waiting = lane?.waiting[0]
      if (lane === null || waiting === undefined) return
      this.#remove(lane, waiting)
      void this.#serve(slot, lane, waiting)
    }
  }

  #nextLane(): Lane | null {
    let next: Lane | null = null
    for (const lane of this.#lanes.values()) {
      if (lane.isRunning || lane.waiting.length === 0) continue
      if (next === null || this.#usedOf(lane) < this.#usedOf(next)) next = lane
    }
    return next
  }

  #usedOf(lane: Lane): number {
    return lane.usedMs * 2 ** ((lane.usedAtMs - this.#deps.clock.monotonicMs()) / usedHalfLifeMs)
  }

  async #serve(slot: Slot, lane: Lane, { job, resolve, reject }: QueuedCheck): Promise<void> {
    const startedMs = this.#deps.clock.monotonicMs()
    slot.isBusy = true
    lane.isRunning = true
    try {
      if (!slot.child?.isAlive()) slot.child = await this.#deps.startChild()
      if (this.#isClosed) slot.child.kill()
      resolve(await slot.child.run(job))
    } catch (error) {
      slot.child?.kill()
      slot.child = null
      reject(error)
    }
    const nowMs = this.#deps.clock.monotonicMs()
    lane.usedMs = this.#usedOf(lane) + (nowMs - startedMs)
    lane.usedAtMs = nowMs
    lane.isRunning = false
    slot.isBusy = false
    this.#dispatch()
  }
}

function busy(): BusyFault {
  return new BusyFault('Too many schemas of response_format wait for their check.', 1)
}
