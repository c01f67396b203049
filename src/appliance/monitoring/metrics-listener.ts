// The metrics over HTTPS with a token, because Prometheus reads no UNIX socket. Effects: a listener; makes the token's
// file once, and reads it for each request, so that a new token needs no restart.

import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { sha256 } from '../../attest/hash.ts'
import { equalConstantTime, utf8 } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { systemErrorCode } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { metricsContentType } from '../../base/prometheus.ts'
import { listenAddress } from '../../config/listen.ts'
import type { Config } from '../../config/schema.ts'
import { createPublicLimiter } from '../../http/public-rate.ts'
import { type ServedTls, serveTls } from '../../http/serve.ts'
import { writeFileAtomic } from '../../linux/files.ts'
import { startListener } from '../listening.ts'

export type MetricsParts = {
  readonly config: Pick<Config, 'listen' | 'metrics' | 'http'>
  readonly stateDir: string
  readonly tls: ServedTls
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
}

export type ServedMetrics = {
  readonly port: number
  /** Gives it the metrics; before that it answers 503. */
  readonly attach: (render: () => string) => void
  readonly stop: () => Promise<void>
}

/** File of the token in the state directory, where `metrics.token_file` names none. */
export const tokenFileName = 'metrics-token'
const tokenBytes = 32
/** Shorter tokens could be guessed. */
const tokenCharsMin = 16
const tokenFileBytesMax = 4_096
/** Prometheus reads every few seconds; each read costs a few milliseconds. */
const requestsPerMinute = 60
const requestBytesMax = 1_024

/** Null if it is off. Fault host.listen_failed. */
export async function serveMetrics(parts: MetricsParts): Promise<ServedMetrics | null> {
  const { config, stateDir, tls, clock, random } = parts
  if (config.listen.metrics === '') return null
  const log = parts.log.unit('metrics')
  const file = config.metrics.token_file || join(stateDir, tokenFileName)
  if (config.metrics.token_file === '') makeToken(file, random)
  const token = tokenReader(file, log)
  let render: (() => string) | null = null
  const limiter = createPublicLimiter({ clock, requestsPerMinute })
  const answer = (request: Request, address: string): Response => {
    const refusal = limiter.admitPublic(address)
    if (refusal !== null) return text(429, refusal.message, { 'retry-after': String(refusal.retryAfterSeconds) })
    if (!isTokenIn(request.headers.get('authorization'), token))
      return text(401, 'send the token of the metrics as a Bearer token', { 'www-authenticate': 'Bearer' })
    if (new URL(request.url).pathname !== '/metrics') return text(404, 'the metrics are at /metrics')
    if (request.method !== 'GET' && request.method !== 'HEAD') return text(405, 'use GET', { allow: 'GET, HEAD' })
    if (render === null) return text(503, 'the daemon is starting', { 'retry-after': '5' })
    return new Response(render(), { headers: { 'content-type': metricsContentType } })
  }
  const server = await startListener('metrics', config.listen, () =>
    serveTls((request, socket) => answer(request, socket.requestIP(request)?.address ?? ''), {
      ...listenAddress(config.listen.metrics),
      tls,
      idleTimeoutSeconds: config.http.idle_timeout_s,
      requestBodyBytesMax: requestBytesMax,
      log,
    }),
  )
  return {
    port: server.port,
    attach: given => {
      render = given
    },
    stop: () => server.stop(true),
  }
}

function text(status: number, message: string, headers: Record<string, string> = {}): Response {
  return new Response(`${message}\n`, { status, headers: { 'content-type': 'text/plain; charset=utf-8', ...headers } })
}

function makeToken(file: string, random: RandomBytes): void {
  if (statSync(file, { throwIfNoEntry: false }) !== undefined) return
  const token = Buffer.from(random(tokenBytes)).toString('base64url')
  writeFileAtomic(file, `${token}\n`, { mode: 0o600 })
}

/**
 * Returns a function that reads the token; null if the file has none. The log has a reason when it changes, because
 * anyone can send requests.
 */
export function tokenReader(file: string, log: Pick<Logger, 'error'>): () => string | null {
  let logged: string | null = null
  return () => {
    const { token = null, reason = null } = readToken(file)
    if (reason !== null && reason !== logged)
      log.error('the metrics are refused: the file of their token cannot be used', { file, reason })
    logged = reason
    return token
  }
}

function readToken(file: string): { readonly token?: string; readonly reason?: string } {
  try {
    if (statSync(file).size > tokenFileBytesMax) return { reason: `it is larger than ${tokenFileBytesMax} bytes` }
    const token = readFileSync(file, 'utf8').trim()
    return token.length < tokenCharsMin ? { reason: `it needs ${tokenCharsMin} characters at least` } : { token }
  } catch (error) {
    return { reason: systemErrorCode(error) ?? 'it cannot be read' }
  }
}

/** Compares digests, so that the time does not depend on the token, not even on its length. */
function isTokenIn(authorization: string | null, tokenOf: () => string | null): boolean {
  const [, shown] = /^[Bb][Ee][Aa][Rr][Ee][Rr] +([\x21-\x7e]{1,4096})$/.exec(authorization ?? '') ?? []
  // The file is read for requests that show a token alone.
  if (shown === undefined) return false
  const token = tokenOf()
  if (token === null) return false
  return equalConstantTime(sha256(utf8(shown)), sha256(utf8(token)))
}
