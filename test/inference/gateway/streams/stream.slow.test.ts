// Misbehaving upstreams, each with its documented end; splits, giants and receipts; clients that leave.

import { describe, expect, test } from 'bun:test'
import { chatEncrypted } from '../../../../scripts/rigs/gateway/encrypted-client.ts'
import {
  chatBody,
  eachWithGateway,
  IMPATIENT,
  KEY,
  startGateway,
  type TestGateway,
  target,
} from '../../../../scripts/rigs/gateway/server.ts'
import { chargedTo, viewOf } from '../../../../scripts/rigs/gateway/test-gateway.ts'
import {
  delta,
  openSse,
  sse,
  type TestUpstream,
  USAGE,
  wellBehaved,
} from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../../scripts/rigs/until.ts'
import { eventsOf, openAiFaults } from '../../../rigs/gateway/openai-schema.ts'
import { BEFORE, begun, FORMED, isSilent, quoting, raw, SECRETS, WITHIN } from '../../../rigs/hostile/misbehaviour.ts'

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((freshUpstream, freshGateway) => {
  upstream = freshUpstream
  gateway = freshGateway
})

describe('before the first event: 502', () => {
  for (const [name, behave] of Object.entries(BEFORE)) {
    test(`goal: ${name} gives a 502 without the engine's words, and the request is accounted once`, async () => {
      await using _own = await asPatientAs(name)
      upstream.behave = behave
      const answer = await gateway.chat({ stream: true })
      const text = await answer.text()
      expect(answer.status).toBe(502)
      expect(Object.keys(JSON.parse(text).error)).toEqual(['code', 'message', 'type', 'param'])
      expect(JSON.parse(text).error.code).toBe('upstream_failed')
      expect(['true', 'false']).toContain(answer.headers.get('x-should-retry') ?? '')
      await expectNoLeak(text, answer)
      expect((await gateway.records()).map(({ outcome, tokens }) => [outcome, tokens])).toEqual([
        ['failed', { prompt: 0, completion: 0 }],
      ])
      await expectAllClosed()
    })
  }
})

/** Chunks that come before, and so are converted in full or known by their form; and who reads what is pushed on. */
const WAYS = [
  { way: 'in full, to the server', before: [], isEncrypted: false },
  { way: 'by their form, to the server', before: FORMED, isEncrypted: false },
  { way: 'in full, to the encryption', before: [], isEncrypted: true },
  { way: 'by their form, to the encryption', before: FORMED, isEncrypted: true },
] as const

describe.each(WAYS)(
  'after the first event: an error event and no [DONE]; chunks go $way',
  ({ before, isEncrypted }) => {
    for (const [name, behave] of Object.entries(WITHIN)) {
      test(`goal: ${name} ends the stream with an error event without the engine's words, and without [DONE]`, async () => {
        await using _own = await asPatientAs(name)
        upstream.behave = begun(behave, before)
        const answer = isEncrypted
          ? await chatEncrypted(gateway, { stream: true })
          : await gateway.chat({ stream: true })
        const text = await answer.text()
        expect('response' in answer ? answer.response.status : answer.status).toBe(200)
        const events = eventsOf(text)
        const contents = events.slice(0, 1 + before.length).map(event => JSON.parse(event).choices[0].delta.content)
        expect(contents).toEqual(['Hi', ...(before.length > 0 ? [' a', ' b', ' c', ' "d"\n'] : [])])
        expect(JSON.parse(events.at(-1) ?? '').error.code).toBe('upstream_failed')
        expect(text).not.toContain('[DONE]')
        await expectNoLeak(text, answer)
        expect((await gateway.records()).map(({ outcome, tokens }) => [outcome, tokens.completion])).toEqual([
          ['failed', 1 + before.length],
        ])
        expect((await gateway.records())[0]?.tokens.prompt).toBe(
          Math.ceil(JSON.stringify(chatBody({ stream: true })).length / 4),
        )
        await expectAllClosed()
      })
    }
  },
)

