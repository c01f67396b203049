// Streams that clients abandon at every possible point, and what remains of them. Effects: a gateway, an upstream,
// connections.

import type { Socket } from 'bun'
import { until } from '../until.ts'
import {
  costOf,
  type EnduranceGateway,
  enduranceModel,
  prefixOf,
  type Row,
  type State,
  startEnduranceGateway,
} from './endurance.ts'
import {
  chunked,
  contentEvent,
  endEvents,
  type Script,
  type ScriptedUpstream,
  startScriptedUpstream,
  streamEnd,
  streamHead,
} from './scripted-upstream.ts'

/** Where a client leaves. `never`: it has the whole stream, so that others are served meanwhile. */
const WAYS = ['at once', 'asked', 'first event', 'within a chunk', 'some events', 'before [DONE]', 'never'] as const
type Way = (typeof WAYS)[number]

export type Abandoned = {
  readonly streams: number
  readonly seconds: number
  readonly asked: Readonly<Record<Way, number>>
  /** After the first streams, and at the end. */
  readonly early: State
  readonly late: State
  readonly ledger: LedgerVerdict
  /** Tokens of a key, by its limits and by its rows. Null if not all of its requests ended within the last minute. */
  readonly counted: { readonly byLimits: number; readonly byLedger: number } | null
}

export type LedgerVerdict = {
  readonly rows: number
  readonly missing: readonly string[]
  readonly unexpected: readonly string[]
  readonly wrong: readonly string[]
}

export type AbandonedPlan = {
  readonly streams: number
  /** Streams before the state that the last one is compared with. */
  readonly early: number
  readonly note: (line: string) => void
}

const clients = 48
const keyCount = 8
/** The last streams have a key of their own, for the look at what its limits count. */
const lastStreams = 400
const eventsMax = 6
const minuteMs = 60_000
/** The gateway keeps idle connections for eight seconds at most. */
const keptMs = 20_000

type Stream = {
  readonly serial: number
  readonly way: Way
  readonly keyAt: number
  readonly request: string
  /** The gateway's estimate. */
  readonly promptEstimate: number
  readonly events: number
  readonly asked: PromiseWithResolvers<void>
  isAsked: boolean
}

export async function abandonStreams({ streams, early, note }: AbandonedPlan): Promise<Abandoned> {
  const running = new Map<number, Stream>()
  await using upstream = startScriptedUpstream(({ body }) => {
    const stream = running.get(Number(body.user))
    if (stream === undefined) throw new Error(`nobody asked: ${JSON.stringify(body.user)}`)
    stream.isAsked = true
    stream.asked.resolve()
    return scriptOf(stream)
  })
  const free = { organizationBudgetTokens: null, requestsPerMinute: null, budgetTokens: null }
  const keys = Array.from({ length: keyCount + 1 }, (_, at) => ({
    ...free,
    organizationId: at % 2 === 0 ? 'even' : 'odd',
    // So that something is reserved for each stream.
    budgetTokens: 1e12,
  }))
  await using gateway = await startEnduranceGateway(upstream.port, keys)
  const ended: Stream[] = []
  const startedMs = performance.now()
  const runUpTo = async (from: number, to: number) => {
    let next = from
    const client = async () => {
      for (let serial = next++; serial < to; serial = next++) {
        const stream = newStream(serial, { streams, key: at => gateway.keys[at] ?? '' })
        running.set(serial, stream)
        await leave(gateway, stream)
        ended.push(stream)
        if (ended.length % 10_000 === 0)
          note(`${ended.length} streams, ${Math.round((performance.now() - startedMs) / 1000)} s`)
      }
    }
    await Promise.all(Array.from({ length: clients }, client))
    await settled(gateway, upstream)
  }
  await runUpTo(0, early)
  const earlyState = await gateway.state()
  await runUpTo(early, streams - lastStreams)
  const lastMs = performance.now()
  await runUpTo(streams - lastStreams, streams)
  const byLimits = await tokensCounted(gateway.url, gateway.keys[keyCount] ?? '')
  const isRecent = performance.now() - lastMs < minuteMs - 5_000
  await until('connections that were kept are closed', keptMs, () => upstream.open() === 0)
  const late = await gateway.state()
  const rows = await gateway.rows()
  const byLedger = rows
    .filter(row => row.keyPrefix === prefixOf(gateway.keys[keyCount] ?? ''))
    .reduce((sum, row) => sum + row.prompt + row.completion, 0)
  const asked = Object.fromEntries(
    WAYS.map(way => [way, ended.filter(stream => stream.way === way && stream.isAsked).length]),
  )
  return {
    streams: ended.length,
    seconds: Math.round((performance.now() - startedMs) / 1000),
    asked: asked as Record<Way, number>,
    early: earlyState,
    late,
    ledger: compared(rows, ended, gateway.keys.map(prefixOf)),
    counted: isRecent ? { byLimits, byLedger } : null,
  }
}

