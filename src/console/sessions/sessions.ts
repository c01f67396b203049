// Sessions of the console. State in memory, without the secrets: a restart of the daemon ends all of them.

import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Person } from '../person.ts'
import { drawToken, tokenDigest } from './token.ts'

/** Sessions of one person; the one idle for longest is dropped. Share: this limit is the share of one person. */
const sessionsPerActorMax = 16
/**
 * Sessions of all persons.
 * Share: `sessionsPerActorMax` for one person; the session idle for longest is dropped.
 */
const sessionsMax = 256

export type SessionsDeps = {
  readonly clock: Pick<Clock, 'monotonicMs' | 'nowMs'>
  readonly random: RandomBytes
  readonly idleMs: number
  readonly lifeMs: number
}

/** `oidc`: at the identity provider. */
export type LoggedInBy = 'link' | 'passkey' | 'oidc'

/** How a person signed in. */
export type LogIn = {
  readonly person: Person
  readonly by: LoggedInBy
  /** The passkey used to log in; null unless `by` is `passkey`. */
  readonly passkeyId: string | null
}

export type Session = LogIn & {
  /** Identifies the session to its person; not secret. */
  readonly id: string
  readonly beganAtMs: number
  /** Latest end of the session. */
  readonly endsAtMs: number
  /** Aborted when the session ends, for any reason. */
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
  /** Sessions by digest of the secret. */
  readonly #open = new Map<string, OpenSession>()

  constructor(deps: SessionsDeps) {
    this.#deps = deps
  }

  /** Begins a session. `token`: the secret for the cookie, returned only here. */
  begin({ person, by, passkeyId }: LogIn): { readonly token: string; readonly session: Session } {
    const { clock, random, lifeMs } = this.#deps
    this.sweep()
    this.#makeRoom(person.actor)
    const { text, digest } = drawToken(random)
    const nowMs = clock.nowMs()
    const monotonicMs = clock.monotonicMs()
    const ending = new AbortController()
    const session: Session = {
      id: digest.slice(0, 16),
      ...{ person, by, passkeyId },
      beganAtMs: nowMs,
      endsAtMs: nowMs + lifeMs,
      ended: ending.signal,
    }
    this.#open.set(digest, { session, ending, endsMonotonicMs: monotonicMs + lifeMs, usedMonotonicMs: monotonicMs })
    return { token: text, session }
  }

  /** Returns the session of a cookie; null if there is none. `isUse`: a person acted, which resets the idle time. */
  find(token: string, { isUse }: { readonly isUse: boolean }): Session | null {
    this.sweep()
    const digest = tokenDigest(token)
    const kept = digest === null ? undefined : this.#open.get(digest)
    if (kept === undefined) return null
    if (isUse) kept.usedMonotonicMs = this.#deps.clock.monotonicMs()
    return kept.session
  }

  /** Ends the sessions for which `isMeant` returns true. Returns their number. */
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

  /** Ends expired and idle sessions. */
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
