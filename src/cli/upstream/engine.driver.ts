// Tries an inference server for `strongroom upstream add`: reads its models and its context size, and sends it one
// short request. Effects: HTTP requests, each with a limit on time and bytes.

import { messageOf } from '../../base/fault.ts'
import { harmlessLine } from '../../base/harmless.ts'
import { isRecord, parseJson } from '../../base/json.ts'
import { resultOr } from '../../base/result-or.ts'
import type { Engine } from '../../config/upstream/kinds.ts'
import { fetchDirectly } from '../../linux/net/outgoing.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { infoIn, type ListedModel, type ModelList, modelListIn, propsContextIn } from './engine.plan.ts'

/** Uses of a model by the gateway. */
export type ModelUse = 'completions' | 'embeddings'

export type ServerAddress = {
  /** Base URL up to and including /v1. */
  readonly url: string
  readonly key: string | null
  /** PEM of the authorities to trust; null for those of the system. */
  readonly ca: string | null
  /** Null if the server is to tell. */
  readonly engine: Engine | null
}

export type ServerFacts = {
  readonly engine: Engine
  /** Kind by the server's own words; null if they do not show it. */
  readonly reportedEngine: Engine | null
  readonly models: readonly ListedModel[]
}

type Call = ServerAddress & { readonly timeoutMs: number; readonly bytesMax: number }

const listLimits = { timeoutMs: 15_000, bytesMax: 8_388_608 } as const
/** An engine may have to load its model first. */
const answerLimits = { timeoutMs: 180_000, bytesMax: 1_048_576 } as const
const answerTokensMax = 16
const quotedBytesMax = 300
const jsonDepthMax = 64

/** Reads what the server serves. Throws AdvisedFault api.unreachable; InputFault if it is no such server. */
export async function readServer(server: ServerAddress): Promise<ServerFacts> {
  const call = { ...server, ...listLimits }
  if (server.engine === 'text-embeddings-inference') {
    const info = infoIn(await getJson(call, '/info'))
    if (info === null) throw noList(server, '/info names no model_id')
    return { engine: server.engine, reportedEngine: null, models: [info] }
  }
  const list = modelListIn(await getJson(call, '/models'))
  if (list === null) throw noList(server, '/models is no list of models')
  const engine = server.engine ?? list.engine ?? 'openai'
  const models = engine === 'llama-server' ? await withSlotContext(call, list) : list.models
  return { engine, reportedEngine: list.engine, models }
}

