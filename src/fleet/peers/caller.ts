// Calls to other hosts of the fleet: forwarded requests of clients, and reachability checks. Effects: connections to
// other hosts.
//
// Each call has its own connection. A handshake takes less than a millisecond, and no call can reach a process whose
// certificate was verified for another host.

import type { Clock } from '../../base/clock.ts'
import { messageOf, systemErrorCode } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { FairSlots } from '../../base/work/fair-slots.ts'
import type { ForwardedPrincipal } from '../../contract/http/forwarded-principal.ts'
import { limitedPrefix } from '../../http/client-network.ts'
import { UnavailableFault } from '../../http/limited.ts'
import { fetchDirectly } from '../../linux/net/outgoing.ts'
import {
  type CalledService,
  clientText,
  encodeCall,
  peerField,
  refusalField,
  signedBytes,
  targetOf,
} from './call.codec.ts'
import { requestHeaders, responseHeaders, untilEnd } from './forwarded.ts'
import { type PeerKey, peerName } from './peer-key.ts'
import type { PeerList } from './peer-list.ts'
import type { PeerRow } from './peers.query.ts'
import type { Forwarded, Peers } from './peers.ts'

export type CallerDeps = {
  readonly key: PeerKey
  readonly list: Pick<PeerList, 'find'>
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
  /** Called for each host that was reached, or with the reason that it was not. */
  readonly onCall?: (hostId: string, problem: string | null) => void
  /** Reports whether the last call did not reach the host; the next one then times out sooner. */
  readonly isDown?: (hostId: string) => boolean
  readonly answerMs?: number
}

/** Timeout from the last byte of a request to the first of its response: fresh evidence takes up to 15 s. */
const answerMsDefault = 25_000
/** Timeout for a host that was not reached recently, and for reachability checks. */
const answerQuickMs = 4_000
/** Timeout without a byte of the request's body. */
const uploadIdleMs = 60_000

/** Share: half for one host, a sixteenth for one client network; beyond it 503. */
const callsMax = 1_024
/** Fractions of all concurrent calls: for one host, and for one client's network. */
const hostParts = 2
const clientParts = 16

const retryMs = 2_000

/** Shown to clients. */
export const peerAwayMessage =
  'The host of this service that has the requested data does not answer at present. Try again after the time in Retry-After.'

/** Why a host without fleet.peer_listen is not called. */
export const answersNone = 'it answers no other hosts: its fleet.peer_listen is ""'

type Called = {
  readonly service: CalledService
  readonly client: string
  readonly principal: ForwardedPrincipal | null
  readonly method: string
  readonly target: string
  readonly headers: Headers
  readonly body: ReadableStream<Uint8Array> | null
  readonly signal: AbortSignal
}

export class PeerCaller implements Peers {
  readonly #deps: CallerDeps
  readonly #places = new FairSlots(callsMax)
  #answered = 0
  #failed = 0

  constructor(deps: CallerDeps) {
    this.#deps = deps
  }

  /** Number of calls in progress. */
  get count(): number {
    return this.#places.count
  }

  /** Returns the numbers of client requests since the start. */
  view(): { readonly answered: number; readonly failed: number } {
    return { answered: this.#answered, failed: this.#failed }
  }

  async forward(hostId: string, request: Request, { service, clientAddress, principal }: Forwarded): Promise<Response> {
    // This field means that another host forwarded the request, so that host has wrong data about the owner.
    if (request.headers.has(peerField)) throw away('the request has been passed on already')
    const client = clientText(clientAddress)
    const giveBack = this.#places.take([
      { name: hostId, parts: hostParts },
      { name: `client ${limitedPrefix(client)}`, parts: clientParts },
    ])
    if (typeof giveBack === 'string') throw away('too many requests are being passed on')
    try {
      const answer = await this.#call(await this.#peer(hostId), {
        ...{ service, client, principal, method: request.method, target: targetOf(request.url) },
        headers: requestHeaders(request.headers),
        body: request.body,
        signal: request.signal,
      })
      this.#answered += 1
      return untilEnd(answer, responseHeaders(answer.headers), giveBack)
    } catch (error) {
      giveBack()
      this.#failed += 1
      throw error
    }
  }

  /**
   * Resolves when the host has responded that it accepts this one. Fault `fleet.unavailable`, whose cause is the
   * reason.
   */
  async greet(hostId: string, signal: AbortSignal): Promise<void> {
    const called = {
      service: 'alive',
      client: '',
      principal: null,
      method: 'GET',
      target: '/',
      headers: new Headers(),
      body: null,
    } as const
    const answer = await this.#call(await this.#peer(hostId), { ...called, signal })
    await answer.body?.cancel()
  }

  async #peer(hostId: string): Promise<Answering> {
    const row = await this.#deps.list.find(hostId)
    if (row === null) throw away('the fleet does not have that host')
    const { address, certificate } = row
    if (address === null || certificate === null) throw away(answersNone)
    return { ...row, address, certificate }
  }

  async #call({ hostId, address, certificate }: Answering, called: Called): Promise<Response> {
    const { isDown, log, onCall } = this.#deps
    const { method, body } = called
    const waiting = new CallTimeout(this.#deps.clock, called.signal)
    const isQuick = called.service === 'alive' || isDown?.(hostId) === true
    const answerMs = isQuick ? answerQuickMs : (this.#deps.answerMs ?? answerMsDefault)
    waiting.within(body === null ? answerMs : uploadIdleMs)
    try {
      const url = new URL(`https://${address}${called.target}`)
      called.headers.set(peerField, this.#signed(hostId, called, `${url.pathname}${url.search}`))
      const answer = await fetchDirectly(url, {
        ...{ method, headers: called.headers, decompress: false, keepalive: false },
        ...(body === null ? {} : { body: watched(body, waiting, answerMs), duplex: 'half' }),
        signal: waiting.signal,
        tls: { ca: certificate, serverName: peerName(hostId), rejectUnauthorized: true },
      })
      const refused = refusalOf(answer, called.service)
      if (refused !== null) {
        await answer.body?.cancel()
        throw new Error(refused)
      }
      onCall?.(hostId, null)
      return answer
    } catch (error) {
      if (called.signal.aborted) throw away('the client has left', error)
      const problem = reasonOf(error, waiting.isLate)
      onCall?.(hostId, problem)
      log.debug('another host of the fleet could not be called', { host: hostId, service: called.service, problem })
      throw away(problem, error)
    } finally {
      waiting.end()
    }
  }

  #signed(to: string, { service, client, principal, method }: Called, target: string): string {
    const { key, clock, random } = this.#deps
    const nonce = random(16).toBase64({ alphabet: 'base64url', omitPadding: true })
    const call = { from: key.hostId, to, service, client, principal, atMs: Math.floor(clock.nowMs()), nonce }
    return encodeCall({ ...call, signature: key.sign(signedBytes(call, { method, target })) })
  }
}

