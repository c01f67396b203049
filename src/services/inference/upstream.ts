// An OpenAI-compatible server behind the gateway: reached over HTTP or HTTPS by fetch, its certificate pinned. Effects: network, files.
//
// Nothing of the client's headers goes up, and nothing of what fetch says of a failure comes down: its messages name addresses.

import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { checkServerIdentity, type PeerCertificate } from 'node:tls'
import { toHex } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import type { UpstreamConfig } from '../../contract/config.ts'
import type { Deadlines } from './gateway-deadlines.ts'
import { UpstreamFault } from './upstream-fault.ts'

export type UpstreamTarget = {
  readonly name: string
  /** Up to and including `/v1`, no slash at the end. */
  readonly url: string
  /** Path of a Unix socket that it listens on instead of the address in `url`; null for none. */
  readonly unixSocket: string | null
  readonly key: string | null
  readonly models: readonly string[]
  readonly weight: number
  readonly concurrencyMax: number
  readonly ca: string | null
  readonly spkiSha256: string | null
}

export type UpstreamTimeouts = { readonly connectMs: number; readonly firstByteMs: number }

/** One try at one upstream. */
export type Attempt = { readonly signal: AbortSignal; readonly abort: () => void }

export type UpstreamClient = {
  /** The headers of an answer with status 200. UpstreamFault; Fault invalid_request when it refuses the request; the signal's reason. */
  readonly send: (
    target: UpstreamTarget,
    request: { readonly path: string; readonly body: string; readonly stream: boolean; readonly attempt: Attempt },
  ) => Promise<Response>
  /** Whether it answers at all and lists models. */
  readonly probe: (target: UpstreamTarget, signal: AbortSignal) => Promise<boolean>
}

/** Reads key and certificate files. Fault config.invalid. */
export function loadUpstream(config: UpstreamConfig): UpstreamTarget {
  const where = `inference.upstreams "${config.name}"`
  const isTls = config.url.startsWith('https:')
  if (!isTls && (config.ca_file !== '' || config.spki_sha256 !== '')) {
    throw new Fault('config.invalid', `${where}: ca_file and spki_sha256 need an https url`)
  }
  const key = config.key_file === '' ? null : readText(config.key_file, `${where}: key_file`).trim()
  if (key !== null && !/^[\x21-\x7e]{1,4096}$/.test(key)) {
    throw new Fault('config.invalid', `${where}: key_file must hold one line of printable ASCII`)
  }
  return {
    name: config.name,
    url: config.url.replace(/\/+$/, ''),
    unixSocket: null,
    key,
    models: config.models,
    weight: config.weight,
    concurrencyMax: config.concurrency_max,
    ca: config.ca_file === '' ? null : readText(config.ca_file, `${where}: ca_file`),
    spkiSha256: config.spki_sha256 === '' ? null : config.spki_sha256,
  }
}

function readText(path: string, what: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new Fault('config.invalid', `${what}: ${messageOf(error)}`, { cause: error })
  }
}

/** An answer within this time shows that the way to an upstream is open, so that no connection is tried first. */
const reachedForMs = 5_000
const probeTimeoutMs = 5_000

export function createUpstreamClient(deps: {
  clock: Clock
  deadlines: Deadlines
  timeouts: UpstreamTimeouts
}): UpstreamClient {
  const { clock, deadlines, timeouts } = deps
  const reachedAtMs = new WeakMap<UpstreamTarget, number>()
  const reaching = new WeakMap<UpstreamTarget, Promise<void>>()
  const options = new WeakMap<UpstreamTarget, Record<string, unknown>>()

  /** fetch has no limit for connecting alone, so a connection is tried before a target that has been silent for a while. */
  const reach = (target: UpstreamTarget): Promise<void> | null => {
    const sinceMs = clock.monotonicMs() - (reachedAtMs.get(target) ?? Number.NEGATIVE_INFINITY)
    if (sinceMs < reachedForMs) return null
    const running = reaching.get(target)
    if (running !== undefined) return running
    const attempt = connectOnce(target, clock, timeouts.connectMs).finally(() => reaching.delete(target))
    reaching.set(target, attempt)
    return attempt
  }

  const transport = (target: UpstreamTarget): Record<string, unknown> => {
    const known = options.get(target)
    if (known !== undefined) return known
    const fresh = transportOf(target)
    options.set(target, fresh)
    return fresh
  }

  const ask = async (
    target: UpstreamTarget,
    init: { path: string; body: string | null; accept: string; timeoutMs: number; attempt: Attempt },
  ): Promise<Response> => {
    const { signal, abort } = init.attempt
    signal.throwIfAborted()
    let isLate = false
    const answered = deadlines.after(init.timeoutMs, () => {
      isLate = true
      abort()
    })
    try {
      const response = await fetch(target.url + init.path, {
        method: init.body === null ? 'GET' : 'POST',
        headers: headersFor(target, init),
        body: init.body,
        redirect: 'manual',
        signal,
        ...transport(target),
      })
      reachedAtMs.set(target, clock.monotonicMs())
      return response
    } catch {
      throw new UpstreamFault(isLate ? 'first_byte_timeout' : 'unreachable')
    } finally {
      answered()
    }
  }

  return {
    send: async (target, { path, body, stream, attempt }) => {
      const way = reach(target)
      if (way !== null) await orAborted(way, attempt.signal)
      const accept = stream ? 'text/event-stream' : 'application/json'
      const response = await ask(target, { path, body, accept, timeoutMs: timeouts.firstByteMs, attempt })
      checkResponse(response, accept)
      return response
    },
    probe: async (target, signal) => {
      await connectOnce(target, clock, timeouts.connectMs)
      const controller = new AbortController()
      const abort = () => controller.abort()
      signal.addEventListener('abort', abort, { once: true })
      try {
        const response = await ask(target, {
          path: '/models',
          body: null,
          accept: 'application/json',
          timeoutMs: probeTimeoutMs,
          attempt: { signal: controller.signal, abort },
        })
        await response.body?.cancel().catch(() => {})
        return response.status === 200
      } finally {
        signal.removeEventListener('abort', abort)
      }
    },
  }
}