/** Adds the context size of a slot of llama-server, which its list of models does not have. */
async function withSlotContext(call: Call, { models }: ModelList): Promise<readonly ListedModel[]> {
  const root = { ...call, url: call.url.replace(/\/v1\/*$/, '') }
  const slot = propsContextIn(await getJson(root, '/props').catch(() => null))
  return models.map(({ id, contextTokens }) => ({ id, contextTokens: slot ?? contextTokens }))
}

/** Sends one short request. Returns the milliseconds until its response. Throws AdvisedFault, InputFault. */
export async function tryModel(
  server: ServerAddress & Pick<ServerFacts, 'engine'>,
  { model, use }: { readonly model: string; readonly use: ModelUse },
): Promise<number> {
  const call = { ...server, ...answerLimits }
  const startedMs = performance.now()
  if (server.engine === 'text-embeddings-inference') await postJson(call, '/embed', { inputs: 'OK' })
  else if (use === 'embeddings') expectList(server, await postJson(call, '/embeddings', { model, input: 'OK' }), 'data')
  else expectList(server, await askModel(call, model), 'choices')
  return Math.round(performance.now() - startedMs)
}

/** Newer models of OpenAI know the limit by another name only. */
async function askModel(call: Call, model: string): Promise<unknown> {
  const body = { model, messages: [{ role: 'user', content: 'Say OK.' }], stream: false }
  try {
    return await postJson(call, '/chat/completions', { ...body, max_tokens: answerTokensMax })
  } catch (error) {
    if (!messageOf(error).includes('max_completion_tokens')) throw error
    return await postJson(call, '/chat/completions', { ...body, max_completion_tokens: answerTokensMax })
  }
}

function expectList({ url }: ServerAddress, value: unknown, field: 'choices' | 'data'): void {
  const list = isRecord(value) ? value[field] : null
  if (Array.isArray(list) && list.length > 0) return
  throw refused(
    `${url} answers 200, but without ${field}`,
    'look at the log of the server; the gateway could not use it',
  )
}

function getJson(call: Call, path: string): Promise<unknown> {
  return callJson(call, path, { method: 'GET' })
}

function postJson(call: Call, path: string, body: object): Promise<unknown> {
  return callJson(call, path, { method: 'POST', body: JSON.stringify(body) })
}

async function callJson(
  { url, key, ca, timeoutMs, bytesMax }: Call,
  path: string,
  init: { readonly method: string; readonly body?: string },
): Promise<unknown> {
  const target = `${url.replace(/\/+$/, '')}${path}`
  const options = {
    ...init,
    headers: {
      accept: 'application/json',
      ...(init.body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(key === null ? {} : { authorization: `Bearer ${key}` }),
    },
    signal: AbortSignal.timeout(timeoutMs),
    ...(ca === null ? {} : { tls: { ca } }),
  } satisfies BunFetchRequestInit
  let response: Response
  let bytes: Uint8Array
  try {
    response = await fetchDirectly(target, options)
    bytes = await bytesOf(response, bytesMax)
  } catch (error) {
    throw unreachable(target, error, timeoutMs)
  }
  if (response.status !== 200) throw statusFault(target, response.status, bytes)
  const json = resultOr(() => parseJson(bytes, { depthMax: jsonDepthMax }), undefined)
  if (json === undefined) throw noList({ url }, `${path} is not JSON`)
  return json
}

async function bytesOf({ body }: Response, bytesMax: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = []
  let sizeBytes = 0
  for await (const chunk of body ?? []) {
    sizeBytes += chunk.length
    if (sizeBytes > bytesMax) throw new Error(`the response has more than ${bytesMax} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

function statusFault(target: string, status: number, bytes: Uint8Array): AdvisedFault {
  const text = new TextDecoder().decode(bytes.subarray(0, quotedBytesMax))
  const words = harmlessLine(text).trim()
  const message = `${target} answers ${status}${words === '' ? '' : `: ${words}`}`
  if (status === 401 || status === 403) {
    return refused(message, 'write the API key of the server into a file, and name it by --key-file')
  }
  if (status === 404) return refused(message, 'give the base URL up to and including /v1, and the kind by --engine')
  if (status >= 300 && status < 400) return refused(message, 'give the URL that it redirects to')
  return refused(message, 'look at the log of the server')
}

function noList({ url }: Pick<ServerAddress, 'url'>, why: string): InputFault {
  return new InputFault(`${url} is not a server that the gateway can use: ${why}`, {
    param: 'url',
    remedy: 'give the base URL of an OpenAI-compatible server, up to and including /v1, and its kind by --engine',
  })
}

function refused(message: string, remedy: string): AdvisedFault {
  return new AdvisedFault('upstream_failed', message, { remedy })
}

function unreachable(target: string, error: unknown, timeoutMs: number): AdvisedFault {
  const isLate = error instanceof Error && error.name === 'TimeoutError'
  const why = isLate ? `no response within ${timeoutMs / 1000} s` : harmlessLine(messageOf(error))
  const isTls = /certificate|self.signed|unable to verify|altname|ssl|tls/i.test(why)
  return new AdvisedFault('api.unreachable', `${target}: ${why}`, {
    remedy: isTls
      ? 'name the authority of its certificate by --ca-file; the certificate must hold the name or address in the URL'
      : `start the server, let it listen on an address that this host reaches, and try: curl ${target}`,
    cause: error,
  })
}
