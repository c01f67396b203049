// Relays as processes: exact limits over all of them, and the consequences of a relay's or the owner's death.

import { expect, spyOn, test } from 'bun:test'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { KEY, MODEL, target } from '../../../scripts/rigs/gateway/server.ts'
import { postTo, samplesOf } from '../../../scripts/rigs/gateway/test-gateway.ts'
import {
  type Behaviour,
  delta,
  openSse,
  sse,
  startUpstream,
  wellBehaved,
} from '../../../scripts/rigs/gateway/upstream-server.ts'
import { killFound } from '../../../scripts/rigs/kill.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { RelayOwner } from '../../../src/inference/relay/relay-owner.ts'
import { type RelayedGateway, startRelayedGateway } from '../../rigs/gateway/relayed-gateway.ts'

const waitMs = 60_000
const noBudget = { nanoUsd: null, tokens: null }

/** Answers on request of the test. */
function holding(): { behave: Behaviour; held: (() => void)[] } {
  const held: (() => void)[] = []
  return {
    held,
    behave: async (response, seen, gone) => {
      await Promise.race([new Promise<void>(resolve => held.push(resolve)), gone])
      await wellBehaved(response, seen, gone)
    },
  }
}

async function allListen(gateway: RelayedGateway, count: number): Promise<void> {
  await until(`${count} relays listen`, waitMs, () => gateway.counts().running === count)
}

/** Clients have their responses before the owner has heard of their end. */
async function nothingRuns({ service }: RelayedGateway): Promise<void> {
  await until('nothing runs', waitMs, () => service.running() === 0)
}

function isAlive(pid: number): boolean {
  return existsSync(`/proc/${pid}/exe`)
}

test('goal: the places of a key are exact over all relays', async () => {
  const { behave, held } = holding()
  const upstream = await startUpstream(behave)
  await using gateway = await startRelayedGateway([target(upstream.url)], {
    processes: 3,
    caller: { concurrencyMax: 3 },
  })
  await allListen(gateway, 3)
  expect(new Set(gateway.pids()).size).toBe(3)
  let refusedCount = 0
  const answers = Array.from({ length: 40 }, async () => {
    // Without keep-alive each has a connection of its own, and the kernel spreads those over the relays.
    const { status } = await gateway.chat({}, { keepalive: false })
    if (status === 429) refusedCount += 1
    return status
  })
  await until('37 are refused', waitMs, () => refusedCount === 37)
  await until('three are at the upstream', waitMs, () => held.length === 3)
  for (const release of held) release()
  expect((await Promise.all(answers)).filter(status => status === 200)).toHaveLength(3)
  expect(upstream.activeMax()).toBe(3)
  expect(gateway.records).toHaveLength(3)
  await nothingRuns(gateway)
  await upstream.stop()
})

test('goal: the places of an upstream and its queue are exact over all relays', async () => {
  const upstream = await startUpstream(async (response, seen, gone) => {
    await Bun.sleep(5)
    await wellBehaved(response, seen, gone)
  })
  await using gateway = await startRelayedGateway([target(upstream.url, { concurrencyMax: 2 })])
  await allListen(gateway, 2)
  const answers = await Promise.all(Array.from({ length: 40 }, () => gateway.chat({}, { keepalive: false })))
  expect(answers.map(answer => answer.status)).toEqual(Array.from({ length: 40 }, () => 200))
  expect(upstream.activeMax()).toBe(2)
  expect(new Set(gateway.records.map(record => record.id)).size).toBe(40)
  await upstream.stop()
})

test('goal: a budget is exact over all relays', async () => {
  const { behave, held } = holding()
  const upstream = await startUpstream(behave)
  // Each may cost some 4,200 tokens: the template's share, the prompt and the answer.
  const budgets = { key: { nanoUsd: null, tokens: 10_000 }, organization: noBudget }
  await using gateway = await startRelayedGateway([target(upstream.url)], { caller: { budgets } })
  await allListen(gateway, 2)
  const refused: number[] = []
  const answers = Array.from({ length: 16 }, async () => {
    const { status } = await gateway.chat({ max_tokens: 5 }, { keepalive: false })
    if (status === 429) refused.push(status)
    return status
  })
  await until('all but two are refused', waitMs, () => refused.length === 14 && held.length === 2)
  for (const release of held) release()
  expect((await Promise.all(answers)).filter(status => status === 200)).toHaveLength(2)
  await nothingRuns(gateway)
  expect(gateway.service.reserved()).toEqual([])
  await upstream.stop()
})

