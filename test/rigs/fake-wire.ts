// A wire without a network for `attestedFetch`: gateways with real simulated evidence and real EHBP, and whoever may
// stand between. Effects: randomness.

import { createManualClock } from '../../scripts/rigs/clock.ts'
import { openRig, type RigOptions } from '../../scripts/rigs/gateway/attestation.ts'
import { attestedOptions } from '../../scripts/rigs/gateway/attested-gateway.ts'
import type { ReceiptKeys } from '../../src/attest/receipt/receipt-keys.ts'
import { present } from '../../src/base/assert.ts'
import { Fault } from '../../src/base/fault.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { makeReceiptKeys } from '../../src/inference/attestation/receipt-keys.ts'
import { createEncryption } from '../../src/inference/encryption/encryption.ts'
import { ReplayMemory } from '../../src/inference/encryption/replays.ts'
import { errorResponse } from '../../src/inference/gateway/responses.ts'
import { type AttestedFetch, createAttestedFetch } from '../../src/verifier/fetch/attested-fetch.ts'
import { AttestedFetchError, PeerKeyError } from '../../src/verifier/fetch/errors.ts'
import type { AttestedFetchOptions } from '../../src/verifier/fetch/options.ts'
import { portableCrypto } from '../../src/verifier/fetch/portable-crypto.ts'
import type { EvidenceAnswer, Transport, WireRequest, WireResponse } from '../../src/verifier/fetch/transport.ts'

export type FakeGateway = Disposable & {
  readonly keys: ReceiptKeys
  readonly tlsSpkiDigest: Uint8Array
  /** The body of GET /attestation for this nonce. */
  readonly attest: (url: URL) => Promise<EvidenceAnswer>
  /** Requests it got, decrypted. */
  readonly seen: string[]
  /** Answers as the gateway does: sealed where the request was. */
  readonly respond: (request: WireRequest) => Promise<WireResponse>
  readonly replays: ReplayMemory
}

function toWire(response: Response): WireResponse {
  const { status, headers, body } = response
  return { status, statusText: '', headers, body: body as WireResponse['body'] }
}

/** The answer to whatever is asked: type and body. */
export type FakeAnswer = { readonly status?: number; readonly type?: string; readonly body: string }

export const wholeAnswer: FakeAnswer = { type: 'application/json', body: '{"answer":"here"}' }

export async function createFakeGateway(
  options: Pick<RigOptions, 'clock' | 'origin'> = {},
  answer: () => FakeAnswer = () => wholeAnswer,
): Promise<FakeGateway> {
  const keys = makeReceiptKeys(systemRandom)
  const tlsSpkiDigest = systemRandom(32)
  const rig = await openRig({ ...options, keys, tlsSpkiDigest })
  const seen: string[] = []
  const replays = new ReplayMemory({ clock: createManualClock(0), random: systemRandom })
  const encryption = createEncryption({ keys, random: systemRandom, checkReplay: body => replays.check(body) })
  return {
    keys,
    tlsSpkiDigest,
    seen,
    attest: async url => {
      const response = await rig.endpoint(new Request(url.href))
      const body = new Uint8Array(await response.arrayBuffer())
      return { status: response.status, retryAfter: null, epoch: replays.epoch, body }
    },
    respond: async request => {
      const { status = 200, type = 'application/json', body } = answer()
      const { method, url } = request
      const given = request.body ?? new Uint8Array(0)
      const headers = new Headers([...request.headers, ['content-length', String(given.length)]])
      const exchange = encryption.begin(new Request(url.href, { method, headers }))
      const response = new Response(body, { status, headers: { 'content-type': type } })
      if (exchange === null) {
        seen.push(new TextDecoder().decode(given))
        return wireResponse(status, { 'content-type': type }, new TextEncoder().encode(body))
      }
      try {
        const sender = { keyDigest: 'k1', request: 'r1' }
        seen.push(new TextDecoder().decode(await exchange.decrypt(given, { bytesMax: 1_000_000, sender })))
        return toWire(await exchange.encrypt(response))
      } catch (error) {
        if (!(error instanceof Fault)) throw error
        const refusal = await exchange.encrypt(errorResponse(error, {}))
        return toWire(refusal)
      }
    },
    replays,
    [Symbol.dispose]: () => rig[Symbol.dispose](),
  }
}

export function keyConfigProblem(): WireResponse {
  const text = JSON.stringify({ type: 'urn:ietf:params:ehbp:error:key-config', title: 'other keys' })
  return wireResponse(422, { 'content-type': 'application/problem+json' }, new TextEncoder().encode(text))
}

