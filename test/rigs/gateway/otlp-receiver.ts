// An OTLP receiver for tests: real HTTP, and a strict reader of ExportTraceServiceRequest in OTLP/JSON that refuses
// everything outside the mapping (OTLP 1.9, JSON Protobuf Encoding; trace.proto and common.proto of opentelemetry-proto
// 1.x).

import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export type ReceivedSpan = {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | null
  readonly name: string
  readonly kind: number
  readonly startNs: bigint
  readonly endNs: bigint
  readonly status: number
  readonly attributes: Readonly<Record<string, unknown>>
}

export type OtlpReceiver = {
  readonly url: string
  readonly spans: ReceivedSpan[]
  /** Why bodies were refused. */
  readonly problems: string[]
  readonly bodies: string[]
  readonly seen: { readonly path: string; readonly headers: IncomingHttpHeaders }[]
  /** In place of a success. */
  behave: ((response: ServerResponse) => void) | null
  readonly stop: () => Promise<void>
}

export async function startOtlpReceiver(): Promise<OtlpReceiver> {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', chunk => chunks.push(chunk))
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString()
      receiver.seen.push({ path: request.url ?? '', headers: request.headers })
      receiver.bodies.push(body)
      if (receiver.behave !== null) return receiver.behave(response)
      try {
        receiver.spans.push(...readExport(body))
        response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
      } catch (error) {
        receiver.problems.push(String(error))
        response.writeHead(400).end()
      }
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const receiver: OtlpReceiver = {
    url: `http://127.0.0.1:${port}/v1/traces`,
    spans: [],
    problems: [],
    bodies: [],
    seen: [],
    behave: null,
    stop: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
  return receiver
}

type Json = Record<string, unknown>

/** Throws what is wrong. */
export function readExport(text: string): ReceivedSpan[] {
  const request = fields(JSON.parse(text), 'request', ['resourceSpans'])
  return list(request.resourceSpans, 'resourceSpans').flatMap(item => {
    const { resource, scopeSpans } = fields(item, 'resourceSpans', ['resource', 'scopeSpans'], ['schemaUrl'])
    const { attributes } = fields(resource, 'resource', ['attributes'], ['droppedAttributesCount'])
    if (readAttributes(attributes)['service.name'] !== 'strongroom-gateway') throw new Error('service.name')
    return list(scopeSpans, 'scopeSpans').flatMap(scoped => {
      const { scope, spans } = fields(scoped, 'scopeSpans', ['scope', 'spans'], ['schemaUrl'])
      fields(scope, 'scope', ['name', 'version'])
      return list(spans, 'spans').map(readSpan)
    })
  })
}

const required = ['traceId', 'spanId', 'name', 'kind', 'startTimeUnixNano', 'endTimeUnixNano', 'attributes', 'status']
const optional = ['parentSpanId', 'flags', 'events', 'links', 'traceState']
const counts = ['droppedAttributesCount', 'droppedEventsCount', 'droppedLinksCount']

function readSpan(value: unknown): ReceivedSpan {
  const span = fields(value, 'span', required, [...optional, ...counts])
  for (const name of counts) if (span[name] !== undefined) integer(span[name], name, 0, 2 ** 32 - 1)
  if (list(span.events ?? [], 'events').length + list(span.links ?? [], 'links').length > 0) throw new Error('events')
  const { code } = fields(span.status, 'status', ['code'])
  const [startNs, endNs] = [nanoseconds(span.startTimeUnixNano), nanoseconds(span.endTimeUnixNano)]
  if (endNs < startNs) throw new Error('it ends before it begins')
  // Trace flags, and the two bits that say whether the parent is remote.
  if (span.flags !== undefined && (integer(span.flags, 'flags', 0, 0x3ff) & 1) !== 1) throw new Error('not sampled')
  return {
    traceId: id(span.traceId, 32),
    spanId: id(span.spanId, 16),
    parentSpanId: span.parentSpanId === undefined ? null : id(span.parentSpanId, 16),
    name: text(span.name),
    // SPAN_KIND_INTERNAL to SPAN_KIND_CONSUMER, STATUS_CODE_UNSET to STATUS_CODE_ERROR: as numbers, never as names.
    kind: integer(span.kind, 'kind', 1, 5),
    status: integer(code, 'status.code', 0, 2),
    startNs,
    endNs,
    attributes: readAttributes(span.attributes),
  }
}

function readAttributes(value: unknown): Json {
  const found: Json = {}
  for (const item of list(value, 'attributes')) {
    const { key, value: given } = fields(item, 'attribute', ['key', 'value'])
    if (Object.hasOwn(found, text(key))) throw new Error(`${key} twice`)
    found[text(key)] = readValue(given)
  }
  return found
}

function readValue(value: unknown): unknown {
  const [[kind, given] = ['', null], ...others] = Object.entries(value as Json)
  if (others.length > 0) throw new Error('a value of two kinds')
  switch (kind) {
    case 'stringValue':
      return text(given)
    case 'boolValue':
      if (typeof given !== 'boolean') throw new Error('boolValue')
      return given
    // A 64-bit integer: a text of digits, or a number that is exact.
    case 'intValue':
      if (typeof given === 'string' && /^-?[0-9]{1,19}$/.test(given)) return Number(given)
      return integer(given, 'intValue', Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)
    case 'doubleValue':
      if (typeof given !== 'number') throw new Error('doubleValue')
      return given
    case 'arrayValue':
      return list(fields(given, 'arrayValue', ['values']).values, 'values').map(readValue)
    default:
      throw new Error(`a value of kind ${kind}`)
  }
}

function fields(value: unknown, what: string, must: readonly string[], may: readonly string[] = []): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error(`${what} is no object`)
  for (const name of must) if (!Object.hasOwn(value, name)) throw new Error(`${what} has no ${name}`)
  for (const name of Object.keys(value))
    if (!must.includes(name) && !may.includes(name)) throw new Error(`${what} has ${name}`)
  return value as Json
}

function list(value: unknown, what: string): unknown[] {
  if (!Array.isArray(value)) throw new Error(`${what} is no list`)
  return value
}

function text(value: unknown): string {
  if (typeof value !== 'string' || value === '') throw new Error(`no text: ${JSON.stringify(value)}`)
  return value
}

function integer(value: unknown, what: string, least: number, most: number): number {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < least || value > most) throw new Error(what)
  return value
}

/** Hexadecimal, not the base64 of protobuf's own mapping; not all zeros. */
function id(value: unknown, chars: number): string {
  const found = text(value)
  if (!/^[0-9a-f]+$/.test(found) || found.length !== chars || /^0+$/.test(found)) throw new Error(`id ${found}`)
  return found
}

/** fixed64: a text of digits. */
function nanoseconds(value: unknown): bigint {
  if (typeof value !== 'string' || !/^[1-9][0-9]{0,19}$/.test(value)) throw new Error(`time ${JSON.stringify(value)}`)
  return BigInt(value)
}