// Where the books are in another process, whoever does not wait for them is seen.
test('goal: however a stream ends, its row is there before its client has the end', async () => {
  const ends: Behaviour[] = [
    response => void response.end(`${sse(delta({}, 'stop'))}data: [DONE]\n\n`),
    response => void response.end(sse(delta({}, 'of no kind'))),
    response => void response.end('data: {"cut'),
    response => void response.socket?.destroy(),
    // Silent from then on.
    () => {},
  ]
  const upstream = await startUpstream((response, seen, gone) => {
    openSse(response)
    response.write(sse(delta({ content: 'word' })))
    return ends[Number(seen.body.user)]?.(response, seen, gone)
  })
  await using gateway = await startRelayedGateway([target(upstream.url)], {
    settings: { ejectFailures: 1_000, idleTimeoutMs: 3_000 },
  })
  await allListen(gateway, 2)
  const seen = await Promise.all(
    Array.from({ length: 10 * ends.length }, async (_, at) => {
      const user = String(at % ends.length)
      const answer = await gateway.chat({ stream: true, user }, { keepalive: false })
      const text = await answer.text()
      const id = answer.headers.get('x-request-id')
      const outcome = gateway.records.find(record => record.id === id)?.outcome
      return answer.status === 200 ? [text.includes('[DONE]'), outcome] : ['failed before', outcome]
    }),
  )
  const allowed = ['true,completed', 'false,failed', 'failed before,failed']
  expect(seen.map(String).filter(text => !allowed.includes(text))).toEqual([])
  expect(seen.filter(([isDone]) => isDone === true)).toHaveLength(10)
  await upstream.stop()
})

test('goal: a relay that is killed takes its own streams with it and nothing else, and each costs what it has got', async () => {
  using heard = spyOn(RelayOwner.prototype, 'handleMessage')
  const writers: (() => void)[] = []
  const upstream = await startUpstream(response => {
    openSse(response)
    for (let count = 0; count < 5; count += 1) response.write(sse(delta({ content: 'word ' })))
    writers.push(() => response.end(`${sse(delta({}, 'stop'))}data: [DONE]\n\n`))
  })
  await using gateway = await startRelayedGateway([target(upstream.url)])
  await allListen(gateway, 2)
  const streams = await Promise.all(
    Array.from({ length: 24 }, async () => {
      const response = await gateway.chat({ stream: true }, { keepalive: false })
      const reader = response.body?.getReader()
      await reader?.read()
      return reader
    }),
  )
  expect(gateway.service.running()).toBe(24)
  await until('the relays have reported the five chunks of each stream', waitMs, () => {
    const reported = heard.mock.calls.flatMap(([message]) => (message.kind === 'progress' ? message.delivered : []))
    return [...new Map(reported).values()].filter(count => count === 5).length === 24
  })
  killFound(gateway.pids()[0])
  const rest = async (reader: (typeof streams)[number]) => {
    let text = ''
    for (;;) {
      const next = await reader?.read()
      if (next === undefined || next.done) return text
      text += Buffer.from(next.value).toString()
    }
  }
  const cut: boolean[] = []
  const ends = streams.map(reader =>
    rest(reader).then(
      text => cut.push(!text.includes('[DONE]')),
      () => cut.push(true),
    ),
  )
  await until('the rows of the dead are there', waitMs, () => {
    const { length } = gateway.records
    return length > 0 && gateway.service.running() === 24 - length
  })
  const deadCount = gateway.records.length
  expect(deadCount).toBeGreaterThan(0)
  expect(deadCount).toBeLessThan(24)
  for (const record of gateway.records) {
    expect([record.outcome, record.tokensSource, record.tokens.completion]).toEqual(['aborted', 'estimated', 5])
    expect(record.tokens.prompt).toBeGreaterThan(0)
  }
  for (const finish of writers) finish()
  await Promise.all(ends)
  expect(cut.filter(item => item)).toHaveLength(deadCount)
  expect(gateway.records.filter(record => record.outcome === 'completed')).toHaveLength(24 - deadCount)
  expect(new Set(gateway.records.map(record => record.id)).size).toBe(24)
  await nothingRuns(gateway)
  await allListen(gateway, 2)
  const samples = samplesOf(gateway.service.metrics.render())
  const sampleOf = (name: string) => samples.find(sample => sample.name === name)?.value
  expect(sampleOf('strongroom_gateway_relays')).toBe(2)
  expect(sampleOf('strongroom_gateway_relay_restarts_total')).toBe(1)
  expect(sampleOf('strongroom_upstream_requests_running')).toBe(0)
  upstream.behave = wellBehaved
  expect((await gateway.chat({}, { keepalive: false })).status).toBe(200)
  await upstream.stop()
}, 120_000)

