// AMD's key distribution service with a cache on disk. Effects: the network, files of one directory.
//
// The service gives one VCEK per 10 s and address, so each is fetched once per chip and TCB and kept for good. Nothing is kept or
// handed out that does not verify below a trusted root; what is on disk is verified again before it is used.

import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { Product } from '../../attest/amd/product.ts'
import { AMD_ROOTS, type TrustedRoot } from '../../attest/amd/roots.ts'
import { type DecodedRoot, decodeRoot } from '../../attest/amd/trusted-roots.ts'
import { present } from '../../base/assert.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { ensureDir, writeFileAtomic } from '../../linux/files.ts'
import { getBounded } from './http.ts'
import { chainFault, crlFault, type Fault, vcekFault } from './judge.ts'
import { RateGate, type RateLimits } from './rate.ts'
import {
  amdKdsUrl,
  chainRequest,
  crlRequest,
  type KdsRequest,
  retryAfterMs,
  type Tree,
  type VcekWanted,
  vcekRequest,
} from './request.ts'

export type KdsAnswer =
  | { readonly ok: true; readonly bytes: Uint8Array; readonly from: 'cache' | 'network' }
  | {
      readonly ok: false
      /** `refused`: the service has no such thing. `garbage`: what it sent does not verify. */
      readonly kind: 'rate-limited' | 'unreachable' | 'refused' | 'garbage'
      readonly reason: string
      /** When asking again may help; null where the service does not say. */
      readonly retryAfterMs: number | null
    }

/** Several who want the same thing share one request. Failures are answers: nothing rejects but a disk that fails (Fault internal). */
export type Kds = {
  /** DER. */
  readonly vcek: (wanted: VcekWanted) => Promise<KdsAnswer>
  /** PEM: ASK or ASVK, then ARK. */
  readonly chain: (product: Product, tree: Tree) => Promise<KdsAnswer>
  /** DER; in force now, and fetched within the last hour unless the service cannot be reached. */
  readonly crl: (product: Product, tree: Tree) => Promise<KdsAnswer>
}

export type KdsOptions = {
  readonly baseUrl?: string
  /** Made when it is missing. */
  readonly cacheDir: string
  /** AMD's, or those of a simulated platform. */
  readonly roots?: readonly TrustedRoot[]
  readonly clock: Clock
  readonly log: Logger
  readonly timeoutMs?: number
  readonly limits?: Partial<RateLimits>
}

const timeoutMsDefault = 15_000
const crlAgeMsMax = 3_600_000
const attemptsMax = 3
const dirMode = 0o700
const fileMode = 0o644

type Judge = (bytes: Uint8Array) => Promise<Fault>

export function createKds(options: KdsOptions): Kds {
  const { clock, roots = AMD_ROOTS } = options
  const source = createSource(options)
  const crlFetchedMs = new Map<string, number>()
  const rootOf = (product: Product): DecodedRoot => {
    const root = roots.find(one => one.product === product)
    return decodeRoot(present(root, `there is a trusted root for ${product}`))
  }
  const chainOf = (product: Product, tree: Tree, isRenewed: boolean): Promise<KdsAnswer> => {
    const request = chainRequest(product, tree)
    const judge: Judge = bytes => chainFault(bytes, { root: rootOf(product), tree })
    const fetchIt = () => source.refresh(request, judge)
    return source.shared(request, async () => (isRenewed ? null : await source.cached(request, judge)) ?? fetchIt())
  }
  const chain: Kds['chain'] = (product, tree) => chainOf(product, tree, false)
  const vcek: Kds['vcek'] = wanted => {
    const request = vcekRequest(wanted)
    const judge: Judge = async bytes => {
      const known = await vcekFault(bytes, { wanted, chain: undefined, roots })
      if (known === null) return null
      // AMD may have renewed its intermediate since this program, or the chain on disk, was made.
      for (const isRenewed of [false, true]) {
        const answer = await chainOf(wanted.product, 'vcek', isRenewed)
        if (!answer.ok) return known
        if ((await vcekFault(bytes, { wanted, chain: answer.bytes, roots })) === null) return null
        if (answer.from === 'network') return known
      }
      return known
    }
    const fetchIt = () => source.refresh(request, judge, { isVcek: true })
    return source.shared(request, async () => (await source.cached(request, judge)) ?? (await fetchIt()))
  }
  const crl: Kds['crl'] = (product, tree) => {
    const request = crlRequest(product, tree)
    const judge: Judge = bytes => crlFault(bytes, { root: rootOf(product), nowMs: clock.nowMs() })
    return source.shared(request, async () => {
      const kept = await source.cached(request, judge)
      const fetchedMs = crlFetchedMs.get(request.file)
      if (kept !== null && fetchedMs !== undefined && clock.monotonicMs() - fetchedMs < crlAgeMsMax) return kept
      const answer = await source.refresh(request, judge)
      if (!answer.ok) return kept ?? answer
      crlFetchedMs.set(request.file, clock.monotonicMs())
      return answer
    })
  }
  return { vcek, chain, crl }
}