function newStream(serial: number, { streams, key }: { streams: number; key: (at: number) => string }): Stream {
  const way = WAYS[serial % WAYS.length] ?? 'never'
  const keyAt = serial >= streams - lastStreams ? keyCount : serial % keyCount
  const content = 'x'.repeat(4 * (serial % 311))
  const body = JSON.stringify({
    model: enduranceModel,
    stream: true,
    max_tokens: 64,
    user: String(serial),
    messages: [{ role: 'user', content }],
  })
  const head = [
    'POST /v1/chat/completions HTTP/1.1',
    'Host: gateway',
    `Authorization: Bearer ${key(keyAt)}`,
    `Content-Length: ${body.length}`,
  ]
  return {
    serial,
    way,
    keyAt,
    request: `${head.join('\r\n')}\r\n\r\n${body}`,
    promptEstimate: Math.ceil(body.length / 4),
    events: 1 + (serial % eventsMax),
    asked: Promise.withResolvers(),
    isAsked: false,
  }
}

/** The upstream's usage of this stream alone. */
function countsOf({ serial }: Stream) {
  return { prompt: 1 + (serial % 4_000), completion: 1 + (Math.floor(serial / 4_000) % 60) }
}

function scriptOf(stream: Stream): Script {
  const events = Array.from({ length: stream.events }, (_, at) => chunked(contentEvent(`word ${at} `)))
  const first = `${streamHead}${events[0]}`
  const rest = events.slice(1)
  const end = chunked(endEvents(countsOf(stream)))
  const half = (text: string) => text.slice(0, text.length >> 1)
  switch (stream.way) {
    case 'at once':
    case 'asked':
      return { pieces: [], gapMs: 0, ending: 'hold' }
    case 'first event':
      return { pieces: [first], gapMs: 0, ending: 'hold' }
    case 'within a chunk':
      return { pieces: [first, ...rest, half(chunked(contentEvent('half')))], gapMs: 1, ending: 'hold' }
    case 'some events':
      // More than the client waits for: it leaves while they come.
      return { pieces: [first, ...rest, ...Array(200).fill(chunked(contentEvent('more ')))], gapMs: 1, ending: 'hold' }
    case 'before [DONE]':
      return { pieces: [first, ...rest, end], gapMs: 1, ending: 'hold' }
    case 'never':
      return { pieces: [first, ...rest, end, streamEnd], gapMs: 1, ending: 'keep' }
  }
}

