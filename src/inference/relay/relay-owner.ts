// The owner's side of one relay: decides for it and keeps the accounts of its requests. Effects: those of its
// dependencies.
//
// Each request has one entry from admission to end, with everything that it holds. When the relay dies, all of it is
// released and the work of upstreams is recorded.

import { Fault } from '../../base/fault.ts'
import { LOG_LEVELS, type LogFields, type Logger, type LogLevel } from '../../base/log.ts'
import type { TextCache } from '../../base/work/text-cache.ts'
import type { TraceSpan } from '../../contract/vm/span.ts'
import type { CheckReplay } from '../encryption/replays.ts'
import type { Entry } from '../gateway/enter.ts'
import { NO_UPSTREAMS } from '../gateway/failover.ts'
import type { Gateway } from '../gateway/gateway.ts'
import { clientGoneStatus } from '../gateway/respond.ts'
import type { EarlierSurvey, ResponseMemory } from '../gateway/response-memory.ts'
import { NO_TOKENS, type RequestAccount } from '../metering/account.ts'
import { hasBudget } from '../metering/budgets.ts'
import type { Caller, EncryptionCounts } from '../types.ts'
import type { Lease } from '../upstream/router.ts'
import type { UpstreamTarget } from '../upstream/target.ts'
import { faultOf, wireFaultOf } from './faults.ts'
import { type Forwarded, forward } from './forward.ts'
import type { Ask, AskName, Asks, FromOwner, FromRelay } from './wire.ts'

export type RelayOwnerDeps = {
  readonly gateway: Pick<Gateway, 'enter' | 'acquire' | 'place' | 'fetch'>
  readonly upstreams: readonly UpstreamTarget[]
  readonly keptReceipts: Pick<TextCache, 'keep'>
  readonly responses: ResponseMemory
  readonly encryptionCounts: EncryptionCounts
  readonly checkReplay: CheckReplay
  readonly offerSpan: (span: TraceSpan) => void
  readonly log: Logger
}

/** One request of the relay. */
type OpenRequest = {
  readonly account: RequestAccount
  readonly keyDigest: string
  lease: Lease<UpstreamTarget> | null
  /** Set while the request waits for an upstream; otherwise null. */
  waiting: AbortController | null
  delivered: number
}

/** The end of a request whose relay has died. */
const ABORTED = {
  outcome: 'aborted',
  tokensSource: 'estimated',
  status: clientGoneStatus,
  errorCode: null,
} as const

/**
 * Forwarded requests of one relay that may run at the same time. No share: waiting requests are limited by
 * organization, network or address.
 */
const forwardedMax = 1_024

export class RelayOwner {
  readonly #deps: RelayOwnerDeps
  readonly #send: (message: FromOwner) => void
  readonly #open = new Map<string, OpenRequest>()
  readonly #forwarded = new Map<number, AbortController>()
  /** The upstreams' keys as last sent to the relay. */
  readonly #sentKeys: (string | null)[]
  /** For the next request that has to wait for an upstream; never aborted before. */
  #nextWaiting = new AbortController()
  #isClosed = false

  constructor(deps: RelayOwnerDeps, send: (message: FromOwner) => void) {
    this.#deps = deps
    this.#send = send
    this.#sentKeys = deps.upstreams.map(({ key }) => key)
  }

  /** Number of running requests. */
  get size(): number {
    return this.#open.size
  }

  /** Handles all messages except those about the relay itself. */
  handleMessage(message: Exclude<FromRelay, { readonly kind: 'listening' | 'pong' }>): void {
    switch (message.kind) {
      case 'cancel':
        this.#cancel(message.id)
        break
      case 'release':
        this.#release(message.id, message.health)
        break
      case 'progress':
        this.#note(message.delivered)
        break
      case 'keepReceipt':
        this.#keepReceipt(message)
        break
      case 'keepResponse':
        this.#keepResponse(message)
        break
      case 'counted':
        this.#deps.encryptionCounts[message.suite][message.outcome] += 1
        break
      case 'log':
        this.#log(message.line)
        break
      case 'forget':
        this.#forwarded.get(message.ask)?.abort()
        break
      default:
        this.#serve(message)
    }
  }

  /**
   * Releases everything that the dead relay's requests hold and writes their rows. Resolves once the rows are stored.
   */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const controller of this.#forwarded.values()) controller.abort()
    const all = [...this.#open.values()]
    this.#open.clear()
    await Promise.all(
      all.map(({ account, waiting, lease, delivered }) => {
        waiting?.abort()
        lease?.release('unknown')
        const { upstream, promptEstimate } = account
        const tokens = upstream === null ? NO_TOKENS : { prompt: promptEstimate, completion: delivered }
        return account.close({ ...ABORTED, tokens })
      }),
    )
  }

