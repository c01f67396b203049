// One request and its response with the holder of attested keys: sealed by EHBP, or over a pinned connection alone.
// Effects: through its channel. The protection of a request:
//   encryption 'required', a body      sealed, and bound to method, path and API key; so is the response
//   encryption 'required', no body     EHBP cannot seal it: over a pinned connection only
//   encryption 'off'                   over a pinned connection only
// A failure to seal or to open is an error: requests and responses never fall back to clear text.

import { bindingOf } from '../../attest/ehbp/binding.ts'
import { type ResponseOpener, type SealedRequest, SealingSession, type SealOptions } from '../../attest/ehbp/client.ts'
import { isKeyConfigProblem } from '../../attest/ehbp/key-config-problem.ts'
import { staleEpoch } from '../../attest/ehbp/protocol.ts'
import { createWholeCheck, isEventStream } from '../../attest/ehbp/whole.ts'
import { Malformed } from '../../attest/malformed.ts'
import type { PublicKeys } from '../../attest/receipt/public-keys.ts'
import { messageOf } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { ConnectionError, EncryptionError, IncompleteResponseError, RequestError } from './errors.ts'
import { readEpoch, type Sealing } from './evidence-keeper.ts'
import { bodyAtOnce, type Judging, judgedBody } from './response-body.ts'
import type { Channel, WireRequest, WireResponse } from './transport.ts'

type ExchangeDeps = {
  /** Keys from the verified evidence. */
  readonly keys: PublicKeys
  readonly channel: Channel
  readonly sealing: Sealing
  /** The gateway's path, which its requests do not have behind the proxy that leads there. */
  readonly prefix: string
  readonly encryption: 'required' | 'off'
  /** Whether the channel is held to the attested TLS key, so that what comes over it is the gateway's word. */
  readonly pins: boolean
  readonly random: RandomBytes
  readonly sealingCrypto: SealingCrypto
  readonly responseBytesMax: number
}

/** Cryptography for requests: of the runtime, or in JavaScript. */
export type SealingCrypto = Pick<SealOptions, 'newAesGcm' | 'encapsulate'>

/** The gateway says that it has no such encryption key: it did not carry out the request. */
export class UnknownKeyError extends Error {
  override readonly name = 'UnknownKeyError'
}

/**
 * Rejects with a PeerKeyError or an UnknownKeyError if the server has other keys, with the signal's reason, and with
 * RequestError, ConnectionError, EncryptionError.
 */
export async function exchange(request: WireRequest, deps: ExchangeDeps): Promise<Response> {
  const { encryption, pins, channel } = deps
  const { body } = request
  if (encryption === 'required' && body !== null) return await exchangeSealed({ ...request, body }, deps)
  if (!pins) {
    throw new RequestError(
      `${request.method} ${request.url.pathname}: a request without a body cannot be encrypted, and a page cannot pin the connection; send it from Bun or Node`,
    )
  }
  return await plainResponse(notRedirected(await channel.send(request)), request, deps)
}

type BodyRequest = WireRequest & { readonly body: Uint8Array<ArrayBuffer> }

async function exchangeSealed(request: BodyRequest, deps: ExchangeDeps): Promise<Response> {
  const { channel, sealing } = deps
  for (let isAgain = false; ; isAgain = true) {
    const sealed = await seal(request, deps)
    const headers = new Headers(request.headers)
    for (const [name, value] of Object.entries(sealed.headers)) headers.set(name, value)
    const response = notRedirected(await channel.send({ ...request, headers, body: sealed.body }))
    let opener: ResponseOpener
    try {
      opener = await sealed.openResponse(response)
    } catch (error) {
      if (!(error instanceof Malformed)) throw error
      return await unsealed(response, request, { deps, error })
    }
    const told = opener.headers['x-strongroom-epoch']
    if (told !== undefined) sealing.epoch = readEpoch(told.replace(staleEpoch, ''))
    // The gateway itself says so, sealed to this very request: it did not carry it out.
    const isStale = told?.startsWith(staleEpoch) === true
    if (!isStale || isAgain) return await openedResponse(response, { request, opener, deps })
    await bodyAtOnce(response.body, problemBytesMax)
  }
}