test('goal: requests that wait for a place when their relay dies leave the queue, and hold nothing', async () => {
  const { behave, held } = holding()
  const upstream = await startUpstream(behave)
  const budgets = { key: { nanoUsd: null, tokens: 1_000_000_000 }, organization: noBudget }
  const item = target(upstream.url, { concurrencyMax: 1 })
  await using gateway = await startRelayedGateway([item], { caller: { budgets } })
  await allListen(gateway, 2)
  const answers = Array.from({ length: 16 }, () =>
    gateway.chat({ max_tokens: 5 }, { keepalive: false }).then(
      answer => answer.status,
      () => 0,
    ),
  )
  await until('all are in', waitMs, () => gateway.service.running() === 16 && held.length === 1)
  expect(gateway.service.reserved()).not.toEqual([])
  for (const pid of gateway.pids()) process.kill(pid, 'SIGKILL')
  await nothingRuns(gateway)
  expect(gateway.service.reserved()).toEqual([])
  // One was with the upstream; as its relay died, one of the other relay may have had the place before that died, too.
  expect(gateway.records.length).toBeWithin(1, 3)
  expect(gateway.records.every(record => record.outcome === 'aborted')).toBe(true)
  expect(new Set(await Promise.all(answers))).toEqual(new Set([0]))
  upstream.behave = wellBehaved
  await allListen(gateway, 2)
  expect((await gateway.chat({}, { keepalive: false })).status).toBe(200)
  await upstream.stop()
}, 120_000)

test('goal: an owner that is killed takes its relays with it', async () => {
  const upstream = await startUpstream()
  const program = join(import.meta.dir, '../../rigs/gateway/relayed-gateway-program.ts')
  const child = Bun.spawn([process.execPath, program, upstream.url], { stdout: 'pipe', stdin: 'ignore' })
  const reader = child.stdout.getReader()
  const { url, pids } = JSON.parse(Buffer.from((await reader.read()).value ?? []).toString())
  const answer = await postTo(`${url}/v1/chat/completions`, KEY, {
    model: MODEL,
    messages: [{ role: 'user', content: 'x' }],
  })
  expect([answer.status, pids.length, pids.every(isAlive)]).toEqual([200, 2, true])
  child.kill('SIGKILL')
  await child.exited
  await until('its relays are gone', waitMs, () => !pids.some(isAlive))
  await upstream.stop()
})

test('goal: a graceful stop lets streams end; then no process is left', async () => {
  const writers: (() => void)[] = []
  const upstream = await startUpstream(response => {
    openSse(response)
    response.write(sse(delta({ content: 'word' })))
    writers.push(() => response.end(`${sse(delta({}, 'stop'))}data: [DONE]\n\n`))
  })
  await using gateway = await startRelayedGateway([target(upstream.url)])
  await allListen(gateway, 2)
  const streams = await Promise.all(
    Array.from({ length: 6 }, () => gateway.chat({ stream: true }, { keepalive: false })),
  )
  await until('all are under way', waitMs, () => writers.length === 6)
  const pids = gateway.pids()
  // Signals are the owner's: a relay does not end by itself.
  for (const pid of pids) process.kill(pid, 'SIGTERM')
  const stopped = gateway.stop(true)
  for (const finish of writers) finish()
  for (const stream of streams) expect(await stream.text()).toContain('[DONE]')
  await stopped
  expect(pids.some(isAlive)).toBe(false)
  expect(gateway.records.map(record => record.outcome)).toEqual(Array.from({ length: 6 }, () => 'completed'))
  await upstream.stop()
})
