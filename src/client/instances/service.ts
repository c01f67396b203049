// A client of service A: instances and usage of the key's organization. Effects: the network. The service runs on a
// host that is not trusted: its responses are bounded and checked, and prove nothing.

import type { FaultCode } from '../../base/fault.ts'
import { parseJson } from '../../base/json.ts'
import { resultOr } from '../../base/result-or.ts'
import { checkValue } from '../../contract/check.ts'
import type { EgressPolicy } from '../../contract/http/egress-policy.ts'
import type { Static, TSchema } from '../../contract/type.ts'
import { readAtMost } from '../../linux/net/bounded-http.ts'
import { fetchReason } from '../../linux/net/proxy.plan.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import { problemIn } from '../../terminal/refusal.ts'
import { oneLine } from '../../terminal/render.ts'
import type { InstanceSource } from '../verify/instance-source.ts'
import { hasOwnHostname, SeenInstance, SeenInstances, SeenUsage } from './records.ts'

export type CreateRequest = {
  readonly public_key: string
  readonly inference_model?: string
  readonly egress?: EgressPolicy
}

export type Service = {
  /** HOST:PORT, for messages. */
  readonly host: string
  /** All records of the organization, those of terminated instances included. */
  readonly list: () => Promise<readonly SeenInstance[]>
  /** Null if there is no instance of this name. */
  readonly retrieve: (name: string) => Promise<SeenInstance | null>
  /** The same key and body return the same instance for 24 hours. */
  readonly create: (body: CreateRequest, idempotencyKey: string) => Promise<SeenInstance>
  /** Null if there is no instance of this name. */
  readonly remove: (name: string) => Promise<SeenInstance | null>
  readonly usage: () => Promise<SeenUsage>
}

/** A record has about 700 bytes. */
const listBytesMax = 64 * 1024 * 1024
const answerBytesMax = 64 * 1024
const jsonLimits = { depthMax: 16 } as const

/** Makes the client. Each call can throw the Faults api.unreachable, internal, and those of `REFUSALS`. */
export function createService(source: InstanceSource): Service {
  const { host } = source.api
  const ask = <S extends TSchema>(path: string, schema: S, init: Init = {}) => send(source, path, schema, init)
  const own = (record: SeenInstance, name: string): SeenInstance => {
    if (record.name === name && hasOwnHostname(record)) return record
    throw strange(source, `its record of ${name} has another name or host name`)
  }
  return {
    host,
    list: async () => {
      const { instances } = await ask('/v1/instances', SeenInstances, { bytesMax: listBytesMax })
      const wrong = instances.find(record => !hasOwnHostname(record))
      if (wrong !== undefined) throw strange(source, `its record of ${wrong.name} has another host name`)
      return instances
    },
    retrieve: name => unlessMissing(async () => own(await ask(`/v1/instances/${name}`, SeenInstance), name)),
    create: async (body, idempotencyKey) => {
      const headers = { 'content-type': 'application/json', 'idempotency-key': idempotencyKey }
      const record = await ask('/v1/instances', SeenInstance, { method: 'POST', headers, body: JSON.stringify(body) })
      return own(record, record.name)
    },
    remove: name =>
      unlessMissing(async () => own(await ask(`/v1/instances/${name}`, SeenInstance, { method: 'DELETE' }), name)),
    usage: () => ask('/v1/usage', SeenUsage),
  }
}

export async function unlessMissing<T>(work: () => Promise<T>): Promise<T | null> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof AdvisedFault && error.code === 'not_found') return null
    throw error
  }
}

type Init = {
  readonly method?: 'GET' | 'POST' | 'DELETE'
  readonly headers?: Record<string, string>
  readonly body?: string
  readonly bytesMax?: number
}

/** Sends a request and returns `data` of its response. Faults as for every call of `Service`. */
export async function send<S extends TSchema>(
  source: InstanceSource,
  path: string,
  schema: S,
  init: Init,
): Promise<Static<S>> {
  const body = await sendRaw(source, path, init)
  const document: unknown = resultOr(() => parseJson(body, jsonLimits), null)
  const parsed = checkValue(schema, Reflect.get(Object(document), 'data'))
  if (parsed.ok) return parsed.value
  throw strange(source, `its response to ${init.method ?? 'GET'} ${path} is not as expected: ${parsed.problem}`)
}

/** Does the same for a response that is no JSON. */
export async function sendRaw(
  source: InstanceSource,
  path: string,
  { bytesMax = answerBytesMax, method = 'GET', headers = {}, ...init }: Init,
): Promise<Uint8Array> {
  let response: Response
  let body: Uint8Array | null
  try {
    response = await request(source, path, { ...init, method, headers, signal: AbortSignal.timeout(source.timeoutMs) })
    body = await readAtMost(response, bytesMax)
  } catch (error) {
    throw unreachable(source, error)
  }
  if (!response.ok) throw refused(source, response, body)
  if (body === null) throw strange(source, `it sends more than ${bytesMax} bytes`)
  return body
}