/** One client, from its connection to its leaving. */
async function leave(gateway: EnduranceGateway, stream: Stream): Promise<void> {
  const reached = Promise.withResolvers<void>()
  let text = ''
  const isReached = () => {
    if (stream.way === 'first event' || stream.way === 'within a chunk') return text.includes('word 0')
    if (stream.way === 'some events') return text.includes(`word ${stream.events - 1} `)
    if (stream.way === 'before [DONE]') return text.includes('"finish_reason":"stop"')
    return stream.way === 'never' && text.includes('data: [DONE]')
  }
  const socket: Socket = await Bun.connect({
    hostname: '127.0.0.1',
    port: Number(new URL(gateway.url).port),
    socket: {
      data: (_socket, bytes) => {
        text += bytes.toString('latin1')
        if (isReached()) reached.resolve()
      },
      close: () =>
        reached.reject(new Error(`the gateway closed the connection of ${stream.serial} (${stream.way}): ${text}`)),
      error: (_socket, error) => reached.reject(error),
    },
  })
  if (socket.write(stream.request) !== stream.request.length) throw new Error('a request fits into the socket')
  if (stream.way === 'asked') await stream.asked.promise
  else if (stream.way !== 'at once') await reached.promise
  reached.promise.catch(() => {})
  await Bun.sleep(Math.random() * 4)
  // In order, or with a reset.
  if (stream.serial % 2 === 0) socket.end()
  else socket.terminate()
}

async function settled(gateway: EnduranceGateway, upstream: ScriptedUpstream): Promise<void> {
  await until('the upstream is free', 20_000, () => upstream.busy() === 0)
  await until('nothing runs', 20_000, async () => (await gateway.state()).running === 0)
}

/** Tokens that the limits counted within the last minute. */
async function tokensCounted(url: string, key: string): Promise<number> {
  const { headers } = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })
  return Number(headers.get('x-ratelimit-limit-tokens')) - Number(headers.get('x-ratelimit-remaining-tokens'))
}

const shownMax = 10

/** Each stream that the upstream was asked for has one row, and no row is anybody else's. */
function compared(rows: readonly Row[], streams: readonly Stream[], prefixes: readonly string[]): LedgerVerdict {
  const nameOf = (stream: Stream) => {
    const { way } = stream
    const isCounted = way === 'before [DONE]' || way === 'never'
    const prompt = isCounted ? countsOf(stream).prompt : stream.promptEstimate
    const completion = isCounted ? countsOf(stream).completion : '*'
    return [
      prefixes[stream.keyAt],
      way === 'never' ? 'completed' : 'aborted',
      isCounted ? 'reported' : 'estimated',
      prompt,
      completion,
    ].join(' ')
  }
  const [must, may] = [new Map<string, number>(), new Map<string, number>()]
  for (const stream of streams) {
    const of = stream.isAsked ? must : may
    of.set(nameOf(stream), (of.get(nameOf(stream)) ?? 0) + 1)
  }
  const take = (from: Map<string, number>, name: string) => {
    const left = from.get(name) ?? 0
    if (left > 0) from.set(name, left - 1)
    return left > 0
  }
  const unexpected: string[] = []
  const wrong: string[] = []
  for (const row of rows) {
    const name = [
      row.keyPrefix,
      row.outcome,
      row.source,
      row.prompt,
      row.source === 'reported' ? row.completion : '*',
    ].join(' ')
    // A client that left immediately may have left before the upstream was asked.
    if (!take(must, name) && !take(may, name)) unexpected.push(JSON.stringify(row))
    const organizationId = prefixes.indexOf(row.keyPrefix) % 2 === 0 ? 'even' : 'odd'
    const isRight =
      row.costNanoUsd === costOf(row) && row.organizationId === organizationId && row.model === enduranceModel
    if (!isRight || row.upstream !== 'scripted' || (row.source === 'estimated' && row.completion > 200 + eventsMax))
      wrong.push(JSON.stringify(row))
  }
  const missing = [...must].filter(([, count]) => count > 0).map(([name, count]) => `${count} of ${name}`)
  const some = (all: readonly string[]) =>
    all.length > shownMax ? [`${all.length}, such as`, ...all.slice(0, shownMax)] : all
  return { rows: rows.length, missing: some(missing), unexpected: some(unexpected), wrong: some(wrong) }
}
