// Answers instances' queries under a list of permitted names: queries a resolver for a listed name, opens its
// addresses, then answers. Effects: those of `ask` and `open`; its own bounded memory; the log.
//
// Only a query's name and IPv4 or IPv6 are forwarded: no other type, no option, no letter case.

import type { Clock } from '../../base/clock.ts'
import { type AddressType, addressesOf } from '../../base/dns/addresses.plan.ts'
import type { DnsAnswer } from '../../base/dns/answer.codec.ts'
import { CLASS_IN, headerBytes, TYPE } from '../../base/dns/wire.codec.ts'
import { messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { NameList } from '../../config/allow-names.ts'
import { v4Bytes, v6Bytes } from '../dns/address.plan.ts'
import { type DnsRecord, type DnsReply, type Query, RCODE, readQuery, writeResponse } from '../dns/message.codec.ts'

export type GuestResolverDeps = {
  readonly list: Pick<NameList, 'allows'>
  /** Address types that instances have. Queries for others are not forwarded. */
  readonly types: readonly AddressType[]
  readonly isInstance: (address: string) => boolean
  /** Returns whether an address may be returned. `open`: without opening it first. `denied`: never. */
  readonly kindOf: (address: string) => 'world' | 'open' | 'denied'
  /** Addresses of resolvers, in the order in which they are queried. */
  readonly resolvers: readonly string[]
  /** Queries a resolver. Rejects if there is no answer. */
  readonly ask: (question: { server: string; name: string; type: AddressType }) => Promise<DnsAnswer>
  /**
   * Opens addresses, and resolves when they are open; false if there is no slot for them. Rejects if they cannot be
   * opened.
   */
  readonly open: (addresses: readonly { address: string; timeoutMs: number }[], by: string) => Promise<boolean>
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly log: Logger
  readonly limits?: Partial<GuestResolverLimits>
}

export type GuestResolverLimits = {
  readonly ttlSecondsMin: number
  readonly ttlSecondsMax: number
  /** How long an address stays open after its TTL, because connections start slightly later. */
  readonly graceMs: number
  /** How long the absence of an address is cached. */
  readonly absentMs: number
  readonly cachedMax: number
  /** Limit on concurrent queries to resolvers. */
  readonly forwardsMax: number
  /** Limits on waiting queries of one instance, and of all together. */
  readonly waitingOfOneMax: number
  readonly waitingMax: number
  readonly logIntervalMs: number
}

const defaultLimits: GuestResolverLimits = {
  ttlSecondsMin: 30,
  ttlSecondsMax: 3_600,
  graceMs: 60_000,
  absentMs: 5_000,
  /** No share: names of the operator's list; the oldest is dropped. */
  cachedMax: 4_096,
  /** Share: `waitingOfOneMax` for one instance. */
  forwardsMax: 128,
  /** Share: this limit is the share of one instance. */
  waitingOfOneMax: 32,
  /** Share: `waitingOfOneMax` for one instance. */
  waitingMax: 1_024,
  logIntervalMs: 60_000,
}

/** Extended error code "Blocked" (RFC 8914 4.16). */
const blocked = 15

/** Result for a name. */
type ResolvedName =
  | { readonly kind: 'found'; readonly addresses: readonly string[] }
  /**
   * `none`: no address of this type; `absent`: no such name; `blocked`: only addresses that instances may not reach.
   */
  | { readonly kind: 'none' | 'absent' | 'blocked' }
  | { readonly kind: 'failed' }
type CachedName = { readonly known: ResolvedName; readonly untilMs: number }

export type GuestResolverCounts = {
  readonly answered: number
  readonly blocked: number
  readonly failed: number
}

export class GuestResolver {
  readonly #deps: GuestResolverDeps
  readonly #limits: GuestResolverLimits
  readonly #cache = new Map<string, CachedName>()
  readonly #forwards = new Map<string, Promise<CachedName>>()
  readonly #waitingBy = new Map<string, number>()
  #waiting = 0
  readonly #counts = { answered: 0, blocked: 0, failed: 0 }
  readonly #said = { blocked: Number.NEGATIVE_INFINITY, failed: Number.NEGATIVE_INFINITY }

  constructor(deps: GuestResolverDeps) {
    this.#deps = deps
    this.#limits = { ...defaultLimits, ...deps.limits }
  }

  counts(): GuestResolverCounts {
    return { ...this.#counts }
  }

  /** Returns the response; null if there is none, or `later` receives it. Never throws, for any bytes. */
  respond(message: Uint8Array, from: string, later: (response: Uint8Array) => void): Uint8Array | null {
    if (!this.#deps.isInstance(from)) return null
    const read = readQuery(message)
    if (read.kind !== 'query') return read.kind === 'refused' ? read.response : null
    const { query } = read
    const decided = this.#decide(query, from)
    if (decided.kind === 'reply') return writeResponse(query, decided.reply, null)
    const { name, type } = decided
    const kept = this.#cache.get(keyOf(decided))
    if (kept !== undefined && kept.untilMs > this.#deps.clock.monotonicMs()) return this.#write(query, kept)
    if (!this.#enter(from)) return writeResponse(query, this.#failed({ name, from, why: 'too many questions' }), null)
    void this.#known({ name, type }, from)
      .then(found => later(this.#write(query, found)))
      .finally(() => this.#leave(from))
    return null
  }

  #decide(
    { question, edns }: Query,
    from: string,
  ): { kind: 'reply'; reply: DnsReply } | { kind: 'ask'; name: string; type: AddressType } {
    const reply = (change: Partial<DnsReply>) => ({ kind: 'reply', reply: { ...NOTHING, ...change } }) as const
    if (edns !== null && edns.version !== 0) return reply({ rcode: RCODE.badVersion })
    if (question === null) return reply({})
    if (question.class !== CLASS_IN) return reply({ rcode: RCODE.refused })
    const labels = question.labels.map(label => label.toLowerCase())
    const name = labels.every(label => LABEL.test(label)) ? labels.join('.') : null
    if (name === null || !this.#deps.list.allows(name)) {
      this.#count('blocked', { from, name: name ?? '(no name of a host)' })
      return reply({ rcode: RCODE.nameError, extendedError: blocked })
    }
    const type = this.#deps.types.find(kind => TYPE[kind] === question.type)
    // An empty answer for another type lets clients continue.
    return type === undefined ? reply({}) : { kind: 'ask', name, type }
  }

  #enter(from: string): boolean {
    const ofOne = this.#waitingBy.get(from) ?? 0
    if (ofOne >= this.#limits.waitingOfOneMax || this.#waiting >= this.#limits.waitingMax) return false
    this.#waitingBy.set(from, ofOne + 1)
    this.#waiting += 1
    return true
  }

  #leave(from: string): void {
    this.#waiting -= 1
    const left = (this.#waitingBy.get(from) ?? 1) - 1
    if (left === 0) this.#waitingBy.delete(from)
    else this.#waitingBy.set(from, left)
  }

  /** Resolves a name. Concurrent queries for the same name share the result. Never rejects. */
  #known(asked: { name: string; type: AddressType }, from: string): Promise<CachedName> {
    const key = keyOf(asked)
    const under = this.#forwards.get(key)
    if (under !== undefined) return under
    const failed = { known: { kind: 'failed' }, untilMs: 0 } as const
    if (this.#forwards.size >= this.#limits.forwardsMax) {
      this.#count('failed', { from, name: asked.name, why: 'too many questions are under way' })
      return Promise.resolve(failed)
    }
    const forward = this.#forward(asked, from)
      .then(kept => {
        this.#cache.delete(key)
        this.#cache.set(key, kept)
        const [oldest] = this.#cache.keys()
        if (this.#cache.size > this.#limits.cachedMax && oldest !== undefined) this.#cache.delete(oldest)
        return kept
      })
      .catch(error => {
        this.#count('failed', { from, name: asked.name, why: messageOf(error) })
        return failed
      })
      .finally(() => this.#forwards.delete(key))
    this.#forwards.set(key, forward)
    return forward
  }

  /** Queries resolvers. Throws if none gave a usable answer, or its addresses cannot be opened. */
  async #forward(asked: { name: string; type: AddressType }, from: string): Promise<CachedName> {
    const { kindOf, open, clock } = this.#deps
    const { ttlSecondsMin, ttlSecondsMax, graceMs, absentMs } = this.#limits
    const answer = await this.#ask(asked)
    const until = (ms: number) => clock.monotonicMs() + ms
    if (answer.code === 'NXDOMAIN') return { known: { kind: 'absent' }, untilMs: until(absentMs) }
    const found = addressesOf(answer.answers, asked)
    if (found === null) throw new Error('the answer leads nowhere')
    if (found.addresses.length === 0) return { known: { kind: 'none' }, untilMs: until(absentMs) }
    const told = found.addresses.map(address => ({ address, kind: kindOf(address) }))
    const addresses = told.flatMap(({ address, kind }) => (kind === 'denied' ? [] : [address]))
    if (addresses.length < told.length)
      this.#count('blocked', { from, name: asked.name, why: 'it leads to addresses that instances never reach' })
    if (addresses.length === 0) return { known: { kind: 'blocked' }, untilMs: until(absentMs) }
    const ttlMs = 1000 * Math.min(ttlSecondsMax, Math.max(ttlSecondsMin, found.ttlSeconds))
    const untilMs = until(ttlMs)
    const toOpen = told.flatMap(({ address, kind }) =>
      kind === 'world' ? [{ address, timeoutMs: ttlMs + graceMs }] : [],
    )
    if (toOpen.length > 0 && !(await open(toOpen, from))) throw new Error('too many addresses are open already')
    return { known: { kind: 'found', addresses }, untilMs }
  }

  async #ask(asked: { name: string; type: AddressType }): Promise<DnsAnswer> {
    let failure: unknown = new Error('there is no resolver to ask')
    for (const server of this.#deps.resolvers) {
      try {
        const answer = await this.#deps.ask({ server, ...asked })
        if (!answer.isTruncated && (answer.code === 'NOERROR' || answer.code === 'NXDOMAIN')) return answer
        failure = new Error(`${server} answers ${answer.isTruncated ? 'more than fits a datagram' : answer.code}`)
      } catch (error) {
        failure = error
      }
    }
    throw failure
  }

  #write(query: Query, { known, untilMs }: CachedName): Uint8Array {
    if (known.kind === 'failed') {
      const reply = { ...NOTHING, rcode: RCODE.serverFailure }
      return writeResponse(query, reply, null)
    }
    this.#counts.answered += 1
    if (known.kind !== 'found') {
      const rcode = known.kind === 'absent' ? RCODE.nameError : RCODE.ok
      const error = known.kind === 'blocked' ? { extendedError: blocked } : {}
      return writeResponse(query, { ...NOTHING, rcode, ...error }, null)
    }
    const leftMs = Math.max(0, untilMs - this.#deps.clock.monotonicMs())
    const answers = known.addresses.map(address => recordOf(address, Math.ceil(leftMs / 1000)))
    return writeResponse(query, { ...NOTHING, answers }, null)
  }

  #failed(what: { from: string; name: string; why: string }): DnsReply {
    this.#count('failed', what)
    return { ...NOTHING, rcode: RCODE.serverFailure }
  }

  /** Counts an event. Logs rarely, because instances choose their query rate. */
  #count(kind: 'blocked' | 'failed', detail: { from: string; name: string; why?: string }): void {
    this.#counts[kind] += 1
    const nowMs = this.#deps.clock.monotonicMs()
    if (nowMs - this.#said[kind] < this.#limits.logIntervalMs) return
    this.#said[kind] = nowMs
    const text =
      kind === 'blocked' ? 'an instance may not reach the name that it looks up' : 'a name could not be looked up'
    this.#deps.log.warn(text, { ...detail, since_start: this.#counts[kind] })
  }
}

const NOTHING: DnsReply = {
  rcode: RCODE.ok,
  authoritative: false,
  truncated: false,
  recursion: true,
  answers: [],
  authorities: [],
  additionals: [],
}

const LABEL = /^[a-z0-9_-]{1,63}$/

function keyOf({ name, type }: { name: string; type: AddressType }): string {
  return `${type} ${name}`
}

/** Returns a record under the queried name, even after aliases. */
function recordOf(address: string, ttlSeconds: number): DnsRecord {
  const owner = { at: headerBytes }
  return address.includes(':')
    ? { type: 'AAAA', owner, ttlSeconds, address: v6Bytes(address) }
    : { type: 'A', owner, ttlSeconds, address: v4Bytes(address) }
}