// Goal: a client gets each event that it pays for, also if a broken one comes in the same piece.
test('events in front of a broken one in the same piece reach the client', async () => {
  upstream.behave = begun(response => void response.end([...FORMED, 'data: leaky {]\n\n'].join('')))
  const answer = await gateway.chat({ stream: true })
  const events = eventsOf(await answer.text())
  const contents = events.slice(0, -1).map(event => JSON.parse(event).choices[0].delta.content)
  expect(contents).toEqual(['Hi', ' a', ' b', ' c', ' "d"\n'])
  expect(JSON.parse(events.at(-1) ?? '').error.code).toBe('upstream_failed')
  expect((await gateway.records()).map(({ outcome, tokens }) => [outcome, tokens.completion])).toEqual([['failed', 5]])
})

/** In the place of the gateway that there is, where one with time to wait for more would take too long. */
async function asPatientAs(name: string): Promise<AsyncDisposable | null> {
  if (!isSilent(name)) return null
  gateway = await startGateway([target(upstream.url)], { limits: IMPATIENT })
  return gateway
}

async function expectNoLeak(text: string, answer: { readonly headers: Headers }): Promise<void> {
  const all = [text, JSON.stringify([...answer.headers]), ...(await gateway.log())].join('\n')
  for (const secret of SECRETS) expect(all).not.toContain(secret)
}

async function expectAllClosed(): Promise<void> {
  await until('the upstream is free', 60_000, () => upstream.active() === 0)
  const { requests } = await chargedTo(gateway, KEY)
  await until('nothing runs', 60_000, async () => {
    const { running, targets } = await viewOf(gateway)
    return running === 0 && targets[0]?.active === 0
  })
  expect((await gateway.records()).length).toBe(requests)
  expect(Object.values((await viewOf(gateway)).ended)).toEqual([requests])
}

// Goal: the client's stream ends at [DONE]; an upstream that sends more or stays open is closed, soon and once.
test.each(['lingers', 'goes on'])('an upstream that %s after [DONE]', async how => {
  upstream.behave = async (response, _seen, gone) => {
    openSse(response)
    response.write(`${sse(delta({ content: 'Hi' }))}${sse(delta({}, 'stop'))}data: [DONE]\n\n`)
    if (how === 'lingers') return
    let isGone = false
    void gone.then(() => {
      isGone = true
    })
    while (!isGone) {
      response.write(': still here\n\n')
      await Bun.sleep(20)
    }
  }
  const answer = await gateway.chat({ stream: true })
  expect(eventsOf(await answer.text()).at(-1)).toBe('[DONE]')
  expect((await gateway.records()).map(({ outcome }) => outcome)).toEqual(['completed'])
  await until('the upstream is free', 60_000, () => upstream.active() === 0)
  await expectAllClosed()
})