type Answering = PeerRow & { readonly address: string; readonly certificate: string }

/** Returns why the other host's listener rejected the call; null if its service has responded to the client. */
function refusalOf({ status, headers }: Response, service: CalledService): string | null {
  const refusal = headers.get(refusalField)
  if (refusal !== null) return REFUSALS[refusal] ?? UNKNOWN
  if (service === 'alive') return status === 204 ? null : UNKNOWN
  // Services return error documents. A host that has just started may not have read the list of hosts yet, and treats
  // this one like a stranger.
  if (headers.has('content-type')) return null
  if (status === 401) return UNKNOWN
  return status === 503 && !headers.has('retry-after') ? 'it has failed at the call' : null
}

const UNKNOWN = 'it does not know this host, or not by the certificate of now'

const REFUSALS: { readonly [refusal: string]: string } = {
  clock: 'its clock and that of this host are more than 30 s apart, or it has just started',
  replay: 'it has had this call before',
  busy: 'it has too many calls of this host under way',
  off: 'it has switched this service off',
}

/** Aborts together with the client, or after too long without data. */
class CallTimeout {
  readonly #clock: Clock
  readonly #late = new AbortController()
  readonly #client: AbortSignal
  #timer: AbortController | null = null
  #isOver = false

  constructor(clock: Clock, client: AbortSignal) {
    this.#clock = clock
    this.#client = client
  }

  get signal(): AbortSignal {
    return AbortSignal.any([this.#client, this.#late.signal])
  }

  get isLate(): boolean {
    return this.#late.signal.aborted
  }

  /** Sets the timeout. No effect after the response has arrived. */
  within(ms: number): void {
    if (this.#isOver) return
    this.#timer?.abort()
    const timer = new AbortController()
    this.#timer = timer
    this.#clock.sleep(ms, timer.signal).then(
      () => this.#late.abort(new Error(`no answer within ${ms} ms`)),
      () => {},
    )
  }

  end(): void {
    this.#isOver = true
    this.#timer?.abort()
  }
}

/** Returns the same bytes; each read extends the timeout of the call. */
function watched(body: ReadableStream<Uint8Array>, waiting: CallTimeout, answerMs: number): ReadableStream<Uint8Array> {
  const reader = body.getReader()
  return new ReadableStream({
    pull: async controller => {
      const { done, value } = await reader.read()
      waiting.within(done ? answerMs : uploadIdleMs)
      if (done) controller.close()
      else controller.enqueue(value)
    },
    cancel: reason => reader.cancel(reason),
  })
}

function away(problem: string, cause: unknown = undefined): UnavailableFault {
  return new UnavailableFault(peerAwayMessage, retryMs, {
    code: 'fleet.unavailable',
    cause: new Error(problem, { cause }),
  })
}

function reasonOf(error: unknown, isLate: boolean): string {
  if (isLate) return 'it does not answer in time'
  const code = systemErrorCode(error)
  return CERTIFICATE.test(code ?? '')
    ? 'another process answers there, whose certificate is not the one in the directory'
    : (code ?? messageOf(error))
}

const CERTIFICATE = /CERT|ALTNAME|SIGNATURE/