async function seal(
  request: BodyRequest,
  { keys, prefix, sealing, random, sealingCrypto }: ExchangeDeps,
): Promise<SealedRequest> {
  const { method, headers, url, body } = request
  const binding = bindingOf({ method, headers, target: url.pathname.slice(prefix.length) + url.search })
  try {
    sealing.session ??= SealingSession.open({ keys, suite: 'xwing', random, ...sealingCrypto })
    return await (await sealing.session).seal(body, { binding, epoch: sealing.epoch })
  } catch (error) {
    throw new EncryptionError(`the request could not be encrypted, and was not sent: ${messageOf(error)}`, {
      status: null,
      cause: error,
    })
  }
}

type Opening = { readonly request: WireRequest; readonly opener: ResponseOpener; readonly deps: ExchangeDeps }

async function openedResponse(response: WireResponse, { request, opener, deps }: Opening): Promise<Response> {
  const { status, body } = response
  if (body === null) throw new IncompleteResponseError(`a response of status ${status} came without its body`)
  const headers = clearHeaders(response.headers)
  for (const [name, value] of Object.entries(opener.headers)) headers.set(name, value)
  const judging: Judging = { by: { opener }, signal: request.signal, status }
  return await responseOf({ ...response, headers, body }, judging, deps)
}

const problemBytesMax = 64 * 1024

/** An unsealed response: the gateway's word only on a pinned connection, and never once a request was carried out. */
async function unsealed(
  response: WireResponse,
  request: WireRequest,
  { deps, error }: { readonly deps: ExchangeDeps; readonly error: Malformed },
): Promise<Response> {
  const { status, headers, body } = response
  const mayPass = deps.pins && status >= 400
  if (status !== 422) {
    if (mayPass) return await plainResponse(response, request, deps)
    void body?.cancel().catch(() => {})
    throw notSealed(status, error)
  }
  const bytes = await bodyAtOnce(body, problemBytesMax)
  const text = new TextDecoder().decode(bytes)
  if (isKeyConfigProblem({ status, contentType: headers.get('content-type'), body: text })) {
    throw new UnknownKeyError('the gateway has another encryption key')
  }
  if (mayPass) return await plainResponse({ ...response, body: new Response(bytes).body }, request, deps)
  throw notSealed(status, error)
}

function notSealed(status: number, cause: Malformed): EncryptionError {
  const message = `a response with status ${status} is not encrypted to this request, so it is not authentic: ${cause.message}`
  return new EncryptionError(
    `${message}. What to do: send it again; if the error stays, find out which server answers there`,
    {
      status,
      cause,
    },
  )
}

async function plainResponse(response: WireResponse, { signal }: WireRequest, deps: ExchangeDeps): Promise<Response> {
  const { status, statusText, body } = response
  const headers = clearHeaders(response.headers)
  if (body === null) return new Response(null, { status, statusText, headers })
  const type = headers.get('content-type')
  const whole = isEventStream(type) || isJson(type) ? createWholeCheck(type) : null
  return await responseOf({ ...response, headers, body }, { by: { whole }, signal, status }, deps)
}

/** Other content has no end mark: the pinned connection must tell. */
function isJson(contentType: string | null): boolean {
  return /^application\/json[ \t]*(?:;|$)/i.test(contentType ?? '')
}

/** Headers about the bytes on the wire do not hold for the opened body. */
function clearHeaders(given: Headers): Headers {
  const headers = new Headers(given)
  for (const name of ['content-length', 'content-encoding', 'transfer-encoding', 'connection', 'keep-alive']) {
    headers.delete(name)
  }
  return headers
}

/** Streams pass as they come. Anything else is read whole, so that this very request fails if it is not whole. */
async function responseOf(
  response: WireResponse & { readonly body: ReadableStream<Uint8Array<ArrayBuffer>> },
  judging: Judging,
  { responseBytesMax }: ExchangeDeps,
): Promise<Response> {
  const { status, statusText, headers } = response
  const body = judgedBody(response.body, judging)
  const given = isEventStream(headers.get('content-type')) ? body : await bodyAtOnce(body, responseBytesMax)
  return new Response(given, { status, statusText, headers })
}

function notRedirected(response: WireResponse): WireResponse {
  const { status, body } = response
  if (status < 300 || status >= 400) return response
  void body?.cancel().catch(() => {})
  throw new ConnectionError(
    `the gateway answered with a redirect (status ${status}), and an attested request follows none: use its own address`,
  )
}