/** Receives a long body in pieces, at most `bytesMax` in `timeoutMs`. Faults as for `send`. */
export async function receive(
  source: InstanceSource,
  path: string,
  { bytesMax, timeoutMs, write }: Receiving,
): Promise<void> {
  let response: Response
  try {
    response = await request(source, path, { method: 'GET', signal: AbortSignal.timeout(timeoutMs) })
  } catch (error) {
    throw unreachable(source, error)
  }
  if (!response.ok || response.body === null)
    throw refused(source, response, await readAtMost(response, answerBytesMax).catch(() => null))
  let bytes = 0
  const reader = response.body.getReader()
  for (;;) {
    const { done, value } = await reader.read().catch(error => {
      throw unreachable(source, error)
    })
    if (done) return
    bytes += value.length
    if (bytes > bytesMax) throw strange(source, `it sends more than ${bytesMax} bytes`)
    await write(value)
  }
}

type Receiving = {
  readonly bytesMax: number
  readonly timeoutMs: number
  readonly write: (chunk: Uint8Array) => Promise<void>
}

type Requesting = Omit<Init, 'bytesMax'> & { readonly signal: AbortSignal }

function request({ api, key, ca }: InstanceSource, path: string, { headers, ...init }: Requesting): Promise<Response> {
  return fetch(new URL(path, api), {
    ...init,
    // A redirect would take the key to another address.
    redirect: 'manual',
    headers: { accept: 'application/json', authorization: `Bearer ${key.text}`, ...headers },
    ...(ca === undefined ? {} : { tls: { ca } }),
  } as BunFetchRequestInit)
}

function unreachable({ api, timeoutMs }: InstanceSource, error: unknown): AdvisedFault {
  const isLate = error instanceof Error && error.name === 'TimeoutError'
  const reason = isLate ? `no response within ${timeoutMs} ms` : oneLine(fetchReason(error))
  return new AdvisedFault('api.unreachable', `${api.host}: ${reason}`, {
    remedy: 'check the address (--api), the authority of its certificate (--ca), the network, and that it is up',
    cause: error,
  })
}

export function strange({ api }: InstanceSource, problem: string): AdvisedFault {
  return new AdvisedFault('internal', `${api.host}: ${oneLine(problem.slice(0, problemCharsMax))}`, {
    remedy: 'check that --api is service A, of a version that this client supports',
  })
}

const problemCharsMax = 500

/** By status: the code, and the remedy unless the key or the wait decides it. */
const REFUSALS: Readonly<Record<number, readonly [FaultCode, string]>> = {
  400: ['invalid_request', 'correct the field that the message names'],
  401: ['unauthenticated', 'use a key of your organization that is not revoked'],
  403: ['forbidden', 'use a key that may write, of an organization that is not suspended'],
  404: ['not_found', 'check the name, and that --api is the appliance that the key is for'],
  409: ['conflict', 'look at `strongroom ls`, then decide again'],
  429: ['rate_limited', 'try again later'],
  503: ['internal', 'try again later'],
}

function refused(source: InstanceSource, { status, headers }: Response, body: Uint8Array | null): AdvisedFault {
  const [code, remedy] = REFUSALS[status] ?? ['internal', 'check that --api is service A; if it is, report the message']
  const wait = waitSeconds(headers)
  const isKey = status === 401 || status === 403
  const later = wait === null ? remedy : `try again in ${wait} s`
  return new RefusedFault(code, `${source.api.host}: ${status}${wordsOf(body)}`, {
    remedy: isKey ? `${remedy}; it was read from ${source.key.source}` : later,
    retryMs: wait === null ? null : wait * 1000,
    status,
  })
}

/** A response of the service that is no success. */
export class RefusedFault extends AdvisedFault {
  readonly httpStatus: number
  /** The time in Retry-After; null without one. */
  readonly retryMs: number | null

  constructor(
    code: FaultCode,
    message: string,
    { remedy, retryMs, status }: { remedy: string; retryMs: number | null; status: number },
  ) {
    super(code, message, { remedy })
    this.name = 'RefusedFault'
    this.retryMs = retryMs
    this.httpStatus = status
  }
}

const waitSecondsMax = 86_400

function waitSeconds(headers: Headers): number | null {
  const text = headers.get('retry-after') ?? ''
  return /^[0-9]{1,6}$/.test(text) ? Math.min(Number(text), waitSecondsMax) : null
}

/** Returns the service's own words on one harmless line: they may be any text. */
function wordsOf(body: Uint8Array | null): string {
  const { message } = problemIn(body ?? new Uint8Array())
  return message === null ? '' : `: ${oneLine(message.slice(0, problemCharsMax))}`
}
