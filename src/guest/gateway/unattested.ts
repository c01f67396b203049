// Connects to a gateway without evidence: TLS with the claim's authority, for this connection only, or plain HTTP if
// its address is http. Effects: the network.
//
// Each connection is checked first, by the names in its certificate; requests then go to the holder of that
// certificate's key.

import { createHash, X509Certificate } from 'node:crypto'
import { isIP } from 'node:net'
import { connect } from 'node:tls'
import { isEventStream } from '../../attest/ehbp/whole.ts'
import { messageOf } from '../../base/fault.ts'
import { parseIpv6 } from '../../base/ipv6.ts'
import { connected } from '../../linux/net/tls-connected.ts'
import type { Sender } from '../../verifier/fetch/endpoint/endpoint.ts'
import { ConnectionError, PeerKeyError, RequestError } from '../../verifier/fetch/errors.ts'
import { createNodeTransport } from '../../verifier/fetch/node-transport.ts'
import { bodyAtOnce } from '../../verifier/fetch/response-body.ts'
import type { Channel, WireRequest, WireResponse } from '../../verifier/fetch/transport.ts'
import { certificateNameProblem } from './certificate-name.plan.ts'

/** The server shows no certificate for the gateway's name that the authority signed. Nothing was sent. */
class CertificateNameError extends Error {
  override readonly name = 'CertificateNameError'
}

type UnattestedGatewayAt = {
  readonly baseUrl: URL
  /** PEM of the only accepted authority; null means the system's. */
  readonly ca: string | null
}

const connectTimeoutMs = 10_000
const idleTimeoutMs = 600_000
const responseBytesMax = 64 * 1024 * 1024

export function createUnattestedFetch(gateway: UnattestedGatewayAt): Sender {
  if (gateway.baseUrl.protocol === 'http:') return { send: sendPlainly, close: () => {} }
  const { send, close } = new JudgedConnections(gateway)
  return {
    send: async (url, init) => {
      const { method = 'GET', headers, body, signal = null } = init
      if (body != null && !(body instanceof Uint8Array)) throw new RequestError('the body is not in memory')
      return responseOf(
        await send({ method, url, headers: new Headers(headers), body: (body as Bytes | null) ?? null, signal }),
      )
    },
    close,
  }
}

type Bytes = Uint8Array<ArrayBuffer>

async function sendPlainly(url: URL, init: RequestInit): Promise<Response> {
  try {
    const response = await fetch(url, { ...init, redirect: 'manual', headers: withIdentity(init.headers) })
    const { status, statusText, headers, body } = response
    return await responseOf({ status, statusText, headers, body: body as ReadableStream<Bytes> | null })
  } catch (error) {
    if (init.signal?.aborted || error instanceof ConnectionError) throw error
    throw new ConnectionError(`no response from ${url.host}: ${messageOf(error)}`, { cause: error })
  }
}

function withIdentity(given: RequestInit['headers']): Headers {
  const headers = new Headers(given)
  headers.set('accept-encoding', 'identity')
  return headers
}

async function responseOf({ status, statusText, headers, body }: WireResponse): Promise<Response> {
  if (status >= 300 && status < 400) {
    void body?.cancel().catch(() => {})
    throw new ConnectionError(`the gateway answered with a redirect (status ${status}), which is not followed`)
  }
  if (body === null) return new Response(null, { status, statusText, headers })
  const isStream = isEventStream(headers.get('content-type'))
  return new Response(isStream ? body : await bodyAtOnce(body, responseBytesMax), { status, statusText, headers })
}

class JudgedConnections {
  readonly #gateway: UnattestedGatewayAt
  #channel: Promise<Channel> | null = null

  constructor(gateway: UnattestedGatewayAt) {
    this.#gateway = gateway
  }

  /** Checks once more if the gateway's key has changed: it may have a new certificate. */
  readonly send = async (request: WireRequest): Promise<WireResponse> => {
    const channel = await this.#open()
    try {
      return await channel.send(request)
    } catch (error) {
      if (!(error instanceof PeerKeyError)) throw error
    }
    this.close()
    return await (await this.#open()).send(request)
  }

  readonly close = (): void => {
    this.#channel?.then(
      channel => channel.close(),
      () => {},
    )
    this.#channel = null
  }

  #open(): Promise<Channel> {
    if (this.#channel !== null) return this.#channel
    const { baseUrl, ca } = this.#gateway
    const wire = { ca: ca ?? undefined, connectTimeoutMs, idleTimeoutMs }
    const opening = judgedKey(this.#gateway).then(key => createNodeTransport(wire).open(key))
    this.#channel = opening
    opening.catch(() => {
      if (this.#channel === opening) this.#channel = null
    })
    return opening.catch(error => {
      if (error instanceof CertificateNameError) throw error
      throw new ConnectionError(`no connection to ${baseUrl.host}: ${messageOf(error)}`, { cause: error })
    })
  }
}

/** SHA-256 of the SubjectPublicKeyInfo of the checked certificate. */
async function judgedKey({ baseUrl, ca }: UnattestedGatewayAt): Promise<Uint8Array> {
  const host = baseUrl.hostname.replace(/^\[|\]$/g, '')
  const socket = connect({
    host,
    port: Number(baseUrl.port || 443),
    ALPNProtocols: ['http/1.1'],
    // Checked below, for an error that names the problem.
    rejectUnauthorized: false,
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(ca === null ? {} : { ca }),
  })
  const late = () => socket.destroy(new Error(`no connection within ${connectTimeoutMs} ms`))
  const timer = setTimeout(late, connectTimeoutMs)
  try {
    await connected(socket)
    const { raw } = socket.getPeerCertificate(false)
    if (raw === undefined) throw new CertificateNameError('it shows no certificate')
    if (!socket.authorized) throw new CertificateNameError(messageOf(socket.authorizationError))
    const problem = certificateNameProblem(new Uint8Array(raw), isIP(host) === 0 ? host : addressBytes(host))
    if (problem !== null) throw new CertificateNameError(problem)
    const spki = new X509Certificate(raw).publicKey.export({ format: 'der', type: 'spki' })
    return new Uint8Array(createHash('sha256').update(spki).digest())
  } finally {
    clearTimeout(timer)
    socket.destroy()
  }
}

/** Bytes of an address in node:net's form; IPv6 through URL, which writes its shortest form. */
function addressBytes(host: string): Uint8Array {
  if (isIP(host) === 4) return Uint8Array.from(host.split('.').map(Number))
  const value = parseIpv6(host)
  return Uint8Array.from({ length: 16 }, (_, at) => Number((value >> BigInt(8 * (15 - at))) & 0xffn))
}
