// GET over TLS for clients, through the proxy that their environment names. Effects: the network.

import { connect, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { messageOf, systemErrorCode } from '../../base/fault.ts'
import { proxyInEnvironment } from './proxy.plan.ts'
import { CertificateError, getOverTls, type TlsGet, type TlsResponse } from './tls-get.ts'

/** Works like `getOverTls`, by HTTPS_PROXY and NO_PROXY. Each Error but a CertificateError names the proxy. */
export async function getByEnvironment(get: TlsGet): Promise<TlsResponse> {
  const proxy = proxyInEnvironment(process.env, get.url)
  if (proxy === null) return await getOverTls(get)
  const endsMs = performance.now() + get.timeoutMs
  const socket = await openTunnel(proxy, get.url, get.timeoutMs)
  const timeoutMs = Math.max(1, Math.ceil(endsMs - performance.now()))
  try {
    return await getOverTls({ ...get, socket, timeoutMs })
  } catch (error) {
    if (error instanceof CertificateError) throw error
    const text = messageOf(error)
    // The user gave the whole time, of which the proxy took a part.
    throw new Error(`through ${nameOf(proxy)}: ${text === lateText(timeoutMs) ? lateText(get.timeoutMs) : text}`)
  } finally {
    socket.destroy()
  }
}

const nameOf = ({ protocol, host }: URL) => `the proxy ${protocol}//${host}`
const lateText = (timeoutMs: number) => `no response within ${timeoutMs} ms`

const headBytesMax = 16 * 1024

async function openTunnel(proxy: URL, { hostname, port }: URL, timeoutMs: number): Promise<Socket> {
  const host = proxy.hostname.replace(/^\[|\]$/g, '')
  const isTls = proxy.protocol === 'https:'
  // Without half-open connections Bun 1.4.5 does not close the descriptor below TLS if the far side closes first.
  const address = { host, port: Number(proxy.port || (isTls ? 443 : 80)), allowHalfOpen: true }
  const socket = isTls
    ? connectTls({ ...address, ...(isIP(host) === 0 ? { servername: host } : {}), ALPNProtocols: ['http/1.1'] })
    : connect(address)
  const timer = setTimeout(() => socket.destroy(new Error(lateText(timeoutMs))), timeoutMs)
  try {
    const target = `${hostname}:${port || 443}`
    const [user, password] = [proxy.username, proxy.password].map(decodeURIComponent)
    const basic = Buffer.from(`${user}:${password}`).toString('base64')
    const authorization = user === '' ? '' : `Proxy-Authorization: Basic ${basic}\r\n`
    socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n${authorization}\r\n`)
    const head = await readHead(socket)
    const status = /^HTTP\/1\.[01] ([2-5][0-9]{2})(?: |\r)/.exec(head)?.[1]
    if (status === undefined) throw new Error('its response is no HTTP')
    const remedy = status === '407' ? ': give a user and password in HTTPS_PROXY' : ''
    if (!status.startsWith('2')) throw new Error(`it refused (${status})${remedy}`)
    // A TLS server never speaks first.
    if (!head.endsWith('\r\n\r\n')) throw new Error('its response is no tunnel')
    return socket
  } catch (error) {
    socket.destroy()
    throw new Error(`${nameOf(proxy)}: ${systemErrorCode(error) ?? messageOf(error)}`)
  } finally {
    clearTimeout(timer)
  }
}

/** Reads up to the empty line, and what came with it. */
async function readHead(socket: Socket): Promise<string> {
  let head = ''
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  const read = (bytes: Uint8Array) => {
    head += Buffer.from(bytes).toString('latin1')
    if (head.includes('\r\n\r\n')) resolve(head)
    else if (head.length > headBytesMax) reject(new Error('its response is no tunnel'))
  }
  socket.on('data', read)
  socket.once('error', reject)
  for (const event of ['end', 'close']) socket.once(event, () => reject(new Error('it closed the connection')))
  return await promise.finally(() => {
    socket.off('data', read)
    socket.pause()
  })
}
