// A relay's interface to the owner: each decision is a request to another process. Effects: the channel.

import { type Clock, onAbort } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import type { TraceSpan } from '../../contract/vm/span.ts'
import type { Enter } from '../gateway/enter.ts'
import type { Acquire } from '../gateway/failover.ts'
import type { ResponseMemory } from '../gateway/response-memory.ts'
import { atMost, type RequestAccount } from '../metering/account.ts'
import { NO_LABELS } from '../metering/labels.ts'
import type { RequestTrace } from '../traces/tracer.ts'
import type { Tokens } from '../types.ts'
import type { QueuePlace } from '../upstream/queue.ts'
import type { Lease, TargetHealth } from '../upstream/router.ts'
import type { UpstreamTarget } from '../upstream/target.ts'
import { faultOf, wireFaultOf } from './faults.ts'
import type { Ask, AskName, Asks, FromRelay, WireFault } from './wire.ts'

/** An upstream whose key may change, and the TLS key that its evidence names. */
export type RelayTarget = UpstreamTarget & { key: string | null; attestedKey?: string | null }

export type LinkDeps = {
  readonly send: (message: FromRelay) => void
  readonly upstreams: readonly RelayTarget[]
  readonly clock: Pick<Clock, 'monotonicMs'>
}

type PendingReply = { readonly resolve: (value: never) => void; readonly reject: (error: unknown) => void }
type Stream = { readonly account: RequestAccount; reportedCount: number }
type OpenedAccount = Pick<RequestAccount, 'owner' | 'hasBudget' | 'countsEndUser'> & { readonly id: string }

/** Streams in one message. No share: limits one message between our processes. */
const progressMax = 4_096

export class Link {
  readonly #deps: LinkDeps
  readonly #asks = new Map<number, PendingReply>()
  /** Running requests, by id. */
  readonly #open = new Map<string, Stream>()
  /** Spans of the request that is being closed; sent with its end. */
  #spans: TraceSpan[] = []
  #askCount = 0
  /** The lease that ended last, until it is reported. */
  #released: { readonly id: string; readonly health: TargetHealth } | null = null

  constructor(deps: LinkDeps) {
    this.#deps = deps
  }

  /** Number of running requests, and of those whose end the owner has not recorded yet. */
  get size(): number {
    return this.#open.size + this.#asks.size
  }

