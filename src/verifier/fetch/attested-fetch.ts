// A `fetch` that only accepts one attested gateway. Effects: the network, through its transport.
//
// fresh evidence ─► a connection pinned to the attested TLS key (Bun, Node) ─► bodies encrypted to it
//
// If a gateway presents another key, requests its evidence once, with a new nonce. Then the request is resent or fails.

import type { HybridVerifiers } from '../../attest/receipt/hybrid-verify.ts'
import { equalConstantTime } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { keyMakerIn } from '../key-maker.ts'
import { AttestedFetchError, KeyChangedError, KeyMakerError, OptionError, PeerKeyError } from './errors.ts'
import type { Evidence } from './evidence.ts'
import { type Attested, EvidenceKeeper } from './evidence-keeper.ts'
import { exchange, type SealingCrypto, UnknownKeyError } from './exchange.ts'
import { type AttestedFetchOptions, readOptions, type Settings, type Wire } from './options.ts'
import { type FetchInput, readRequest } from './request.ts'
import type { Transport, WireRequest } from './transport.ts'

/** A `fetch` for one gateway: `new OpenAI({ apiKey, baseURL: 'https://HOST:PORT/v1', fetch })`. */
export type AttestedFetch = {
  /**
   * Like the platform's fetch, but it follows no redirect, and a response that ends too early is an error of its body's
   * stream. Rejects with an AttestedFetchError, or with the signal's reason. The first call verifies the gateway.
   */
  (input: FetchInput, init?: RequestInit): Promise<Response>
  /** Verifies the gateway now, with a new nonce. Rejects with EvidenceError or VerificationError. */
  readonly verify: (options?: { readonly signal?: AbortSignal }) => Promise<Evidence>
  /**
   * Returns the current evidence for requests; null before the first verification and after the last one has expired.
   */
  readonly evidence: () => Evidence | null
  /**
   * Returns the maker of an API key, according to the verified gateway. `client`: the operator registered the key's
   * digest, so the host cannot impersonate you, provided that you made the key yourself and only you know it. `host`:
   * the host minted the key and can impersonate you. Sends the key over a pinned connection; in a page, which has none,
   * rejects with RequestError. Rejects with KeyMakerError if the gateway rejects the key or does not name the maker.
   */
  readonly keyMadeBy: (apiKey: string, options?: { readonly signal?: AbortSignal }) => Promise<'client' | 'host'>
  /** Closes idle connections and forgets the evidence; a later call verifies again. Running requests continue. */
  readonly close: () => void
}

/** A client's cryptography: the runtime's, or JavaScript for what the runtime lacks. */
export type ClientCrypto = { readonly verifiers: HybridVerifiers; readonly sealing: SealingCrypto }

type AttestedFetchDeps = {
  readonly createTransport: (wire: Wire) => Transport
  readonly clock: Clock
  readonly random: RandomBytes
  readonly crypto: ClientCrypto
}

/** Creates the fetch. Throws OptionError. */
export function createAttestedFetch(options: AttestedFetchOptions, deps: AttestedFetchDeps): AttestedFetch {
  const settings = readOptions(options)
  const { createTransport, clock, random, crypto } = deps
  const transport = createTransport(settings.wire)
  requireProtection(settings, transport)
  const keeper = new EvidenceKeeper({ settings, transport, clock, random, verifiers: crypto.verifiers })
  const attested = async (input: FetchInput, init?: RequestInit): Promise<Response> => {
    const { origin, prefix, limits } = settings
    const { requestBytesMax } = limits
    const request = await readRequest(input, init, { origin, prefix, requestBytesMax })
    return await sendAttested(request, { settings, transport, keeper, random, sealingCrypto: crypto.sealing })
  }
  return Object.assign(attested, {
    verify: async ({ signal }: { readonly signal?: AbortSignal } = {}) => (await keeper.renew(signal ?? null)).evidence,
    evidence: () => keeper.current(),
    keyMadeBy: async (apiKey: string, { signal }: { readonly signal?: AbortSignal } = {}) => {
      const { origin, prefix } = settings
      const headers = { authorization: `Bearer ${apiKey}` }
      const url = `${origin.origin}${prefix}/v1/usage`
      return await readKeyMaker(await attested(url, signal === undefined ? { headers } : { headers, signal }), origin)
    },
    close: () => keeper.close(),
  })
}

