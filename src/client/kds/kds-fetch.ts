// Fetches the collateral of a report from AMD's key server. Effects: the network. It trusts nothing: the responses are
// judged like files, and must end at the same roots.

import { type KdsRequest, retryAfterMs } from '../../attest/kds/request.ts'
import type { ServedRequests } from '../../attest/kds/served.ts'
import type { SnpReport } from '../../attest/report/report.ts'
import { type GetResult, getBounded } from '../../linux/net/bounded-http.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { oneLine } from '../../terminal/render.ts'
import { kdsUrl, noVcekRemedy } from './kds-urls.ts'

/** Files from the relying party, which are not fetched. */
export type GivenFiles = {
  readonly vek: Uint8Array | undefined
  readonly chain: Uint8Array | readonly Uint8Array[] | undefined
  readonly crl: Uint8Array | undefined
}

export type FetchedFile = {
  readonly kind: 'vcek' | 'chain' | 'crl'
  readonly url: string
  /** File name, as in the host's cache. */
  readonly file: string
  readonly bytes: Uint8Array
}

export type Fetched = {
  readonly files: readonly FetchedFile[]
  /** Why the chain is missing; null if it was fetched or given. The built-in roots contain chains of their own. */
  readonly withoutChain: string | null
}

export type FetchFrom = {
  readonly baseUrl: string
  /** Timeout per file, including its body. */
  readonly timeoutMs: number
  /** Wall clock in milliseconds, because a server may respond with a date instead of a delay. */
  readonly nowMs: () => number
}

export const fetchTimeoutMs = 15_000

/**
 * Fetches everything that is not given. Faults: api.unreachable, not_found, attest.unavailable; invalid_request if the
 * service has no certificates for the key. Follows no redirects.
 */
export async function fetchMissing(
  { signer }: Pick<SnpReport, 'signer'>,
  { served, given }: { readonly served: ServedRequests; readonly given: GivenFiles },
  from: FetchFrom,
): Promise<Fetched> {
  const { vcek, chain, crl } = served
  if (given.vek === undefined && typeof vcek === 'string') {
    throw new InputFault(`--fetch: ${vcek}`, { param: 'fetch', remedy: noVcekRemedy(signer) })
  }
  const wanted = [
    ...(given.vek === undefined && typeof vcek !== 'string' ? [{ kind: 'vcek', request: vcek } as const] : []),
    ...(given.chain === undefined ? [{ kind: 'chain', request: chain } as const] : []),
    ...(given.crl === undefined ? [{ kind: 'crl', request: crl } as const] : []),
  ]
  const results = await Promise.all(wanted.map(item => fetchOne(item, from)))
  const failures = results.filter(result => result instanceof AdvisedFault)
  const fatal = failures.find(({ param }) => param !== 'chain')
  if (fatal !== undefined) throw fatal
  const files = results.flatMap(result => (result instanceof AdvisedFault ? [] : [result]))
  return { files, withoutChain: failures[0]?.message ?? null }
}

type FetchedKind = { readonly kind: FetchedFile['kind']; readonly request: KdsRequest }

async function fetchOne(wanted: FetchedKind, from: FetchFrom): Promise<FetchedFile | AdvisedFault> {
  const { kind, request } = wanted
  const { baseUrl, timeoutMs } = from
  const url = kdsUrl(baseUrl, request)
  const { bodyBytesMax } = request
  const result = await getBounded(url, { timeoutMs, bodyBytesMax, signal: new AbortController().signal })
  if (result.kind === 'body') return { kind, url, file: request.file, bytes: result.bytes }
  return toFault(result, { wanted, url, nowMs: from.nowMs() })
}

/** Returns a Fault that names the option for passing the file instead. */
function toFault(
  result: Exclude<GetResult, { kind: 'body' }>,
  { wanted, url, nowMs }: { readonly wanted: FetchedKind; readonly url: string; readonly nowMs: number },
): AdvisedFault {
  const param = wanted.kind === 'vcek' ? 'vek' : wanted.kind
  const otherwise = `name a mirror by --kds-url, or the file by --${param}`
  const fault = (code: AdvisedFault['code'], reason: string, remedy: string) =>
    new AdvisedFault(code, `${url}: ${oneLine(reason)}`, { param, remedy })
  if (result.kind === 'unreachable') return fault('api.unreachable', result.reason, `check the network, ${otherwise}`)
  if (result.kind === 'too-large') {
    return fault('attest.unavailable', `more than ${wanted.request.bodyBytesMax} bytes came`, otherwise)
  }
  const { status, retryAfter } = result
  const reason = `HTTP status ${status}`
  if (status === 404) return fault('not_found', `${reason}: the server has no such file`, otherwise)
  if (status === 429) {
    const waitMs = retryAfterMs(retryAfter, nowMs) ?? tooManyWaitMs
    return fault('attest.unavailable', reason, `try again in ${Math.ceil(waitMs / 1000)} s, ${otherwise}`)
  }
  const isRedirect = status >= 300 && status < 400
  return fault('attest.unavailable', isRedirect ? `${reason}: redirects are not followed` : reason, otherwise)
}

/** AMD's service returns one VCEK per address in this time. */
const tooManyWaitMs = 10_000