type Source = {
  /** From the disk, if it is there and verifies. */
  readonly cached: (request: KdsRequest, judge: Judge) => Promise<KdsAnswer | null>
  /** From the service, and onto the disk if it verifies. */
  readonly refresh: (request: KdsRequest, judge: Judge, kind?: { isVcek: boolean }) => Promise<KdsAnswer>
  readonly shared: (request: KdsRequest, work: () => Promise<KdsAnswer>) => Promise<KdsAnswer>
}

function createSource({ baseUrl = amdKdsUrl, cacheDir, clock, log, ...options }: KdsOptions): Source {
  const { timeoutMs = timeoutMsDefault } = options
  const base = baseUrl.replace(/\/+$/, '')
  const gate = new RateGate(clock, options.limits ?? {})
  const pending = new Map<string, Promise<KdsAnswer>>()
  ensureDir(cacheDir, { mode: dirMode })

  const ask = async ({ path, bodyBytesMax }: KdsRequest, isVcek: boolean): Promise<KdsAnswer> => {
    let blockedMs = 0
    for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
      const tooLongMs = await gate.enter(isVcek)
      if (tooLongMs !== null) return failure('rate-limited', `asked too often: wait ${tooLongMs} ms`, tooLongMs)
      const answer = await getBounded(`${base}${path}`, { timeoutMs, bodyBytesMax })
      log.info('asked the key distribution service', { path, answer: answer.kind })
      if (answer.kind === 'body') return { ok: true, bytes: answer.bytes, from: 'network' }
      if (answer.kind === 'too-large') return failure('garbage', `more than ${bodyBytesMax} bytes`)
      if (answer.kind === 'unreachable') return failure('unreachable', answer.reason)
      if (answer.status >= 500) return failure('unreachable', `HTTP status ${answer.status}`)
      if (answer.status !== tooManyRequests) return failure('refused', `HTTP status ${answer.status}`)
      blockedMs = gate.block(retryAfterMs(answer.retryAfter, clock.nowMs()))
    }
    return failure('rate-limited', `HTTP status ${tooManyRequests}, ${attemptsMax} times`, blockedMs)
  }

  return {
    cached: async ({ file, bodyBytesMax }, judge) => {
      const bytes = readAtMost(join(cacheDir, file), bodyBytesMax)
      if (bytes === null) return null
      const fault = await judge(bytes)
      if (fault === null) return { ok: true, bytes, from: 'cache' }
      log.warn('a kept answer of the key distribution service does not verify', { file, fault })
      return null
    },
    refresh: async (request, judge, kind = { isVcek: false }) => {
      const answer = await ask(request, kind.isVcek)
      if (!answer.ok) return answer
      const fault = await judge(answer.bytes)
      if (fault !== null) return failure('garbage', fault)
      writeFileAtomic(join(cacheDir, request.file), answer.bytes, { mode: fileMode })
      return answer
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

type FailureKind = Extract<KdsAnswer, { ok: false }>['kind']

function failure(kind: FailureKind, reason: string, waitMs: number | null = null): KdsAnswer {
  return { ok: false, kind, reason: `key distribution service: ${reason}`, retryAfterMs: waitMs }
}

/** Null when the file is missing, or larger than anything that was ever written there. */
function readAtMost(path: string, sizeBytesMax: number): Uint8Array | null {
  const found = statSync(path, { throwIfNoEntry: false })
  if (found === undefined || !found.isFile() || found.size > sizeBytesMax) return null
  return new Uint8Array(readFileSync(path))
}
