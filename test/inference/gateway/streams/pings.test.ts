// Pings of a stream against everything else that happens in it: checks, slow readers, hanging engines, late openings.
// The clock is the test's.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../../scripts/rigs/clock.ts'
import { delta, sse } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { present } from '../../../../src/base/assert.ts'
import { fromUtf8, utf8 } from '../../../../src/base/bytes.ts'
import { createDeadlines } from '../../../../src/base/work/deadlines.ts'
import { DIALECTS } from '../../../../src/inference/dialects/dialects.ts'
import { parseDialect } from '../../../../src/inference/dialects/request.ts'
import { UpstreamFault } from '../../../../src/inference/failure.ts'
import { EarlyHead } from '../../../../src/inference/gateway/streams/early-head.ts'
import { openStream, type StreamEnd } from '../../../../src/inference/gateway/streams/stream.ts'
import type { CompletionPlan } from '../../../../src/inference/openai/completion-plan.ts'
import { readSource } from '../../../../src/inference/openai/request.ts'
import type { BodySink, UpstreamResponse } from '../../../../src/inference/upstream/connection.ts'

const limits = {
  eventBytesMax: 100_000,
  responseBytesMax: 100_000,
  firstByteTimeoutMs: 0,
  idleTimeoutMs: 60_000,
  stallTimeoutMs: 3_600_000,
}
const strict = { type: 'json_schema', name: 'a', strict: true, schema: { type: 'object' } }

function planWith(schema: CompletionPlan['schema']): CompletionPlan {
  const body = { model: 'm', stream: true, input: 'hi', ...(schema === null ? {} : { text: { format: strict } }) }
  const { request, traits } = parseDialect(DIALECTS.responses, readSource(utf8(JSON.stringify(body))))
  const dialect = DIALECTS.responses.respond(traits, { id: 'aa', createdS: 7, model: 'm', keep: null })
  return { request, id: 'chatcmpl-1', createdS: 7, schema, obfuscate: null, dialect }
}

/** A stream whose upstream has sent the first pieces; `send` sends more, while the stream takes any. */
function upstreamWith(first: readonly string[]) {
  const pieces = first.map(utf8)
  let sink: BodySink | null = null
  let flows = false
  const response: UpstreamResponse = {
    head: {
      status: 200,
      contentType: 'text/event-stream',
      contentEncoding: '',
      contentLength: null,
      retryAfterSeconds: null,
    },
    read: () => Promise.resolve(pieces.shift() ?? null),
    takeWhole: () => null,
    pushTo: taken => {
      sink = taken
      return {
        pause: () => {
          flows = false
        },
        resume: () => {
          flows = true
        },
      }
    },
    abort: () => {},
  }
  const send = (text: string) => {
    const bytes = Buffer.from(text)
    if (flows) sink?.onBytes(bytes, 0, bytes.length)
    return flows
  }
  return { response, send }
}

function reading(body: ReadableStream<Uint8Array> | null) {
  const reader = present(body, 'there is a stream').getReader()
  let text = ''
  const ended = (async () => {
    for (let next = await reader.read(); !next.done; next = await reader.read()) text += fromUtf8(next.value)
    return text
  })()
  return { soFar: () => text, ended }
}

function rig(plan: CompletionPlan, first: readonly string[], early: EarlyHead | null = null) {
  const clock = createManualClock()
  const ends: StreamEnd['outcome'][] = []
  let sealed = ''
  const upstream = upstreamWith(first)
  const open = () =>
    openStream(upstream.response, {
      deadlines: createDeadlines(clock),
      limits,
      plan,
      counts: { bounds: { promptTokensMax: 9, completionTokensMax: 9 }, promptEstimate: 1, showsCached: false },
      seal: {
        update: bytes => {
          sealed += fromUtf8(bytes)
        },
        finish: async () => null,
      },
      onEnd: async ({ outcome }) => void ends.push(outcome),
      signal: new AbortController().signal,
      readBy: 'reader',
      early,
    })
  return { clock, ends, upstream, open, sealed: () => sealed }
}

function waitingHead(plan: CompletionPlan) {
  const clock = createManualClock()
  const responses: Response[] = []
  const respond = (response: Response) => void responses.push(response)
  const early = new EarlyHead({ deadlines: createDeadlines(clock), limits, readBy: 'reader', respond })
  early.wait({ headers: () => ({}), plan, place: () => null })
  return { clock, early, body: () => responses[0]?.body ?? null }
}

const numbersOf = (text: string) => [...text.matchAll(/"sequence_number":(\d+)/g)].map(found => Number(found[1]))
const turns = async () => {
  for (let turn = 0; turn < 10; turn += 1) await new Promise(resolve => setImmediate(resolve))
}

test('a check that takes longer than ten seconds', async () => {
  // Goal: no ping lets the stream go on before the check, which would pass an answer that violates the schema.
  const check = Promise.withResolvers<void>()
  const { clock, ends, upstream, open } = rig(
    planWith(() => check.promise),
    [sse(delta({ content: '{' }))],
  )
  const { soFar, ended } = reading((await open()).body)
  await turns()
  upstream.send(sse(delta({ content: '"a":1}' }, 'stop')))
  await clock.elapse(25_000)
  await turns()
  expect(upstream.send('data: [DONE]\n\n')).toBe(false)
  check.reject(new UpstreamFault('schema_violated'))
  const text = await ended
  expect(ends).toEqual(['failed'])
  expect(text).not.toContain('response.completed')
  expect(soFar()).not.toContain('a\\":1}')
})

test('an engine that hangs within a stream', async () => {
  // Goal: pings that the client reads do not put off the time limit between two events.
  const { clock, ends, open } = rig(planWith(null), [sse(delta({ content: 'Hi' }))])
  const { soFar, ended } = reading((await open()).body)
  for (let seconds = 0; seconds < 70; seconds += 1) {
    await clock.elapse(1_000)
    await turns()
  }
  expect(soFar()).toContain(': ping')
  expect(await ended).toContain('response.failed')
  expect(ends).toEqual(['failed'])
})

test('a stream that is opened while its first events are checked', async () => {
  // Goal: what is sealed is what was sent, and each sequence number comes once.
  const check = Promise.withResolvers<void>()
  const plan = planWith(() => check.promise)
  const { clock, early, body } = waitingHead(plan)
  await clock.elapse(1_000)
  const whole = `${sse(delta({ content: '{}' }, 'stop'))}data: [DONE]\n\n`
  const { open, sealed } = rig(plan, [whole], early)
  const opened = open()
  await turns()
  const { ended } = reading(body())
  await turns()
  check.resolve()
  expect((await opened).body).toBeNull()
  const text = await ended
  expect(sealed()).toBe(text)
  expect(numbersOf(text)).toEqual(numbersOf(text).map((_number, at) => at))
})

test('a head that nothing reads for a while', async () => {
  // Goal: the first events are not lost, and no text piles up.
  const { clock, early, body } = waitingHead(planWith(null))
  await clock.elapse(1_000)
  await clock.elapse(120_000)
  expect(early.pings.length).toBe(0)
  const reader = present(body(), 'the head is out').getReader()
  expect(fromUtf8((await reader.read()).value ?? new Uint8Array(0))).toStartWith('event: response.created\n')
  await clock.elapse(3_600_000)
  expect(early.pings.length).toBeLessThanOrEqual(2)
  early.pause()
})