export function wireResponse(status: number, headers: Record<string, string>, bytes: Uint8Array): WireResponse {
  return { status, statusText: '', headers: new Headers(headers), body: new Response(bytes.slice()).body }
}

export type FakeAttestation = EvidenceAnswer & { readonly tlsSpkiDigest: Uint8Array | 'any' }

/** Gateways that answer evidence requests and connections now; a test changes them. */
export type FakeWire = {
  readonly transport: Transport
  /** Set by a test to stand between. */
  attest: (url: URL, signal: AbortSignal) => Promise<FakeAttestation>
  /** Answer to GET /workload.json. */
  workload: EvidenceAnswer
  respond: (request: WireRequest) => Promise<WireResponse>
  /** SHA-256 of the SPKI that whoever answers connections shows. */
  tlsSpkiDigest: Uint8Array
  /** Nonces that were asked with, requests that reached a peer, and channels that were closed. */
  readonly nonces: string[]
  readonly sent: WireRequest[]
  readonly closed: () => number
  /** Lets this gateway answer everything. */
  readonly connect: (gateway: FakeGateway) => void
}

export function createFakeWire(gateway: FakeGateway, { pins }: { readonly pins: boolean }): FakeWire {
  let closed = 0
  const honest = (gateway: FakeGateway) => ({
    respond: gateway.respond,
    tlsSpkiDigest: gateway.tlsSpkiDigest,
    attest: async (url: URL): Promise<FakeAttestation> => ({
      ...(await gateway.attest(url)),
      tlsSpkiDigest: pins ? wire.tlsSpkiDigest : 'any',
    }),
  })
  const wire: FakeWire = {
    ...honest(gateway),
    nonces: [],
    sent: [],
    closed: () => closed,
    workload: { status: 404, retryAfter: null, epoch: null, body: new Uint8Array(0) },
    connect: next => void Object.assign(wire, honest(next)),
    transport: {
      pins,
      askEvidence: async ([attestation, workload], signal) => {
        const { url } = present(attestation, 'the first question')
        wire.nonces.push(url.searchParams.get('nonce') ?? '')
        const { tlsSpkiDigest, ...answer } = await wire.attest(url, signal)
        return { answers: [answer, ...(workload === undefined ? [] : [wire.workload])], tlsSpkiDigest }
      },
      open: pinned => ({
        send: async request => {
          if (pinned !== 'any' && Buffer.compare(pinned, wire.tlsSpkiDigest) !== 0)
            throw new PeerKeyError('another key')
          wire.sent.push(request)
          return await wire.respond(request)
        },
        close: () => {
          closed += 1
        },
      }),
    },
  }
  return wire
}

export const gatewayUrl = 'https://gateway.example'
/** In the body of every request; it must never go out in the clear. */
export const secret = 'the secret prompt'
/** Short enough that the evidence's certificates outlive every test. */
export const fakeLimits = { evidenceAgeMaxMs: 240_000, reverifyAfterMs: 120_000 } as const

type FakeOptions = { readonly pins?: boolean; readonly answer?: () => FakeAnswer }

/** `attestedFetch` of a relying party that expects exactly this gateway, with a clock of its own. */
export async function startFakeFetch(
  changes: Partial<AttestedFetchOptions> = {},
  { pins = true, answer = () => wholeAnswer }: FakeOptions = {},
) {
  const clock = createManualClock(Date.now())
  const gateway = await createFakeGateway({ clock }, answer)
  const wire = createFakeWire(gateway, { pins })
  const fetch = createAttestedFetch(
    { ...(await attestedOptions()), url: gatewayUrl, ...fakeLimits, ...changes },
    { createTransport: () => wire.transport, clock, random: systemRandom, crypto: portableCrypto },
  )
  return { clock, gateway, wire, fetch, another: () => createFakeGateway({ clock }, answer) }
}

export function ask(fetch: AttestedFetch, init: RequestInit = {}): Promise<Response> {
  return fetch(`${gatewayUrl}/v1/chat/completions`, { method: 'POST', body: secret, ...init })
}

/** The rejection, which must be an error of the package's. */
export async function failureOf(promise: Promise<unknown>): Promise<AttestedFetchError> {
  const error = await promise.then(
    () => 'nothing failed',
    reason => reason,
  )
  if (error instanceof AttestedFetchError) return error
  throw new Error(`not an AttestedFetchError: ${error}`)
}

/** Whether something that was sent holds the secret in the clear. */
export function sentInClear({ sent }: FakeWire): boolean {
  return sent.some(({ body }) => Buffer.from(body ?? []).includes(secret))
}
