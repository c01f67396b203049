// Sessions of the console. State in memory, without the secrets: a restart of the daemon ends all of them.

import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Person } from '../person.ts'
import { drawToken, tokenDigest } from './token.ts'

/**
 * Sessions of one person; the one that was idle for longest is dropped.
 * Share: this limit is the share of one person.
 */
const sessionsPerActorMax = 16
/**
 * Share: `sessionsPerActorMax` for one person; the session that was idle for longest is dropped.
 */
const sessionsMax = 256

export type SessionsDeps = {
  readonly clock: Pick<Clock, 'monotonicMs' | 'nowMs'>
  readonly random: RandomBytes
  readonly idleMs: number
  readonly lifeMs: number
}

export type LoggedInBy = 'link' | 'passkey'

export type Session = {
  /** Names it to its person; no secret. */
  readonly id: string
  readonly person: Person
  readonly by: LoggedInBy
  /** The passkey that it began by; null means a link. */
  readonly passkeyId: string | null
  readonly beganAtMs: number
  /** At the latest. */
  readonly endsAtMs: number
  /** Aborted when it ends, however it does. */
  readonly ended: AbortSignal
}

type OpenSession = {
  readonly session: Session
  readonly ending: AbortController
  readonly endsMonotonicMs: number
  usedMonotonicMs: number
}

export class Sessions {
  readonly #deps: SessionsDeps
  /** By digest of the secret. */
  readonly #open = new Map<string, OpenSession>()

  constructor(deps: SessionsDeps) {
    this.#deps = deps
  }

  /** `token`: for the cookie, once. */
  begin(person: Person, passkeyId: string | null): { readonly token: string; readonly session: Session } {
    const { clock, random, lifeMs } = this.#deps
    this.sweep()
    this.#makeRoom(person.actor)
    const { text, digest } = drawToken(random)
    const nowMs = clock.nowMs()
    const monotonicMs = clock.monotonicMs()
    const ending = new AbortController()
    const session: Session = {
      id: digest.slice(0, 16),
      person,
      by: passkeyId === null ? 'link' : 'passkey',
      passkeyId,
      beganAtMs: nowMs,
      endsAtMs: nowMs + lifeMs,
      ended: ending.signal,
    }
    this.#open.set(digest, { session, ending, endsMonotonicMs: monotonicMs + lifeMs, usedMonotonicMs: monotonicMs })
    return { token: text, session }
  }

  /** The session of a cookie, null if there is none. `isUse`: the person did something, so that it is not idle. */
  find(token: string, { isUse }: { readonly isUse: boolean }): Session | null {
    this.sweep()
    const digest = tokenDigest(token)
    const kept = digest === null ? undefined : this.#open.get(digest)
    if (kept === undefined) return null
    if (isUse) kept.usedMonotonicMs = this.#deps.clock.monotonicMs()
    return kept.session
  }

  /** Ends those that a test picks. Returns how many. */
  end(isMeant: (session: Session) => boolean): number {
    let count = 0
    for (const [digest, { session, ending }] of this.#open) {
      if (!isMeant(session)) continue
      this.#open.delete(digest)
      ending.abort()
      count += 1
    }
    return count
  }

  /** Ends those whose time is over. */
  sweep(): void {
    const nowMs = this.#deps.clock.monotonicMs()
    for (const [digest, { ending, endsMonotonicMs, usedMonotonicMs }] of this.#open) {
      if (nowMs < endsMonotonicMs && nowMs - usedMonotonicMs < this.#deps.idleMs) continue
      this.#open.delete(digest)
      ending.abort()
    }
  }

  list(): Session[] {
    this.sweep()
    return [...this.#open.values()].map(({ session }) => session)
  }

  get idleMs(): number {
    return this.#deps.idleMs
  }

  #makeRoom(actor: string): void {
    const all = [...this.#open.values()]
    this.#endIdlest(
      all.filter(({ session }) => session.person.actor === actor),
      sessionsPerActorMax,
    )
    this.#endIdlest(all, sessionsMax)
  }

  #endIdlest(kept: readonly OpenSession[], countMax: number): void {
    if (kept.length < countMax) return
    const [idlest] = [...kept].sort((a, b) => a.usedMonotonicMs - b.usedMonotonicMs)
    if (idlest !== undefined) this.end(({ id }) => id === idlest.session.id)
  }
}
