// Client of AMD's key distribution service (KDS) with a cache on disk. Effects: the network, files of one directory.
//
// The service allows one VCEK per 10 s and address, so each is fetched once per chip and TCB and stored permanently.
// Everything is verified below a trusted root before it is stored, and again at each read, because an operator may put
// files there by hand.

import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { Product } from '../../attest/amd/product.ts'
import { AMD_ROOTS, type TrustedRoot } from '../../attest/amd/roots.ts'
import { type DecodedRoot, decodeRoot } from '../../attest/amd/trusted-roots.ts'
import {
  chainRequest,
  crlRequest,
  type KdsRequest,
  retryAfterMs,
  type Tree,
  type VcekWanted,
  vcekRequest,
} from '../../attest/kds/request.ts'
import { present } from '../../base/assert.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { ensureDir, writeFileAtomic } from '../../linux/files.ts'
import { getBounded } from '../../linux/net/bounded-http.ts'
import type { Outgoing } from '../../linux/net/outgoing.ts'
import { chainProblem, crlProblem, type Problem, vcekProblem } from './judge.ts'
import { RateGate, type RateLimits } from './rate.ts'

export type KdsResult =
  | { readonly ok: true; readonly bytes: Uint8Array; readonly from: 'cache' | 'network' }
  | {
      readonly ok: false
      /** `refused`: the service does not have it. `invalid`: its response does not verify. */
      readonly kind: 'rate-limited' | 'unreachable' | 'refused' | 'invalid'
      /** Names the file in which an operator can provide it. */
      readonly reason: string
      /** When another attempt may succeed; null if the service does not report that. */
      readonly retryAfterMs: number | null
    }

/** Equal calls share one request. Never rejects, unless the disk fails (Fault internal). */
export type Kds = {
  /** DER. A fetched one is not stored: a guest may have named any chip. */
  readonly vcek: (wanted: VcekWanted) => Promise<KdsResult>
  /** Stores a VCEK that `vcek` returned, once a report has proved that the chip is this host's. Fault internal. */
  readonly storeVcek: (wanted: VcekWanted, bytes: Uint8Array) => void
  /** PEM: ASK or ASVK, then ARK. */
  readonly chain: (product: Product, tree: Tree) => Promise<KdsResult>
  /** DER; in force now, and fetched within the last hour unless the service is unreachable. */
  readonly crl: (product: Product, tree: Tree) => Promise<KdsResult>
}

export type KdsOptions = {
  /** AMD's service or a mirror of it; null to make no requests and use only the disk. */
  readonly baseUrl: string | null
  /** Created if it is missing. */
  readonly cacheDir: string
  /** Default: AMD's. Otherwise those of a simulated platform. */
  readonly roots?: readonly TrustedRoot[]
  readonly clock: Clock
  readonly log: Logger
  /** Ends every request and every wait. */
  readonly signal?: AbortSignal
  readonly timeoutMs?: number
  readonly send: Outgoing
  readonly limits?: Partial<RateLimits>
}

const timeoutMsDefault = 15_000
const crlAgeMsMax = 3_600_000
const attemptsMax = 3
const dirMode = 0o700
const fileMode = 0o644

type Check = (bytes: Uint8Array) => Promise<Problem>

export function createKds(options: KdsOptions): Kds {
  const { clock, roots = AMD_ROOTS } = options
  const source = createSource(options)
  const crlFetchedMs = new Map<string, number>()
  const rootOf = (product: Product): DecodedRoot => {
    const root = roots.find(root => root.product === product)
    return decodeRoot(present(root, `there is a trusted root for ${product}`))
  }
  const chainOf = (product: Product, tree: Tree, options: { readonly skipCache: boolean }): Promise<KdsResult> => {
    const request = chainRequest(product, tree)
    const check: Check = bytes => chainProblem(bytes, { root: rootOf(product), tree })
    const fetchIt = () => source.refresh(request, check)
    return source.shared(
      request,
      async () => (options.skipCache ? null : await source.cached(request, check)) ?? fetchIt(),
    )
  }
  const chain: Kds['chain'] = (product, tree) => chainOf(product, tree, { skipCache: false })
  const vcek: Kds['vcek'] = wanted => {
    const request = vcekRequest(wanted)
    const check: Check = async bytes => {
      const problem = await vcekProblem(bytes, { wanted, chain: undefined, roots })
      if (problem === null) return null
      // AMD may have renewed its intermediate since this program, or the chain on disk, was made.
      for (const skipCache of [false, true]) {
        const found = await chainOf(wanted.product, 'vcek', { skipCache })
        if (!found.ok) return problem
        if ((await vcekProblem(bytes, { wanted, chain: found.bytes, roots })) === null) return null
        if (found.from === 'network') return problem
      }
      return problem
    }
    const fetchIt = () => source.fetch(request, check, { isVcek: true })
    return source.shared(request, async () => (await source.cached(request, check)) ?? (await fetchIt()))
  }
  const crl: Kds['crl'] = (product, tree) => {
    const request = crlRequest(product, tree)
    const check: Check = bytes => crlProblem(bytes, { root: rootOf(product), nowMs: clock.nowMs() })
    return source.shared(request, async () => {
      const kept = await source.cached(request, check)
      const fetchedMs = crlFetchedMs.get(request.file)
      if (kept !== null && fetchedMs !== undefined && clock.monotonicMs() - fetchedMs < crlAgeMsMax) return kept
      const fetched = await source.refresh(request, check)
      if (!fetched.ok) return kept ?? fetched
      crlFetchedMs.set(request.file, clock.monotonicMs())
      return fetched
    })
  }
  return { vcek, storeVcek: (wanted, bytes) => source.store(vcekRequest(wanted), bytes), chain, crl }
}