describe('event streams as they come', () => {
  // Goal: the client gets the same for every split of the bytes, with CRLF, CR, comments, other fields and a byte order
  // mark.
  test('any split', async () => {
    const events = [delta({ content: 'Grüße ' }), delta({ content: '👋' }), delta({}, 'stop')]
    for (const [lineEnd, size] of [
      ['\n', 1],
      ['\r\n', 1],
      ['\r', 3],
      ['\r\n', 7],
    ] as const) {
      const text = `\uFEFF: comment\nretry: 5\nid: 1\nevent: x\n\n${events.map(sse).join('')}data: [DONE]\n\n`
      const bytes = Buffer.from(text.replaceAll('\n', lineEnd))
      upstream.behave = async response => {
        openSse(response)
        for (let at = 0; at < bytes.length; at += size * 20) {
          for (let piece = at; piece < at + size * 20; piece += size)
            response.write(bytes.subarray(piece, piece + size))
          await new Promise(resolve => setImmediate(resolve))
        }
        response.end()
      }
      const got = eventsOf(await (await gateway.chat({ stream: true })).text())
      expect(got.at(-1)).toBe('[DONE]')
      const content = got.slice(0, -1).map(text => JSON.parse(text).choices[0].delta.content ?? '')
      expect(content.join('')).toBe('Grüße 👋')
    }
  })

  // Goal: an event of 200 KB within the limit arrives whole, and every chunk is OpenAI's.
  test('large events', async () => {
    const large = 'ä'.repeat(100_000)
    upstream.behave = raw(`${sse(delta({ content: large }))}${sse(delta({}, 'stop'))}data: [DONE]\n\n`)
    const got = eventsOf(await (await gateway.chat({ stream: true })).text())
    expect(JSON.parse(got[0] ?? '').choices[0].delta.content).toBe(large)
    for (const text of got.slice(0, -1)) {
      expect(openAiFaults('CreateChatCompletionStreamResponse', JSON.parse(text))).toEqual([])
    }
  })

  // Goal: the usage chunk is sent exactly when it was asked for; the ledger has the usage either way.
  test('usage', async () => {
    for (const asks of [false, true]) {
      const options = asks ? { stream_options: { include_usage: true } } : {}
      const got = eventsOf(await (await gateway.chat({ stream: true, ...options })).text())
      const usages = got.slice(0, -1).map(text => JSON.parse(text).usage)
      expect(usages.filter(usage => usage)).toEqual(asks ? [USAGE] : [])
      expect(upstream.seen.at(-1)?.body.stream_options).toEqual({ include_usage: true })
      expect((await gateway.records()).at(-1)?.tokens).toEqual({ prompt: 11, completion: 3 })
    }
  })
})

describe('clients that leave', () => {
  // Goal: after 200 clients that left and failures no lease is open and the next request is served.
  test('places come back', async () => {
    upstream.behave = (response, seen, gone) => (seen.body.user === 'fail' ? quoting(response, seen, gone) : undefined)
    await using roomy = await startGateway([target(upstream.url, { concurrencyMax: 8 })], {
      limits: { ejectFailures: 1000 },
    })
    for (let round = 0; round < 25; round += 1) {
      const leave = new AbortController()
      const all = Array.from({ length: 8 }, (_, at) =>
        roomy
          .chat({ stream: at % 2 === 0, user: at < 4 ? 'fail' : 'stay' }, { signal: leave.signal })
          .catch(() => null),
      )
      await Promise.all(all.slice(0, 4))
      await until('the upstream has the others', 60_000, () => upstream.active() === 4)
      leave.abort()
      await Promise.all(all)
      // Else the next four could be taken for there before they are.
      await until('the upstream is free', 60_000, () => upstream.active() === 0)
    }
    await until('all requests are accounted', 60_000, async () => (await roomy.records()).length === 200)
    const { running, waiting, targets } = await viewOf(roomy)
    expect([running, waiting, targets[0]?.active]).toEqual([0, 0, 0])
    expect((await chargedTo(roomy, KEY)).requests).toBe(200)
    upstream.behave = wellBehaved
    expect((await roomy.chat()).status).toBe(200)
  })
})

// Goal: a client that does not read stops the upstream without it counting as silent, and gets everything in the end.
test('backpressure', async () => {
  const piece = 'x'.repeat(16_000)
  let written = 0
  const total = 2_000
  upstream.behave = async response => {
    openSse(response)
    for (; written < total; written += 1) {
      if (!response.write(sse(delta({ content: piece })))) await new Promise(resolve => response.once('drain', resolve))
    }
    response.end(`${sse(delta({}, 'stop'))}data: [DONE]\n\n`)
  }
  const answer = await gateway.chat({ stream: true })
  let before = -1
  await until('the upstream stands still', 60_000, async () => {
    const stands = written === before && written > 0
    before = written
    await Bun.sleep(400)
    return stands
  })
  expect(written).toBeLessThan(total)
  const text = await answer.text()
  expect(text.endsWith('data: [DONE]\n\n')).toBe(true)
  expect(written).toBe(total)
}, 60_000)
