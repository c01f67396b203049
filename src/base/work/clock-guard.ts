// Protects records from a wall clock that is wrong, at the start of the daemon or later. It follows the host's uptime
// from the last trusted time, which outlives the daemon. While the wall clock differs from that, nothing is deleted
// by age until the clock is right again, or until an operator confirms it. Effects: the log, what it is given.

import { type Clock, iso } from '../clock.ts'
import type { Logger } from '../log.ts'
import { sweep } from './sweep.ts'

/** A trusted time, with the corresponding time of the host's own clock. */
export type ClockMark = { readonly wallMs: number; readonly bootId: string; readonly uptimeMs: number }

/** Time as the host measures it, independent of the wall clock. */
export type HostTime = {
  /** Another one after each boot. */
  readonly bootId: string
  /** Milliseconds since the boot, sleep included; never decreases. */
  readonly uptimeMs: () => number
  /** Whether the kernel reports that a time server keeps its clock. */
  readonly isSynchronised: () => boolean
}

export type ClockGuardDeps = {
  readonly clock: Pick<Clock, 'nowMs' | 'sleep'>
  readonly host: HostTime
  /** Null if this database has no mark and no record, so the wall clock is all there is. */
  readonly readMark: () => ClockMark | null
  readonly writeMark: (mark: ClockMark) => void
  readonly log: Pick<Logger, 'error' | 'warn' | 'info'>
  readonly onEvent: (kind: string, detail: Record<string, unknown>) => void
}

export type ClockView = {
  readonly isHeld: boolean
  /** Wall clock less the least that it must be; negative: the clock is behind. */
  readonly aheadMs: number
  /** The least that the time must be. */
  readonly certainMs: number
}

/** Smaller differences do not matter: records are kept for days. */
const toleranceMs = 60 * 60 * 1000
/** A host that was off for at most this time is trusted once a time server keeps its clock. */
const absenceMs = 7 * 24 * 60 * 60 * 1000
export const clockMarkIntervalMs = 60_000

export const clockRemedy =
  'compare it with another clock; if it is wrong, set it right (timedatectl, chronyc makestep), else run strongroom clock confirm'

export class ClockGuard {
  readonly #deps: ClockGuardDeps
  /** Wall time less uptime, as believed. */
  #offsetMs: number
  #held: 'ahead' | 'behind' | null = null

  /** Throws what `readMark` throws. */
  constructor(deps: ClockGuardDeps) {
    this.#deps = deps
    const { clock, host } = deps
    const uptimeMs = host.uptimeMs()
    const mark = deps.readMark()
    this.#offsetMs = (mark === null ? clock.nowMs() : leastMs(mark, host.bootId, uptimeMs)) - uptimeMs
    // Before an event of the hold, whose time is the wrong one.
    this.#store(this.#offsetMs + uptimeMs)
    this.#look()
  }

  /** Whether records may be deleted by their age now. */
  mayDelete(): boolean {
    return !this.#look().isHeld
  }

  /** The wall clock, or the least that the time must be while the wall clock is held to be wrong. */
  certainMs(): number {
    const { certainMs, isHeld, aheadMs } = this.#look()
    return isHeld ? Math.min(certainMs, certainMs + aheadMs) : certainMs
  }

  view(): ClockView {
    return this.#look()
  }

  /** Confirms for the operator that the wall clock is right. Returns its time. */
  confirm(): number {
    const { clock, host, log, onEvent } = this.#deps
    const { aheadMs } = this.#look()
    const nowMs = clock.nowMs()
    this.#offsetMs = nowMs - host.uptimeMs()
    this.#held = null
    this.#keep()
    const fields = { now: iso(nowMs), aheadMs: Math.round(aheadMs) }
    log.info('the clock was confirmed; what is due by it is deleted', fields)
    onEvent('host.clock_confirmed', fields)
    return nowMs
  }

  /** Looks and keeps the mark until the signal is aborted, and once more then. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    await sweep({ clock: this.#deps.clock, intervalMs: clockMarkIntervalMs, signal }, () => this.#keep())
    this.#keep()
  }

  #keep(): void {
    this.#store(this.#look().certainMs)
  }

  #store(wallMs: number): void {
    const { host, writeMark, log } = this.#deps
    try {
      writeMark({ wallMs, bootId: host.bootId, uptimeMs: host.uptimeMs() })
    } catch (error) {
      log.warn('the time of the last look at the clock was not stored', { error })
    }
  }

  #look(): ClockView {
    const { clock, host } = this.#deps
    const uptimeMs = host.uptimeMs()
    const nowMs = clock.nowMs()
    const aheadMs = nowMs - uptimeMs - this.#offsetMs
    const isRight = Math.abs(aheadMs) <= toleranceMs
    const isBelieved = isRight || (aheadMs > 0 && aheadMs <= absenceMs && host.isSynchronised())
    if (!isBelieved) {
      this.#hold({ aheadMs, nowMs })
      return { isHeld: true, aheadMs, certainMs: nowMs - aheadMs }
    }
    this.#offsetMs = nowMs - uptimeMs
    if (this.#held !== null) {
      this.#held = null
      this.#deps.log.info('the clock is trusted again; records are deleted by age', { now: iso(nowMs) })
      this.#deps.onEvent('host.clock_believed', { now: iso(nowMs) })
    }
    return { isHeld: false, aheadMs: 0, certainMs: nowMs }
  }

  #hold({ aheadMs, nowMs }: { aheadMs: number; nowMs: number }): void {
    const held = aheadMs > 0 ? 'ahead' : 'behind'
    if (this.#held === held) return
    this.#held = held
    const fields = { now: clockText(nowMs), certain: clockText(nowMs - aheadMs), aheadMs: Math.round(aheadMs) }
    this.#deps.log.error(`the clock is ${held}; nothing is deleted by age until it is right or confirmed`, {
      ...fields,
      remedy: clockRemedy,
    })
    this.#deps.onEvent('host.clock_held', fields)
  }
}

/** After a reboot it is unknown how long the host was off. */
function leastMs(mark: ClockMark, bootId: string, uptimeMs: number): number {
  const passedMs = mark.bootId === bootId ? uptimeMs - mark.uptimeMs : 0
  return mark.wallMs + Math.max(0, passedMs)
}

/** A wrong clock may be beyond what a date can say. */
export function clockText(ms: number): string {
  return Math.abs(ms) <= dateMsMax ? iso(ms) : String(ms)
}

/** ECMA-262, time values: 100 million days either way. */
const dateMsMax = 8.64e15

/** How the clock differs, for people. */
export function clockProblem({ isHeld, aheadMs, certainMs }: ClockView): string | null {
  if (!isHeld) return null
  const differs = `${durationText(Math.abs(aheadMs))} ${aheadMs > 0 ? 'ahead of' : 'behind'}`
  const least = `it must be ${clockText(certainMs)} at least`
  return `the clock of this host shows ${clockText(certainMs + aheadMs)}, ${differs} what is certain (${least}); nothing is deleted by age`
}

function durationText(ms: number): string {
  const hours = Math.floor(ms / 3_600_000)
  return hours < 48 ? `${hours} hours` : `${Math.floor(hours / 24)} days`
}
