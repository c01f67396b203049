// Sends one batch of spans to an OTLP receiver over HTTP/1.1: a connection per batch, one deadline, a bounded response.
// Effects: reads files once; network.
//
// Uses the gateway's own client instead of fetch, because it stops reading at a bound: an endless response fills no
// memory.

import { readFileSync } from 'node:fs'
import type { Clock } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import { createDeadlines } from '../../base/work/deadlines.ts'
import type { TracesConfig } from '../../config/traces.ts'
import { UpstreamFault } from '../failure.ts'
import { connect } from '../upstream/connect.ts'
import type { UpstreamResponse } from '../upstream/connection.ts'
import { endpointOf } from '../upstream/target.ts'

/** Outcome of a batch. `again`: the receiver may accept it later (OTLP 1.9, OTLP/HTTP response). */
export type Delivery =
  | { readonly kind: 'taken'; readonly rejected: number }
  | { readonly kind: 'again'; readonly reason: string; readonly retryAfterMs: number }
  | { readonly kind: 'refused'; readonly reason: string }

/** Sends a batch. Never rejects. */
export type Deliver = (body: Uint8Array, timeoutMs: number, signal: AbortSignal) => Promise<Delivery>

const responseBytesMax = 65_536
/** No share: limits one response of the operator's collector. */
const headersMax = 32
const headerBytesMax = 8_192
const retryableStatuses: ReadonlySet<number> = new Set([429, 502, 503, 504])
const retryAfterMsMax = 300_000
/** Headers that the request sets itself, and those that would change its framing. */
const ownHeaders: ReadonlySet<string> = new Set(
  'host content-type content-length content-encoding transfer-encoding connection expect upgrade te trailer'.split(' '),
)

/** Opens the collector and reads the files that its settings name. Throws Fault config.file. */
export function openCollector(
  { endpoint: url, headers_file, ca_file }: Pick<TracesConfig, 'endpoint' | 'headers_file' | 'ca_file'>,
  clock: Clock,
): Deliver {
  const ca = ca_file === '' ? null : readText(ca_file, 'ca_file')
  const headers = headers_file === '' ? '' : headerLines(readText(headers_file, 'headers_file'))
  const endpoint = endpointOf({ url, unixSocket: null, ca, spkiSha256: null })
  const head = [
    `POST ${endpoint.basePath} HTTP/1.1`,
    `host: ${endpoint.host}`,
    'user-agent: strongroom',
    'accept-encoding: identity',
    'connection: close',
    `${headers}content-type: application/json`,
    'content-length: ',
  ].join('\r\n')
  const deadlines = createDeadlines(clock)
  return async (body, timeoutMs, signal) => {
    let stop = () => {}
    let isLate = false
    const onAbort = () => stop()
    const cancelTimeout = deadlines.after(timeoutMs, () => {
      isLate = true
      stop()
    })
    signal.addEventListener('abort', onAbort, { once: true })
    try {
      signal.throwIfAborted()
      const connecting = connect(endpoint, {
        deadlines,
        connectTimeoutMs: timeoutMs,
        onIdle: () => {},
        onClose: () => {},
      })
      stop = connecting.stop
      const connection = await connecting.opened
      const request = Buffer.concat([Buffer.from(`${head}${body.length}\r\n\r\n`), body])
      const response = await connection.send(request)
      return response === null ? { kind: 'again', reason: 'unreachable', retryAfterMs: 0 } : await verdictOn(response)
    } catch (error) {
      return { kind: 'again', reason: isLate ? 'timeout' : reasonOf(error), retryAfterMs: 0 }
    } finally {
      cancelTimeout()
      signal.removeEventListener('abort', onAbort)
      stop()
    }
  }
}

async function verdictOn(response: UpstreamResponse): Promise<Delivery> {
  const { status, retryAfterSeconds } = response.head
  const reason = `status ${status}`
  if (retryableStatuses.has(status)) {
    const retryAfterMs = Math.min((retryAfterSeconds ?? 0) * 1_000, retryAfterMsMax)
    return { kind: 'again', reason, retryAfterMs }
  }
  // Does not follow redirects, so that spans and headers, with their key, are sent only to the configured address.
  if (status < 200 || status > 299) return { kind: 'refused', reason }
  // The receiver has accepted the spans regardless of the response's text; invalid or overlong JSON counts as no
  // text.
  return { kind: 'taken', rejected: rejectedIn(await readBounded(response).catch(() => '')) }
}

/** Returns the body; empty if it is longer than may be read. */
async function readBounded(response: UpstreamResponse): Promise<string> {
  const pieces: Uint8Array[] = []
  let lengthBytes = 0
  for (let bytes = await response.read(); bytes !== null; bytes = await response.read()) {
    lengthBytes += bytes.length
    if (lengthBytes > responseBytesMax) return ''
    pieces.push(bytes)
  }
  return Buffer.concat(pieces).toString('utf8')
}

/**
 * Returns `partialSuccess.rejectedSpans`: a 64-bit integer, and therefore a string in protobuf's JSON. Drops the
 * receiver's message.
 */
function rejectedIn(text: string): number {
  try {
    const rejected: unknown = JSON.parse(text)?.partialSuccess?.rejectedSpans
    const count = typeof rejected === 'string' && /^[0-9]{1,15}$/.test(rejected) ? Number(rejected) : rejected
    return typeof count === 'number' && Number.isSafeInteger(count) && count > 0 ? count : 0
  } catch {
    return 0
  }
}

function reasonOf(error: unknown): string {
  return error instanceof UpstreamFault ? error.reason : 'internal'
}

/** Returns header lines as sent, each with its line break. Throws Fault config.file. */
function headerLines(text: string): string {
  const lines = text.split(/\r?\n/).filter(line => line.trim() !== '')
  if (lines.length > headersMax || text.length > headerBytesMax) {
    throw fileFault('headers_file', `has more than ${headersMax} lines or ${headerBytesMax} bytes`)
  }
  return lines
    .map((line, at) => {
      // RFC 9110 5.1 and 5.5; only ASCII. The value is a secret, so no message repeats it.
      const [, name = '', value = ''] =
        /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)[ \t]*$/.exec(line) ?? []
      if (name === '') throw fileFault('headers_file', `line ${at + 1} is not of the form \`Name: value\``)
      if (ownHeaders.has(name.toLowerCase())) throw fileFault('headers_file', `line ${at + 1}: ${name} cannot be set`)
      return `${name}: ${value}\r\n`
    })
    .join('')
}

function readText(path: string, field: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw fileFault(field, messageOf(error))
  }
}

function fileFault(field: string, message: string): Fault {
  return new Fault('config.file', `inference.traces: ${field}: ${message}`, { param: `inference.traces.${field}` })
}