  /** Like `createEnter` of the gateway, but decided by the owner. */
  readonly enter: Enter = ({ id, operation, headers, fault, tokens }) => {
    const authorization = headers.get('authorization')
    const asked = { id, operation, authorization, tokens, fault: fault === null ? null : wireFaultOf(fault) }
    return this.ask('enter', asked).then(entry => {
      if (!entry.ok) return entry
      const { caller, hasBudget, countsEndUser } = entry
      const opened = { id, owner: caller, hasBudget, countsEndUser }
      return { ok: true, caller, headers: entry.headers, open: trace => this.#openAccount(opened, trace) }
    })
  }

  /** See the router. */
  readonly acquire: Acquire = (model, { id, promptEstimate, except, signal }) => {
    signal.throwIfAborted()
    const { send, upstreams } = this.#deps
    const excepted = [...except].map(target => upstreams.indexOf(target as RelayTarget))
    const { promise, resolve, reject } = Promise.withResolvers<Lease<UpstreamTarget>>()
    const leave = () => {
      send({ kind: 'cancel', id })
      reject(signal.reason)
    }
    signal.addEventListener('abort', leave)
    const forget = () => signal.removeEventListener('abort', leave)
    this.ask('acquire', { id, model, promptEstimate, except: excepted }).then(
      leased => {
        forget()
        // After `leave` only the keys have an effect: the owner releases the lease, and names keys once.
        const target = this.#targetOf(leased)
        if (target === null) reject(new Error('an unknown upstream'))
        else resolve(this.#lease(id, target, leased.paceMs))
      },
      error => {
        forget()
        reject(error)
      },
    )
    return promise
  }

  /** Returns the upstream with the keys that the owner names; null for an unknown one. */
  #targetOf({ target: at, key, attestedKey }: Asks['acquire']['value']): RelayTarget | null {
    const target = this.#deps.upstreams[at]
    if (target === undefined) return null
    if (key !== undefined) target.key = key
    if (attestedKey !== undefined) target.attestedKey = attestedKey
    return target
  }

  /** See the router. */
  readonly place = (id: string): Promise<QueuePlace | null> => this.ask('place', { id }).catch(() => null)

  keepReceipt(id: string, text: string): void {
    this.#deps.send({ kind: 'keepReceipt', id, text })
  }

  /** Returns the owner's memory of responses. */
  responses(isOn: boolean): ResponseMemory {
    return {
      isOn,
      survey: (digests, { request }) => this.ask('surveyResponses', { id: request, digests }),
      find: (digest, { request }) => this.ask('findResponse', { id: request, digest }),
      keep: (digest, { request, text, facts }) =>
        this.#deps.send({ kind: 'keepResponse', id: request, digest, text, facts }),
    }
  }

  offerSpan(span: TraceSpan): void {
    this.#spans.push(span)
  }

  /** Reports the progress of streams since the last report. */
  reportProgress(): void {
    const delivered: [string, number][] = []
    for (const [id, stream] of this.#open) {
      const count = stream.account.countDelivered?.() ?? 0
      if (count === stream.reportedCount) continue
      stream.reportedCount = count
      delivered.push([id, count])
    }
    for (let at = 0; at < delivered.length; at += progressMax) {
      this.#deps.send({ kind: 'progress', delivered: delivered.slice(at, at + progressMax) })
    }
  }

  /** Sends a request and resolves with the reply. Rejects with the owner's Fault. */
  ask<Name extends AskName>(
    kind: Name,
    asked: Asks[Name]['asked'],
    signal?: AbortSignal,
  ): Promise<Asks[Name]['value']> {
    // Before the request gets another upstream, because the owner allows it only one at a time.
    if (kind !== 'close') this.#sendRelease()
    this.#askCount += 1
    const ask = this.#askCount
    const { promise, resolve, reject } = Promise.withResolvers<Asks[Name]['value']>()
    this.#asks.set(ask, { resolve, reject })
    this.#deps.send({ kind, ask, ...asked } as unknown as Ask)
    if (signal !== undefined) {
      const forget = onAbort(signal, () => this.#deps.send({ kind: 'forget', ask }))
      promise.then(forget, forget)
    }
    return promise
  }

  /** Handles the owner's reply to a request. */
  handleReply(to: number, reply: { readonly value: unknown } | { readonly fault: WireFault }): void {
    const waiting = this.#asks.get(to)
    this.#asks.delete(to)
    if ('fault' in reply) waiting?.reject(faultOf(reply.fault))
    else waiting?.resolve(reply.value as never)
  }

  #lease(id: string, target: UpstreamTarget, paceMs: number): Lease<UpstreamTarget> {
    let isOpen = true
    return {
      target,
      paceMs,
      release: health => {
        if (!isOpen) return
        isOpen = false
        this.#sendRelease()
        this.#released = { id, health }
        // Most requests end in the same turn: then the message about their end has it.
        queueMicrotask(() => this.#sendRelease())
      },
    }
  }

  #sendRelease(): void {
    if (this.#released !== null) this.#deps.send({ kind: 'release', ...this.#released })
    this.#released = null
  }

  /** Returns the health that the end of this request's lease showed, for the message about its end. */
  #takeReleased(id: string): TargetHealth | null {
    if (this.#released?.id !== id) return null
    const { health } = this.#released
    this.#released = null
    return health
  }

  #openAccount({ id, owner, hasBudget, countsEndUser }: OpenedAccount, trace: RequestTrace | null): RequestAccount {
    const { clock } = this.#deps
    const startedMs = clock.monotonicMs()
    let isOpen = true
    let bound: Tokens | null = null
    const account: RequestAccount = {
      owner,
      trace,
      model: 'unknown',
      upstream: null,
      queueMs: 0,
      bodyBytes: 0,
      promptEstimate: 0,
      firstChunkMs: null,
      countDelivered: null,
      wantsCost: false,
      costNanoUsd: null,
      labels: NO_LABELS,
      endUser: null,
      hasBudget,
      countsEndUser,
      reserve: async worst => {
        bound = worst
        await this.ask('reserve', { id, model: account.model, worst, endUser: account.endUser })
      },
      reserveTokens: async tokens => {
        await this.ask('reserveTokens', { id, tokens })
      },
      noteFirstChunk: () => {
        account.firstChunkMs ??= clock.monotonicMs() - startedMs
      },
      close: end => {
        if (!isOpen) return
        isOpen = false
        this.#open.delete(id)
        const { model, upstream, queueMs, firstChunkMs, wantsCost, labels } = account
        const tokens = bound === null ? end.tokens : atMost(end.tokens, bound)
        trace?.end({ ...end, tokens, model, upstream, queueMs, firstChunkMs })
        const spans = this.#spans
        this.#spans = []
        const asked = {
          ...{ id, end: { ...end, tokens }, model, upstream, queueMs, firstChunkMs, wantsCost, labels },
          ...{ spans, released: this.#takeReleased(id) },
        }
        return this.ask('close', asked).then(
          ({ costNanoUsd }) => {
            account.costNanoUsd = costNanoUsd
          },
          // The owner ends the request in any case; its log has the error.
          error => {
            const line = JSON.stringify({ level: 'error', message: messageOf(error), request: id })
            this.#deps.send({ kind: 'log', line })
          },
        )
      },
    }
    this.#open.set(id, { account, reportedCount: 0 })
    return account
  }
}
