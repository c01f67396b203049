// Sends one request to the holder of attested keys and returns its response, sealed with EHBP or only over a pinned
// connection. Effects: through its channel. The protection of a request:
//
//   encryption 'required', a body      sealed, and bound to method, path and API key; so is the response
//   encryption 'required', no body     EHBP cannot seal it: over a pinned connection only
//   encryption 'off'                   over a pinned connection only
//
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
  /** The gateway's path, which is missing from its requests behind a proxy. */
  readonly prefix: string
  readonly encryption: 'required' | 'off'
  /** Whether the channel only accepts the attested TLS key, so that responses are authentic. */
  readonly pins: boolean
  readonly random: RandomBytes
  readonly sealingCrypto: SealingCrypto
  readonly responseBytesMax: number
}

/** Cryptography for requests: the runtime's, or JavaScript. */
export type SealingCrypto = Pick<SealOptions, 'newAesGcm' | 'encapsulate'>

/** The gateway does not have this encryption key, and did not execute the request. */
export class UnknownKeyError extends Error {
  override readonly name = 'UnknownKeyError'
}

/**
 * Sends a request. Rejects with a PeerKeyError or an UnknownKeyError if the server has other keys, with the signal's
 * reason, and with RequestError, ConnectionError, EncryptionError.
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
    // The gateway itself reports this, sealed to this request: it did not execute it.
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

/**
 * Handles an unsealed response. It is authentic only on a pinned connection, and never after a request was executed.
 */
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

/** Other content has no end marker, so only the pinned connection shows its end. */
function isJson(contentType: string | null): boolean {
  return /^application\/json[ \t]*(?:;|$)/i.test(contentType ?? '')
}

/** Removes headers about the encoded bytes, which do not describe the opened body. */
function clearHeaders(given: Headers): Headers {
  const headers = new Headers(given)
  for (const name of ['content-length', 'content-encoding', 'transfer-encoding', 'connection', 'keep-alive']) {
    headers.delete(name)
  }
  return headers
}

/** Passes streams through. Reads any other body completely, so that this request fails if it is incomplete. */
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
