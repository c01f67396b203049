// All relays of a gateway: starts them, replaces those that die or hang, sends them changes. Effects: processes.

import { type Clock, pause } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { createDeadlines } from '../../base/work/deadlines.ts'
import type { ServedTls } from '../../http/serve.ts'
import type { RelayGauges } from '../metrics/gateway.ts'
import { Member, type MemberTiming } from './member.ts'
import type { RelayOwnerDeps } from './relay-owner.ts'
import type { RelayTls, Setup } from './wire.ts'

export type RelaysDeps = RelayOwnerDeps & {
  readonly count: number
  readonly setup: Omit<Setup, 'kind' | 'listen' | 'tls' | 'isDraining' | 'upstreams'>
  readonly listen: { readonly hostname: string; readonly port: number }
  /** Null for plain HTTP. */
  readonly tls: ServedTls | null
  readonly guestName: string
  readonly clock: Clock
  readonly log: Logger
  readonly timing?: MemberTiming
}

const relayTiming: MemberTiming = { startMs: 60_000, pingMs: 5_000, pingsMax: 6 }
const retryMinMs = 100
const retryMaxMs = 10_000
/** Number of relays that may die before the first of them listens. No share: processes of ours. */
const startFailuresMax = 8
/** A relay that ran at least this long is restarted at once. */
const provenMs = 60_000

export class Relays {
  readonly #deps: RelaysDeps
  readonly #deadlines: ReturnType<typeof createDeadlines>
  readonly #stopping = new AbortController()
  readonly #members: (Member | null)[]
  readonly #ends: Promise<void>[] = []
  readonly #listening = Promise.withResolvers<void>()
  #isDraining = false
  #restarts = 0

  private constructor(deps: RelaysDeps) {
    this.#deps = deps
    this.#deadlines = createDeadlines(deps.clock)
    this.#members = Array.from({ length: deps.count }, () => null)
  }

  /**
   * Starts the relays. Resolves when the first listens; the others follow. Throws Fault host.unsupported if none
   * listens after all attempts.
   */
  static async start(deps: RelaysDeps): Promise<Relays> {
    const relays = new Relays(deps)
    for (const at of relays.#members.keys()) relays.#ends.push(relays.#keep(at))
    deps.tls?.onChange(() => relays.#tellTls())
    try {
      await relays.#listening.promise
      return relays
    } catch (error) {
      await relays.stop(false)
      throw error
    }
  }

  get counts(): RelayGauges {
    return { running: this.#members.filter(member => member?.isListening).length, restarts: this.#restarts }
  }

  /** Ids of the living processes. */
  get pids(): readonly number[] {
    return this.#members.flatMap(member => (member === null ? [] : [member.pid]))
  }

  drain(): void {
    this.#isDraining = true
    for (const member of this.#members) member?.send({ kind: 'drain' })
  }

  /** Stops all relays. With `isGraceful`, requests in flight may end; otherwise they are cut off. */
  async stop(isGraceful: boolean): Promise<void> {
    this.#stopping.abort()
    for (const member of this.#members) {
      member?.send({ kind: 'stop', isGraceful })
      if (!isGraceful) this.#deadlines.after(stopMs, () => member?.kill('it does not stop'))
    }
    await Promise.all(this.#ends)
  }

  async #keep(at: number): Promise<void> {
    const { clock, log } = this.#deps
    const { signal } = this.#stopping
    for (let retryMs = retryMinMs; !signal.aborted; retryMs = Math.min(2 * retryMs, retryMaxMs)) {
      const startedMs = clock.monotonicMs()
      const reason = await this.#run(at)
      if (signal.aborted) return
      if (clock.monotonicMs() - startedMs > provenMs) retryMs = retryMinMs
      log.error('a relay of the gateway has died; its connections are lost, and it is restarted', {
        reason,
        retryMs,
      })
      this.#restarts += 1
      // No effect once a relay has listened.
      if (this.#restarts > startFailuresMax)
        this.#listening.reject(new Fault('host.unsupported', `relays of the gateway: ${reason}`))
      await pause(clock, retryMs, signal)
    }
  }

  /** Runs one relay. Resolves to the reason why it ended. */
  async #run(at: number): Promise<string> {
    const { timing = relayTiming, log } = this.#deps
    try {
      const member = await Member.start({
        ...this.#deps,
        log: log.unit('relay'),
        deadlines: this.#deadlines,
        timing,
        onListening: this.#listening.resolve,
        setup: this.#setup(),
      })
      this.#members[at] = member
      if (this.#stopping.signal.aborted) member.kill('the gateway is stopping')
      return await member.ended
    } catch (error) {
      return error instanceof Error ? error.message : 'it does not start'
    } finally {
      this.#members[at] = null
    }
  }

  #setup(): Setup {
    const { setup, listen, upstreams } = this.#deps
    return { kind: 'setup', ...setup, listen, upstreams, tls: this.#tls(), isDraining: this.#isDraining }
  }

  #tls(): RelayTls | null {
    const { tls, guestName } = this.#deps
    if (tls === null) return null
    const { cert, key } = tls.current()
    return { cert, key, guests: tls.guestCertificate(), guestName, named: tls.named?.() ?? [] }
  }

  #tellTls(): void {
    const tls = this.#tls()
    if (tls !== null) for (const member of this.#members) member?.send({ kind: 'tls', tls })
  }
}

/** Deadline of a relay that stops without waiting for its requests. */
const stopMs = 5_000
