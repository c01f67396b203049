// Downloads collateral for --fetch. Effects: the network, a cache directory. It trusts nothing: downloads are judged
// like files, and must end at the same roots.

import { retryAfterMs } from '../../attest/kds/request.ts'
import { Malformed } from '../../attest/malformed.ts'
import { type Check, verdict } from '../../attest/verdict.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { type GetLimits, type GetResult, getBounded } from '../../linux/net/bounded-http.ts'
import type { Run } from '../../terminal/command.ts'
import { AdvisedFault, NoCollateralFault } from '../../terminal/exit.ts'
import { oneLine } from '../../terminal/render.ts'
import { failureOf } from '../../terminal/verdict-exit.ts'
import { type CacheEntry, findCached, type KeepOptions, keepFiles, type NewFile } from './cache.ts'

/** One file to download. */
export type DownloadRequest = Pick<GetLimits, 'post' | 'bodyBytesMax'> & {
  /** Name in the document of the verdict. */
  readonly kind: string
  readonly url: string
  /** For messages: what the file is, and of what, if the address does not show it. */
  readonly purpose?: string
  /** Option that names such a file instead, and the option that names a mirror; both without dashes. */
  readonly param: string
  readonly mirror: string
  /** Returns the file in a response. Throws Malformed. Default: the body. */
  readonly fileOf?: (body: Uint8Array, headers: Headers) => Uint8Array
}

export type DownloaderOptions = KeepOptions & {
  readonly run: Run
  readonly clock: Clock
  readonly asOfMs: number
  readonly limits?: Partial<Record<keyof typeof DOWNLOAD_LIMITS, number>>
}

export const DOWNLOAD_LIMITS = {
  /** Timeout per response, including its body. */
  timeoutMs: 15_000,
  /** For all downloads of a command, waits included. */
  totalMs: 180_000,
  /** Longest wait that a server may request by Retry-After, and how often it may do so for one file. */
  waitMs: 30_000,
  waits: 2,
} as const satisfies Record<string, number>

/** AMD's service returns one VCEK per address in this time. */
const tooManyWaitMs = 10_000

/** The downloads of one command: one at a time, because the services limit requests by address. */
export class Downloader {
  readonly #options: DownloaderOptions
  readonly #limits: Record<keyof typeof DOWNLOAD_LIMITS, number>
  readonly #endsMs: number
  readonly #fetched: Record<string, string> = {}
  #cached = new Set<string>()
  #usesCache = true
  readonly #files: NewFile[] = []
  readonly #hints: string[] = []

  constructor(options: DownloaderOptions) {
    this.#options = options
    this.#limits = { ...DOWNLOAD_LIMITS, ...options.limits }
    this.#endsMs = options.clock.monotonicMs() + this.#limits.totalMs
  }

  /** Returns a file of --cache, or what `fetch` returns, which `keep` then writes. */
  async cached(kept: CacheEntry, fetch: () => Promise<Uint8Array>): Promise<Uint8Array> {
    const { cache, asOfMs, clock } = this.#options
    const fetched = this.#files.find(({ file }) => file === kept.file)
    if (fetched !== undefined) return fetched.bytes
    const isSought = cache !== undefined && this.#usesCache
    const found = isSought ? findCached(cache, kept, { asOfMs, nowMs: clock.nowMs() }) : null
    if (found !== null) this.#cached.add(kept.file)
    const bytes = found ?? (await fetch())
    if (found === null) this.#files.push({ file: kept.file, bytes })
    return bytes
  }

  /** Downloads a file, unless --cache has it. Faults as `fetch`. */
  async get(wanted: DownloadRequest, kept: CacheEntry): Promise<Uint8Array> {
    return await this.cached(kept, () => {
      const fileOf = (body: Uint8Array, headers: Headers) => {
        const file = wanted.fileOf?.(body, headers) ?? body
        kept.untilMs(file)
        return file
      }
      return this.fetch({ ...wanted, fileOf })
    })
  }