  #serve(ask: Ask): void {
    const refuse = (error: unknown) => this.#send({ kind: 'refusal', to: ask.ask, fault: wireFaultOf(error) })
    const reply = (value: unknown) => this.#send({ kind: 'reply', to: ask.ask, value })
    try {
      const value = this.#answer(ask)
      if (value instanceof Promise) value.then(reply, refuse)
      else reply(value)
    } catch (error) {
      refuse(error)
    }
  }

  #answer(ask: Ask): Asks[AskName]['value'] | Promise<Asks[AskName]['value']> {
    switch (ask.kind) {
      case 'enter':
        return this.#enter(ask)
      case 'reserve':
        return this.#reserve(ask)
      case 'acquire':
        return this.#acquire(ask)
      case 'place':
        this.#of(ask.id)
        return this.#deps.gateway.place(ask.id)
      case 'close':
        return this.#end(ask)
      case 'reserveTokens':
        return this.#reserveTokens(ask)
      case 'surveyResponses':
        return this.#surveyResponses(ask)
      case 'findResponse':
        return this.#findResponse(ask)
      case 'checkReplay':
        return this.#checkReplay(ask)
      case 'forward':
        return this.#forward(ask)
    }
  }

  #enter(ask: Extract<Ask, { kind: 'enter' }>): Asks['enter']['value'] | Promise<Asks['enter']['value']> {
    const { id, operation, authorization, fault, tokens } = ask
    if (this.#open.has(id)) throw new Error('a request that was already admitted')
    const headers = { get: (name: string) => (name === 'authorization' ? authorization : null) }
    const asked = { id, operation, headers, fault: fault === null ? null : faultOf(fault), tokens }
    const entry = this.#deps.gateway.enter(asked)
    return entry instanceof Promise ? entry.then(later => this.#entered(id, later)) : this.#entered(id, entry)
  }

  #entered(id: string, entry: Entry<Caller>): Asks['enter']['value'] {
    if (!entry.ok) return entry
    const { keyPrefix, keyDigest, organizationId, madeBy, rules } = entry.caller
    const account = entry.open(null)
    if (this.#isClosed || this.#open.has(id)) {
      // The relay died while the request waited for its key's share.
      void account.close({ ...ABORTED, tokens: NO_TOKENS })
      throw new Error('a request whose relay has ended, or that was already admitted')
    }
    this.#open.set(id, { account, keyDigest, lease: null, waiting: null, delivered: 0 })
    return {
      ok: true,
      caller: { keyPrefix, keyDigest, organizationId, madeBy, rules },
      hasBudget: hasBudget(entry.caller),
      countsEndUser: entry.caller.budgets.endUser !== undefined,
      headers: entry.headers,
    }
  }

  async #reserve({ id, model, worst, endUser }: Extract<Ask, { kind: 'reserve' }>): Promise<null> {
    const { account } = this.#of(id)
    Object.assign(account, { model, endUser })
    await account.reserve(worst)
    return null
  }

  #acquire({
    id,
    model,
    except,
    promptEstimate,
  }: Extract<Ask, { kind: 'acquire' }>): Asks['acquire']['value'] | Promise<Asks['acquire']['value']> {
    const open = this.#of(id)
    if (open.lease !== null || open.waiting !== null) throw new Error('a request with two upstreams')
    const { upstreams, gateway } = this.#deps
    open.account.model = model
    open.account.promptEstimate = promptEstimate
    const waiting = this.#nextWaiting
    const leased = gateway.acquire(model, {
      id,
      except: except.length === 0 ? NO_UPSTREAMS : new Set(except.flatMap(at => upstreams[at] ?? [])),
      signal: waiting.signal,
      owner: open.account.owner,
    })
    if (!(leased instanceof Promise)) return this.#leased(open, leased)
    open.waiting = waiting
    this.#nextWaiting = new AbortController()
    return this.#leasedLater(open, waiting, leased)
  }

  async #leasedLater(
    open: OpenRequest,
    waiting: AbortController,
    leased: Promise<Lease<UpstreamTarget>>,
  ): Promise<Asks['acquire']['value']> {
    try {
      const lease = await leased
      if (waiting.signal.aborted) {
        lease.release('unknown')
        waiting.signal.throwIfAborted()
      }
      return this.#leased(open, lease)
    } finally {
      if (open.waiting === waiting) open.waiting = null
    }
  }

  #leased(open: OpenRequest, lease: Lease<UpstreamTarget>): Asks['acquire']['value'] {
    const { target, paceMs } = lease
    open.lease = lease
    open.account.upstream = target.name
    return { ...this.#targetFields(this.#deps.upstreams.indexOf(target), target), paceMs }
  }

  #targetFields(
    target: number,
    { key, attestedKey }: Pick<UpstreamTarget, 'key' | 'attestedKey'>,
  ): Omit<Asks['acquire']['value'], 'paceMs'> {
    const attested = attestedKey === undefined ? {} : { attestedKey }
    if (this.#sentKeys[target] === key) return { target, ...attested }
    this.#sentKeys[target] = key
    return { target, key, ...attested }
  }

  #end(ask: Extract<Ask, { kind: 'close' }>): Asks['close']['value'] | Promise<Asks['close']['value']> {
    const { id, end, model, upstream, queueMs, firstChunkMs, wantsCost, labels, spans, released } = ask
    const open = this.#of(id)
    this.#open.delete(id)
    open.waiting?.abort()
    open.lease?.release(released ?? 'unknown')
    const { account } = open
    Object.assign(account, { model, upstream, queueMs, firstChunkMs, wantsCost, labels })
    for (const span of spans) this.#deps.offerSpan(span)
    const kept = account.close(end)
    const value = () => ({ costNanoUsd: account.costNanoUsd })
    return kept instanceof Promise ? kept.then(value) : value()
  }

  /** Cancels a request. The relay has not received this lease yet, so it is unused. */
  #cancel(id: string): void {
    this.#open.get(id)?.waiting?.abort()
    this.#release(id, 'unknown')
  }

  #release(id: string, health: 'healthy' | 'unhealthy' | 'unknown'): void {
    const open = this.#open.get(id)
    open?.lease?.release(health)
    if (open !== undefined) open.lease = null
  }

  #note(delivered: readonly (readonly [id: string, count: number])[]): void {
    for (const [id, count] of delivered) {
      const open = this.#open.get(id)
      if (open !== undefined) open.delivered = count
    }
  }

  #keepReceipt({ id, text }: Extract<FromRelay, { kind: 'keepReceipt' }>): void {
    const open = this.#open.get(id)
    if (open === undefined) return
    const { organizationId } = open.account.owner
    this.#deps.keptReceipts.keep(id, { organizationId, keyDigest: open.keyDigest, text, facts: null })
  }

  #keepResponse({ id, digest, text, facts }: Extract<FromRelay, { kind: 'keepResponse' }>): void {
    const open = this.#open.get(id)
    if (open === undefined) return
    const { organizationId } = open.account.owner
    this.#deps.responses.keep(digest, { organizationId, keyDigest: open.keyDigest, request: id, text, facts })
  }

  async #reserveTokens({ id, tokens }: Extract<Ask, { kind: 'reserveTokens' }>): Promise<null> {
    await this.#of(id).account.reserveTokens(tokens)
    return null
  }

  #surveyResponses({
    id,
    digests,
  }: Extract<Ask, { kind: 'surveyResponses' }>): EarlierSurvey | null | Promise<EarlierSurvey | null> {
    const { keyDigest } = this.#of(id)
    return this.#deps.responses.survey(digests, { keyDigest, request: id })
  }

  #findResponse({ id, digest }: Extract<Ask, { kind: 'findResponse' }>): string | null | Promise<string | null> {
    const { keyDigest } = this.#of(id)
    return this.#deps.responses.find(digest, { keyDigest, request: id })
  }

  #checkReplay({ id, epoch, mark }: Extract<Ask, { kind: 'checkReplay' }>): ReturnType<CheckReplay> {
    const { keyDigest } = this.#of(id)
    return this.#deps.checkReplay({ keyDigest, request: id, epoch, mark })
  }

  async #forward({ ask, ...asked }: Extract<Ask, { kind: 'forward' }>): Promise<Forwarded> {
    if (this.#forwarded.size >= forwardedMax) throw new Fault('rate_limited', 'Too many requests at the same time.')
    const leaving = new AbortController()
    this.#forwarded.set(ask, leaving)
    try {
      return await forward(this.#deps.gateway, asked, leaving.signal)
    } finally {
      this.#forwarded.delete(ask)
    }
  }

  #of(id: string): OpenRequest {
    const open = this.#open.get(id)
    if (open === undefined || this.#isClosed) throw new Error('a request that has not been admitted, or has ended')
    return open
  }

  /** Writes a log line of the relay again with the owner's timestamp; truncates long lines. */
  #log(line: string): void {
    const read = readLine(line)
    if (read === null) this.#deps.log.error(line)
    else this.#deps.log[read.level](read.message, read.fields)
  }
}

type Line = { readonly level: LogLevel; readonly message: string; readonly fields: LogFields }

function readLine(line: string): Line | null {
  try {
    const { level, message, time: _time, ...fields } = JSON.parse(line) as LogFields
    return { level: LOG_LEVELS.find(kind => kind === level) ?? 'error', message: String(message), fields }
  } catch {
    return null
  }
}
