// One GET over one TLS connection, with the certificate of exactly that connection. Effects: the network.
//
// Not Bun's fetch: it shows a certificate only if it accepts it, and may reuse a connection (1.4.5). node:tls always
// shows it.

import { isIP, type Socket } from 'node:net'
import { connect, type TLSSocket } from 'node:tls'
import { messageOf } from '../../base/fault.ts'
import { connected } from './tls-connected.ts'

export type TlsResponse = {
  readonly status: number
  /** Retry-After's value, or null. */
  readonly retryAfter: string | null
  readonly body: Uint8Array
  /** DER. */
  readonly certificate: Uint8Array
  /** The problem with the certificate; null if the given authority, or one of the system's, issued it for this host. */
  readonly certificateFault: string | null
}

export type TlsGet = {
  /** https, no credentials. */
  readonly url: URL
  /** Value of the Authorization field. A secret: sent only after the certificate is verified. */
  readonly authorization?: string | undefined
  /** Withholds the secret from a peer whose certificate (DER) does not pass. By default only the authority decides. */
  readonly isPeer?: (certificate: Uint8Array) => boolean
  /** PEM of an authority; undefined: the system's. */
  readonly ca: string | undefined
  /** From the start of the connection to the last byte of the response. */
  readonly timeoutMs: number
  readonly bodyBytesMax: number
  /** A connection to the host, as through a proxy; opened here by default. The caller closes it. */
  readonly socket?: Socket
}

const headBytesMax = 16 * 1024

/** The certificate is not valid, so the secret was not sent. The message names the problem. */
export class CertificateError extends Error {}

/**
 * Without a secret to send it connects whatever the certificate, which the caller then judges. Throws an Error that
 * names the problem, or a CertificateError if a secret was withheld.
 */
export async function getOverTls(get: TlsGet): Promise<TlsResponse> {
  const { url, ca, timeoutMs, bodyBytesMax, authorization, isPeer } = get
  const host = url.hostname.replace(/^\[|\]$/g, '')
  const socket = connect({
    ...(get.socket === undefined ? { host, port: Number(url.port || 443) } : { host, socket: get.socket }),
    rejectUnauthorized: false,
    ALPNProtocols: ['http/1.1'],
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(ca === undefined ? {} : { ca }),
  })
  const timer = setTimeout(() => socket.destroy(new Error(`no response within ${timeoutMs} ms`)), timeoutMs)
  try {
    await connected(socket)
    const { raw } = socket.getPeerCertificate(true)
    if (raw === undefined) throw new Error('the server showed no certificate')
    const certificate = new Uint8Array(raw)
    const certificateFault = socket.authorized ? null : messageOf(socket.authorizationError)
    if (authorization !== undefined && certificateFault !== null) throw new CertificateError(certificateFault)
    if (authorization !== undefined && isPeer?.(certificate) === false) {
      throw new CertificateError('the certificate is for another key')
    }
    const target = `${url.pathname}${url.search}`
    const head = [`GET ${target} HTTP/1.1`, `Host: ${url.host}`, 'Accept: application/json', 'Connection: close']
    if (authorization !== undefined) head.push(`Authorization: ${authorization}`)
    socket.write(`${head.join('\r\n')}\r\n\r\n`)
    const bytes = await readToEnd(socket, headBytesMax + bodyBytesMax)
    return { ...parseResponse(bytes), certificate, certificateFault }
  } finally {
    clearTimeout(timer)
    socket.destroy()
  }
}

async function readToEnd(socket: TLSSocket, bytesMax: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = []
  let sizeBytes = 0
  await new Promise<void>((resolve, reject) => {
    socket.on('data', (chunk: Uint8Array) => {
      sizeBytes += chunk.length
      chunks.push(chunk)
      if (sizeBytes > bytesMax) reject(new Error(`the response is larger than ${bytesMax} bytes`))
    })
    socket.once('error', reject)
    socket.once('end', resolve)
    socket.once('close', () => resolve())
  })
  return new Uint8Array(Buffer.concat(chunks))
}

/** RFC 9112: a status line, fields, and a body by its Content-Length, in chunks, or up to the end of the connection. */
function parseResponse(bytes: Uint8Array): Pick<TlsResponse, 'status' | 'retryAfter' | 'body'> {
  const buffer = Buffer.from(bytes)
  const headEnd = buffer.indexOf('\r\n\r\n')
  if (headEnd === -1 || headEnd > headBytesMax) throw new Error('not an HTTP response')
  const [statusLine = '', ...lines] = buffer.subarray(0, headEnd).toString('latin1').split('\r\n')
  const status = Number(/^HTTP\/1\.[01] ([1-5][0-9]{2})(?: |$)/.exec(statusLine)?.[1])
  if (Number.isNaN(status)) throw new Error('not an HTTP response')
  const field = (name: string) => {
    const line = lines.find(line => line.toLowerCase().startsWith(`${name}:`))
    return line?.slice(name.length + 1).trim()
  }
  const rest = buffer.subarray(headEnd + 4)
  const found = { status, retryAfter: field('retry-after') ?? null }
  if (field('transfer-encoding')?.toLowerCase() === 'chunked') return { ...found, body: unchunked(rest) }
  const length = field('content-length')
  if (length !== undefined && Number(length) !== rest.length) throw new Error('the response was cut short')
  return { ...found, body: new Uint8Array(rest) }
}

function unchunked(buffer: Buffer): Uint8Array {
  const chunks: Uint8Array[] = []
  for (let at = 0; ; ) {
    const lineEnd = buffer.indexOf('\r\n', at)
    const size = /^([0-9a-fA-F]{1,7})(?:;|$)/.exec(buffer.subarray(at, Math.max(lineEnd, at)).toString('latin1'))?.[1]
    if (lineEnd === -1 || size === undefined) throw new Error('the response was cut short')
    const begin = lineEnd + 2
    const end = begin + Number.parseInt(size, 16)
    if (end === begin) return new Uint8Array(Buffer.concat(chunks))
    if (buffer.subarray(end, end + 2).toString('latin1') !== '\r\n') throw new Error('the response was cut short')
    chunks.push(buffer.subarray(begin, end))
    at = end + 2
  }
}