  /** Downloads a file. Follows no redirects. Faults: api.unreachable, NoCollateralFault. */
  async fetch(wanted: DownloadRequest): Promise<Uint8Array> {
    const { url, bodyBytesMax, post } = wanted
    const { run, clock } = this.#options
    for (let waits = 0; ; waits += 1) {
      const timeoutMs = Math.max(1, Math.min(this.#limits.timeoutMs, this.#leftMs()))
      const signal = new AbortController().signal
      const result = await getBounded(url, { timeoutMs, bodyBytesMax, signal, post })
      if (result.kind === 'body') {
        this.#fetched[wanted.kind] = url
        return readBody(result, wanted)
      }
      const waitMs = requestedWaitMs(result, clock.nowMs())
      const isWorthIt = waitMs !== null && waitMs <= Math.min(this.#limits.waitMs, this.#leftMs())
      if (!isWorthIt || waits >= this.#limits.waits) throw toFault(result, { wanted, waitMs })
      await run.hint(`${url}: waiting ${Math.ceil(waitMs / 1000)} s, as the server requests`)
      await clock.sleep(waitMs)
    }
  }

  /**
   * Returns the verdict of `judge` on the downloads. If cached files may be why it is bad, downloads those and judges
   * again; the first verdict stands if that fails.
   */
  async judged<T extends { readonly checks: readonly Check[] }>(judge: () => Promise<T>): Promise<T> {
    const first = await judge()
    if (this.#cached.size === 0 || !dependsOnFiles(first.checks)) return first
    const cached = this.#cached
    this.#cached = new Set()
    this.#usesCache = false
    try {
      const second = await judge()
      this.#hints.push(`the verdict with cached files was bad; downloaded again: ${[...cached].join(', ')}`)
      return second
    } catch (error) {
      if (!(error instanceof Fault)) throw error
      this.#cached = cached
      this.#hints.push(`the cached files cannot be downloaded again: ${error.message}`)
      return first
    }
  }

  /** Writes the downloads, and returns what the document of the verdict has about them. Throws as keepFiles. */
  keep(checks: readonly Check[]) {
    const { saved, hints } = keepFiles(this.#files, { ...this.#options, checks })
    const cached = [...this.#cached]
    if (cached.length > 0) this.#hints.push(`used from --cache: ${cached.join(', ')}`)
    this.#hints.push(...hints)
    return { fetched: this.#fetched, cached, saved }
  }

  /** Prints lines about the files, after the verdict. */
  async showHints(): Promise<void> {
    for (const hint of this.#hints) await this.#options.run.hint(hint)
  }

  #leftMs(): number {
    return this.#endsMs - this.#options.clock.monotonicMs()
  }
}

/** Reports whether newer files could make the verdict good. */
function dependsOnFiles(checks: readonly Check[]): boolean {
  const failure = failureOf(verdict(checks))
  const isAged = checks.some(({ name, outcome }) => outcome === 'fail' && agedChecks.includes(name))
  return isAged || (failure !== null && failure !== 'policy')
}

/** Checks of a policy that compare the age of downloads. */
const agedChecks = ['crl-age', 'collateral-age', 'tcb-evaluation-data-number']

function readBody({ bytes, headers }: Extract<GetResult, { kind: 'body' }>, wanted: DownloadRequest): Uint8Array {
  try {
    return wanted.fileOf?.(bytes, headers) ?? bytes
  } catch (error) {
    if (!(error instanceof Malformed)) throw error
    throw noCollateral(wanted, `not what was requested: ${error.message}`)
  }
}

/** Null unless the server requests a delay. */
function requestedWaitMs(result: GetResult, nowMs: number): number | null {
  const isBusy = result.kind === 'status' && (result.status === 429 || result.status === 503)
  return isBusy ? retryAfterMs(result.retryAfter, nowMs) : null
}

/** Returns a fault that names the option for passing the file instead. */
function toFault(
  result: Exclude<GetResult, { kind: 'body' }>,
  { wanted, waitMs }: { readonly wanted: DownloadRequest; readonly waitMs: number | null },
): AdvisedFault {
  if (result.kind === 'too-large') return noCollateral(wanted, `more than ${wanted.bodyBytesMax} bytes came`)
  const { param } = wanted
  const remedy = otherwise(wanted)
  if (result.kind === 'unreachable') {
    const message = messageOf(wanted, result.reason)
    return new AdvisedFault('api.unreachable', message, { param, remedy: `check the network, ${remedy}` })
  }
  const { status } = result
  const reason = `HTTP status ${status}`
  if (status === 404) return noCollateral(wanted, `${reason}: the server has no such file`)
  if (status === 429 || waitMs !== null) {
    const seconds = Math.ceil((waitMs ?? tooManyWaitMs) / 1000)
    return noCollateral(wanted, reason, `try again in ${seconds} s, ${remedy}`)
  }
  return noCollateral(wanted, status >= 300 && status < 400 ? `${reason}: redirects are not followed` : reason)
}

function noCollateral(wanted: DownloadRequest, reason: string, remedy = otherwise(wanted)): NoCollateralFault {
  return new NoCollateralFault(messageOf(wanted, reason), { param: wanted.param, remedy })
}

function messageOf({ url, purpose }: DownloadRequest, reason: string): string {
  return `${purpose === undefined ? '' : `${oneLine(purpose)}: `}${url}: ${oneLine(reason)}`
}

function otherwise({ mirror, param }: DownloadRequest): string {
  return `name a mirror by --${mirror}, or the file by --${param}`
}