type Source = {
  /** Reads from the disk. Null if it is not there or does not verify. */
  readonly cached: (request: KdsRequest, check: Check) => Promise<KdsResult | null>
  readonly store: (request: KdsRequest, bytes: Uint8Array) => void
  /** Fetches from the service. Fails for a file that does not verify. */
  readonly fetch: (request: KdsRequest, check: Check, kind: { readonly isVcek: boolean }) => Promise<KdsResult>
  /** Fetches from the service, and stores the result if it verifies. */
  readonly refresh: (request: KdsRequest, check: Check) => Promise<KdsResult>
  readonly shared: (request: KdsRequest, work: () => Promise<KdsResult>) => Promise<KdsResult>
}

function createSource({ baseUrl, cacheDir, clock, log, send, ...options }: KdsOptions): Source {
  const { timeoutMs = timeoutMsDefault, signal = new AbortController().signal } = options
  const base = baseUrl?.replace(/\/+$/, '') ?? null
  const gate = new RateGate(clock, options.limits ?? {})
  const pending = new Map<string, Promise<KdsResult>>()
  ensureDir(cacheDir, { mode: dirMode })

  const get = async ({ path, bodyBytesMax }: KdsRequest, isVcek: boolean): Promise<KdsResult> => {
    if (base === null) return failure('unreachable', 'not asked, kds.base_url is empty')
    let blockedMs = 0
    for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
      const waitMs = await gate.enter(isVcek, signal)
      if (waitMs !== null) return failure('rate-limited', `the next request may go out in ${waitMs} ms`, waitMs)
      const result = await getBounded(`${base}${path}`, { timeoutMs, bodyBytesMax, signal, send })
      if (result.kind === 'body') return { ok: true, bytes: result.bytes, from: 'network' }
      if (result.kind === 'too-large') return failure('invalid', `more than ${bodyBytesMax} bytes`)
      if (result.kind === 'unreachable') return failure('unreachable', result.reason)
      if (result.status >= 500) return failure('unreachable', `HTTP status ${result.status}`)
      if (result.status !== tooManyRequests) return failure('refused', `HTTP status ${result.status}`)
      blockedMs = gate.block(retryAfterMs(result.retryAfter, clock.nowMs()))
    }
    return failure('rate-limited', `HTTP status ${tooManyRequests}, ${attemptsMax} times`, blockedMs)
  }

  const store: Source['store'] = ({ file }, bytes) => writeFileAtomic(join(cacheDir, file), bytes, { mode: fileMode })

  const fetchChecked = async (request: KdsRequest, check: Check, isVcek: boolean): Promise<KdsResult> => {
    const result = await get(request, isVcek)
    if (!result.ok) return result
    const problem = await check(result.bytes)
    return problem === null ? result : failure('invalid', problem)
  }

  const fetch: Source['fetch'] = async (request, check, { isVcek }) => {
    const result = await fetchChecked(request, check, isVcek)
    const { path } = request
    if (result.ok) {
      log.info('fetched from the key distribution service', { path })
      return result
    }
    const reason = `${result.reason} (${join(cacheDir, request.file)})`
    log.info('not fetched from the key distribution service', { path, kind: result.kind, reason })
    return { ...result, reason }
  }

  return {
    store,
    cached: async ({ file, bodyBytesMax }, check) => {
      const path = join(cacheDir, file)
      const bytes = readAtMost(path, bodyBytesMax)
      if (bytes === null) return null
      const problem = await check(bytes)
      if (problem === null) return { ok: true, bytes, from: 'cache' }
      log.warn('a kept file of the key distribution service does not verify and is not used', { path, problem })
      return null
    },
    fetch,
    refresh: async (request, check) => {
      const result = await fetch(request, check, { isVcek: false })
      if (result.ok) store(request, result.bytes)
      return result
    },
    shared: ({ path }, work) => {
      const running = pending.get(path)
      if (running !== undefined) return running
      const started = work().finally(() => pending.delete(path))
      pending.set(path, started)
      return started
    },
  }
}

const tooManyRequests = 429

type FailureKind = Extract<KdsResult, { ok: false }>['kind']

function failure(kind: FailureKind, reason: string, waitMs: number | null = null): KdsResult {
  return { ok: false, kind, reason: `key distribution service: ${reason}`, retryAfterMs: waitMs }
}

/** Reads the file. Null if it is missing, or larger than anything that is ever written there. */
function readAtMost(path: string, sizeBytesMax: number): Uint8Array | null {
  const found = statSync(path, { throwIfNoEntry: false })
  if (found === undefined || !found.isFile() || found.size > sizeBytesMax) return null
  return new Uint8Array(readFileSync(path))
}