function headersFor(target: UpstreamTarget, init: { body: string | null; accept: string }): Record<string, string> {
  return {
    accept: init.accept,
    // A compressed answer would be expanded by fetch, past every limit of ours.
    'accept-encoding': 'identity',
    'user-agent': 'strongroom',
    ...(init.body === null ? {} : { 'content-type': 'application/json' }),
    ...(target.key === null ? {} : { authorization: `Bearer ${target.key}` }),
  }
}

/** Bun's own options of fetch. A pin is checked besides chain and name, and before a byte of the request goes out (tried on 1.4.5). */
function transportOf(target: UpstreamTarget): Record<string, unknown> {
  // llama-server promises to keep a connection after a stream and closes it: the next request on it would be reset.
  if (target.unixSocket !== null) return { unix: target.unixSocket, keepalive: false, decompress: false }
  if (!target.url.startsWith('https:')) return { decompress: false }
  const pin = target.spkiSha256
  return {
    decompress: false,
    tls: {
      rejectUnauthorized: true,
      ...(target.ca === null ? {} : { ca: target.ca }),
      checkServerIdentity: (host: string, certificate: PeerCertificate) =>
        checkServerIdentity(host, certificate) ??
        (pin === null || spkiSha256(certificate) === pin ? undefined : new Error('another public key')),
    },
  }
}

/** SHA-256 over SubjectPublicKeyInfo (RFC 5280 4.1) of a certificate; "" when it cannot be read, which no pin is equal to. */
function spkiSha256(certificate: PeerCertificate): string {
  const raw: unknown = certificate.raw
  if (!(raw instanceof Uint8Array)) return ''
  try {
    const spki = spkiOf(raw)
    return toHex(new Bun.CryptoHasher('sha256').update(spki).digest())
  } catch {
    return ''
  }
}

function spkiOf(der: Uint8Array): Uint8Array {
  return new X509Certificate(der).publicKey.export({ type: 'spki', format: 'der' })
}

function checkResponse(response: Response, accept: string): void {
  const give = (error: Error): never => {
    void response.body?.cancel().catch(() => {})
    throw error
  }
  const { status } = response
  if (status === 400 || status === 413 || status === 422) {
    give(new Fault('invalid_request', 'The model does not take this request: it may be too long for it.'))
  }
  if (status !== 200) give(new UpstreamFault('status'))
  const type = (response.headers.get('content-type') ?? '').split(';')[0]?.trim().toLowerCase()
  if (type !== accept) give(new UpstreamFault('content_type'))
  if (!['', 'identity'].includes(response.headers.get('content-encoding') ?? '')) {
    give(new UpstreamFault('content_type'))
  }
}

/** The promise, unless the signal comes first; the promise then goes on unheard. */
function orAborted(promise: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true })
    promise.then(resolve, reject)
  })
}

async function connectOnce(target: UpstreamTarget, clock: Clock, timeoutMs: number): Promise<void> {
  const connected = Promise.withResolvers<void>()
  const over = new AbortController()
  let isOver = false
  const socket = {
    open: (opened: Bun.Socket) => {
      connected.resolve()
      opened.end()
    },
    connectError: () => connected.reject(new UpstreamFault('unreachable')),
    data: () => {},
    error: () => {},
  }
  const url = new URL(target.url)
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80))
  const hostname = url.hostname.replace(/^\[|\]$/g, '')
  const dialled =
    target.unixSocket === null
      ? Bun.connect({ hostname, port, socket })
      : Bun.connect({ unix: target.unixSocket, socket })
  dialled.then(
    opened => {
      if (isOver) opened.terminate()
    },
    () => connected.reject(new UpstreamFault('unreachable')),
  )
  clock.sleep(timeoutMs, over.signal).then(
    () => connected.reject(new UpstreamFault('unreachable')),
    () => {},
  )
  try {
    await connected.promise
  } finally {
    isOver = true
    over.abort()
  }
}