async function readKeyMaker(response: Response, { host }: URL): Promise<'client' | 'host'> {
  const { status } = response
  const body: unknown = await response.json().catch(() => null)
  if (status !== 200) {
    const advice = status === 401 ? 'check the key' : 'try again later'
    throw new KeyMakerError(`${host} answers GET /v1/usage with status ${status}. What to do: ${advice}`, { status })
  }
  const maker = keyMakerIn(body)
  if (maker !== null) return maker
  throw new KeyMakerError(`${host} does not say who made the key. What to do: ask the operator to update it`, {
    status,
  })
}

function requireProtection({ encryption }: Settings, { pins }: Transport): void {
  if (encryption === 'required' || pins) return
  throw new OptionError('encryption', "this runtime pins no TLS key, so that nothing else protects: say 'required'")
}

type Sending = {
  readonly settings: Settings
  readonly transport: Transport
  readonly keeper: EvidenceKeeper
  readonly random: RandomBytes
  readonly sealingCrypto: SealingCrypto
}

async function sendAttested(request: WireRequest, sending: Sending): Promise<Response> {
  const { keeper } = sending
  const first = await keeper.fresh(request.signal)
  const refused = await attempt(request, first, sending)
  if (refused instanceof Response) return refused
  const second = await renewed(first, refused, request, sending)
  const again = await attempt(request, second, sending)
  if (again instanceof Response) return again
  throw keyChanged(sending, again, 'and after fresh evidence, which verified, again')
}

/** Returns the response, or why the holder of the attested keys did not receive the request. */
async function attempt(
  request: WireRequest,
  { evidence, channel, sealing }: Attested,
  { settings: { encryption, limits, prefix }, transport: { pins }, random, sealingCrypto }: Sending,
): Promise<Response | PeerKeyError | UnknownKeyError> {
  try {
    return await exchange(request, {
      keys: evidence.keys,
      channel,
      sealing,
      prefix,
      encryption,
      pins,
      random,
      sealingCrypto,
      responseBytesMax: limits.responseBytesMax,
    })
  } catch (error) {
    if (error instanceof PeerKeyError || error instanceof UnknownKeyError) return error
    throw error
  }
}

async function renewed(
  stale: Attested,
  refused: PeerKeyError | UnknownKeyError,
  { signal }: WireRequest,
  sending: Sending,
): Promise<Attested> {
  let next: Attested
  try {
    next = await sending.keeper.renewAfter(stale, signal)
  } catch (error) {
    if (signal?.aborted || !(error instanceof AttestedFetchError)) throw error
    throw keyChanged(sending, error, `and there is no fresh evidence for it: ${error.message}`)
  }
  // Do not resend to a gateway that rejects its attested key and then attests to the same key again.
  const isSameKey = sameEncryptionKey(stale.evidence, next.evidence)
  if (refused instanceof UnknownKeyError && isSameKey)
    throw keyChanged(sending, refused, `though its evidence names it${otherCauses}`)
  return next
}

const otherCauses =
  ': or something on the way changed the path or the API key, or the gateway is older than this package'

function sameEncryptionKey({ keys: a }: Evidence, { keys: b }: Evidence): boolean {
  return equalConstantTime(a.x25519, b.x25519) && equalConstantTime(a.mlkem768, b.mlkem768)
}

function keyChanged({ settings: { origin } }: Sending, cause: Error, what: string): KeyChangedError {
  const advice = 'verify the gateway by hand (strongroom verify gateway), and find out who answers at its address'
  return new KeyChangedError(
    `${origin.host} answers with another key than the attested one, ${what}. What to do: ${advice}`,
    { cause },
  )
}
