// The requests of the mixed load: every API, whole and streamed, plain and encrypted, and what a client has seen of
// its response. Effects: requests.

import { EMBEDDING_MODEL } from '../gateway/embeddings-upstream.ts'
import { postEncrypted } from '../gateway/encrypted-client.ts'
import { type EnduranceGateway, type EnduranceKey, enduranceModel } from '../gateway/endurance.ts'
import { postTo } from '../gateway/test-gateway.ts'
import { type Behaviour, serialMark } from './upstream.ts'

type Api = 'chat' | 'responses' | 'messages' | 'embeddings'

export type Kind = { readonly api: Api; readonly stream: boolean; readonly encrypted: boolean }

export const KINDS: readonly Kind[] = [
  { api: 'chat', stream: false, encrypted: false },
  { api: 'chat', stream: true, encrypted: false },
  { api: 'chat', stream: false, encrypted: true },
  { api: 'chat', stream: true, encrypted: true },
  { api: 'responses', stream: false, encrypted: false },
  { api: 'responses', stream: true, encrypted: false },
  { api: 'messages', stream: false, encrypted: false },
  { api: 'messages', stream: true, encrypted: false },
  { api: 'embeddings', stream: false, encrypted: false },
]

const free = { organizationBudgetTokens: null, requestsPerMinute: null, budgetTokens: null }
/** Five keys without bounds; then one near its rate, one near its budget, one near its organization's budget. */
export const MIXED_KEYS: readonly EnduranceKey[] = [
  { ...free, organizationId: 'acme' },
  { ...free, organizationId: 'acme', budgetTokens: 1e12 },
  { ...free, organizationId: 'globex' },
  { ...free, organizationId: 'globex' },
  { ...free, organizationId: 'hooli', organizationBudgetTokens: 1e12 },
  { ...free, organizationId: 'acme', requestsPerMinute: 30 },
  { ...free, organizationId: 'globex', budgetTokens: 100_000 },
  { ...free, organizationId: 'initech', organizationBudgetTokens: 150_000 },
]

/** Fault of a request that no upstream may see. */
export type Fault = 'no key' | 'no JSON' | 'unknown model'
export const FAULTS = ['no key', 'no JSON', 'unknown model'] as const satisfies readonly Fault[]
export const FAULT_STATUS = { 'no key': 401, 'no JSON': 400, 'unknown model': 404 } as const

export type Mixed = {
  readonly serial: number
  readonly kind: Kind
  readonly behaviour: Behaviour
  readonly fault: Fault | null
  readonly keyAt: number
}

/** Null where it did not get so far. */
export type SeenByClient = {
  readonly status: number | null
  readonly id: string | null
  /** Prompt tokens that the response reported. */
  readonly prompt: number | null
  readonly completion: number | null
  /** The response has the end of one that is whole. */
  readonly isWhole: boolean
}

const PATHS = {
  chat: '/v1/chat/completions',
  responses: '/v1/responses',
  messages: '/v1/messages',
  embeddings: '/v1/embeddings',
} as const satisfies Record<Api, string>

export function bodyOf({ serial, kind, fault }: Mixed): string {
  const text = `${serialMark}${serial}; ${'x'.repeat(4 * (serial % 97))}`
  const model = fault === 'unknown model' ? 'nobody-has-this' : enduranceModel
  const { stream } = kind
  const messages = [{ role: 'user', content: text }]
  const bodies = {
    chat: { model, stream, messages, max_tokens: 64, ...(stream ? { stream_options: { include_usage: true } } : {}) },
    responses: { model, stream, input: text, max_output_tokens: 64 },
    messages: { model, stream, messages, max_tokens: 64 },
    embeddings: { model: fault === 'unknown model' ? model : EMBEDDING_MODEL, input: text },
  } as const satisfies Record<Api, object>
  return fault === 'no JSON' ? '{"model":' : JSON.stringify(bodies[kind.api])
}

/** `leaveAfter`: resolves when the client is to leave before its response has begun. */
export async function send(gateway: EnduranceGateway, mixed: Mixed, leaveAfter: Promise<void>): Promise<SeenByClient> {
  const { kind, behaviour, fault } = mixed
  const controller = new AbortController()
  const { signal } = controller
  const isLeft = behaviour === 'left' && fault === null
  if (isLeft && !kind.stream) void leaveAfter.then(() => setTimeout(() => controller.abort(), Math.random() * 5))
  const key = fault === 'no key' ? `gw_abcdefgh_${'0'.repeat(32)}` : (gateway.keys[mixed.keyAt] ?? '')
  let [status, id, text]: [number | null, string | null, string] = [null, null, '']
  try {
    const { response, pieces } = await open(gateway, { mixed, key, signal })
    status = response.status
    id = response.headers.get('x-request-id')
    for await (const piece of pieces) {
      text += piece
      // In the middle of what comes.
      if (isLeft && status === 200 && text.includes('two')) controller.abort()
    }
  } catch (error) {
    // An aborted request, and a cut encrypted response, end with an error.
    if (!isLeft) text += `\n${error}`
  }
  return { status, id, ...read(text, kind) }
}

type Opened = {
  readonly response: Pick<Response, 'status' | 'headers'>
  readonly pieces: AsyncIterable<string>
}

async function open(
  gateway: EnduranceGateway,
  { mixed, key, signal }: { mixed: Mixed; key: string; signal: AbortSignal },
): Promise<Opened> {
  const path = PATHS[mixed.kind.api]
  if (mixed.kind.encrypted) {
    const suite = mixed.serial % 2 === 0 ? 'x25519' : 'xwing'
    const opened = await postEncrypted(gateway, path, bodyOf(mixed), { key, signal, suite })
    return { response: { status: opened.response.status, headers: opened.headers }, pieces: opened.pieces() }
  }
  const response = await postTo(gateway.url + path, key, bodyOf(mixed), { signal })
  return { response, pieces: piecesOf(response) }
}

async function* piecesOf({ body }: Response): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  for await (const bytes of body ?? []) yield decoder.decode(bytes, { stream: true })
}

const ENDS = {
  chat: 'data: [DONE]\n\n',
  responses: '"type":"response.completed"',
  messages: '"type":"message_stop"',
  embeddings: '',
} as const satisfies Record<Api, string>

function read(text: string, { api, stream }: Kind): Pick<SeenByClient, 'prompt' | 'completion' | 'isWhole'> {
  const values = stream
    ? text.split('\n').flatMap(line => (line.startsWith('data: {') ? [parsed(line.slice(6))] : []))
    : [parsed(text)]
  let usage: Record<string, unknown> = {}
  for (const value of values) {
    // Later ones say more of the same request.
    for (const found of [value.usage, objectOf(value.response).usage]) usage = { ...usage, ...objectOf(found) }
  }
  const of = (...names: string[]) => names.map(name => usage[name]).find(count => typeof count === 'number') ?? null
  const isWhole = stream ? text.includes(ENDS[api]) : Object.keys(usage).length > 0 || values[0]?.choices !== undefined
  return {
    prompt: of('prompt_tokens', 'input_tokens'),
    completion: of('completion_tokens', 'output_tokens'),
    isWhole,
  }
}

/** Half an event, of a stream that was cut, is nothing. */
function parsed(text: string): Record<string, unknown> {
  try {
    return objectOf(JSON.parse(text))
  } catch {
    return {}
  }
}

function objectOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
}
