// Forwards a request, before its body is read, if this host has no room for it and another host of the fleet has.
// Effects: requests to other hosts.
//
// Each host has its own slots for uploads, queued sources and VMs, and a client can use those of all hosts. The rows of
// the directory determine the order of the hosts, and each host decides itself whether it has room.

import type { Clock } from '../../base/clock.ts'
import { principalOf } from '../../contract/http/forwarded-principal.ts'
import type { DirectoryStore } from '../../store/db.ts'
import { countBuildsByHost, VM_STATES } from '../../store/directory/build.query.ts'
import { type BuildPeers, HostClosedFault, HostFullFault } from '../fleet.ts'
import type { BuildsService } from '../service.ts'
import type { Caller } from '../types.ts'

export type ForwardWhenFullDeps = {
  readonly directory: Pick<DirectoryStore, 'db'>
  readonly peers: BuildPeers
  readonly service: Pick<BuildsService, 'hasRoom'>
  readonly clock: Clock
}

/** A request in the form of this service's handlers. */
export type ForwardableRequest = {
  readonly request: Request
  readonly address: () => string
  readonly mayPause: () => void
  readonly isForwarded?: boolean
}

/**
 * Limit on other hosts that receive one request. Draining hosts have the fewest builds and respond at once. No share:
 * limits one request; its client retries a second later.
 */
const hostsAskedMax = 8
/** No further host is tried after this time. */
const allMs = 8_000
/** Timeouts for a host to report whether it has room, and to reserve a VM. */
const roomMs = 2_000
const reserveMs = 5_000
/** How long "no room on any host" is cached for a caller. */
const noneMs = 1_000
/** Limit on callers in that cache. No share: callers beyond it may retry sooner, at the rate of their requests. */
const callersMax = 1_000

const roomPath = '/room'

export class ForwardWhenFull {
  readonly #deps: ForwardWhenFullDeps
  /** Monotonic time until which no host is tried for a caller. */
  readonly #fullUntilMs = new Map<string, number>()

  constructor(deps: ForwardWhenFullDeps) {
    this.#deps = deps
  }

  /** Runs `take`. If only this host rejects, returns the response of a host with room. Faults: those of `take`. */
  async submit<T>(caller: Caller, refused: ForwardableRequest, take: () => T): Promise<T | Response> {
    return await this.#orElse(refused, take, () => this.#submitTo(caller, refused))
  }

  /** Does the same as `submit` for a VM. */
  async reserve<T>(caller: Caller, refused: ForwardableRequest, take: () => Promise<T>): Promise<T | Response> {
    return await this.#orElse(refused, take, () => this.#reserveAt(caller, refused))
  }

  /** Handles another host's check for room for one of its callers; null for other requests. */
  answer({ url }: Request): Response | null {
    const { pathname, searchParams: asked } = new URL(url)
    if (pathname !== roomPath) return null
    const caller = { organizationId: asked.get('organization'), slug: null, keyPrefix: null }
    const hasRoom = this.#deps.service.hasRoom(caller, () => asked.get('address') ?? '')
    return new Response(null, { status: hasRoom ? 204 : 409 })
  }

  async #orElse<T, E>(
    { isForwarded }: ForwardableRequest,
    take: () => T | Promise<T>,
    elsewhere: () => Promise<E | null>,
  ): Promise<T | E> {
    try {
      return await take()
    } catch (error) {
      const isOfThisHost = error instanceof HostFullFault || error instanceof HostClosedFault
      const found = isOfThisHost && isForwarded !== true ? await elsewhere() : null
      if (found === null) throw error
      return found
    }
  }

  async #submitTo(caller: Caller, { request, address, mayPause }: ForwardableRequest): Promise<Response | null> {
    const { peers } = this.#deps
    const { organizationId } = caller
    const query = new URLSearchParams({
      ...(organizationId === null ? {} : { organization: organizationId }),
      address: address(),
    })
    return await this.#atFirst(`build ${organizationId ?? address()}`, ['queued'], async hostId => {
      const path = `${roomPath}?${query}`
      const answer = await this.#within(roomMs, request.signal, signal => peers.ask(hostId, path, signal))
      await answer.body?.cancel()
      if (answer.status !== 204) return null
      mayPause()
      // The body can be sent to only one host, whose response is final.
      const principal = principalOf(caller, request.method)
      return () => peers.forward(hostId, request, { clientAddress: address(), principal })
    })
  }

  async #reserveAt(caller: Caller, { request, address }: ForwardableRequest): Promise<Response | null> {
    const { peers } = this.#deps
    const { organizationId } = caller
    const { method, url } = request
    const headers = new Headers(request.headers)
    for (const name of ['content-length', 'content-type']) headers.delete(name)
    return await this.#atFirst(`vm ${organizationId ?? address()}`, VM_STATES, async hostId => {
      const answer = await this.#within(reserveMs, request.signal, signal =>
        peers.forward(hostId, new Request(url, { method, headers, signal }), {
          clientAddress: address(),
          principal: principalOf(caller, method),
        }),
      )
      if (answer.status !== 429 && answer.status !== 503) return async () => answer
      await answer.body?.cancel()
      return null
    })
  }

  /**
   * Returns the response of the first host that accepts, starting with those with the fewest builds in these states.
   * Null if none does.
   */
  async #atFirst(
    name: string,
    states: Parameters<typeof countBuildsByHost>[1],
    at: (hostId: string) => Promise<(() => Promise<Response>) | null>,
  ): Promise<Response | null> {
    const { directory, peers, clock } = this.#deps
    if ((this.#fullUntilMs.get(name) ?? 0) > clock.monotonicMs()) return null
    const counts = countBuildsByHost(directory.db, states)
    const count = (hostId: string) => counts.get(hostId) ?? 0
    const hosts = peers.others().toSorted((a, b) => count(a) - count(b))
    const untilMs = clock.monotonicMs() + allMs
    for (const hostId of hosts.slice(0, hostsAskedMax)) {
      if (clock.monotonicMs() >= untilMs) return null
      // If a host does not respond, the next one gets the request.
      const taken = await at(hostId).catch(() => null)
      if (taken !== null) return await taken()
    }
    if (this.#fullUntilMs.size >= callersMax) this.#fullUntilMs.clear()
    this.#fullUntilMs.set(name, clock.monotonicMs() + noneMs)
    return null
  }

  async #within(ms: number, client: AbortSignal, ask: (signal: AbortSignal) => Promise<Response>): Promise<Response> {
    const [late, over] = [new AbortController(), new AbortController()]
    this.#deps.clock.sleep(ms, over.signal).then(
      () => late.abort(new Error(`no answer within ${ms} ms`)),
      () => {},
    )
    try {
      return await ask(AbortSignal.any([client, late.signal]))
    } finally {
      over.abort()
    }
  }
}
