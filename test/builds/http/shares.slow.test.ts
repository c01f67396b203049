// A tenant of service C at its limits leaves others unaffected: slow uploads, followers, reserved VMs, the queue,
// results.

import { describe, expect, test } from 'bun:test'
import { connect, type Socket } from 'node:net'
import { type BuildsRig, randomNonce, source, startBuilds } from '../../../scripts/rigs/build/builds-service.ts'
import { goodScript } from '../../../scripts/rigs/build/engine.ts'
import { until } from '../../../scripts/rigs/until.ts'

const source_data = source.toString('base64')
const body = (change: object = {}) => ({ nonce: randomNonce(), source_data, ...change })
type HeldConnections = AsyncDisposable & { readonly heads: () => string[] }

/** As many connections at once, each with the same bytes on it, held open. `from`: the address that each comes from. */
async function hold(
  rig: BuildsRig,
  text: string,
  options: { count: number; from?: (at: number) => string },
): Promise<HeldConnections> {
  const port = Number(new URL(rig.url()).port)
  const heads: string[] = []
  const sockets: Socket[] = []
  for (let at = 0; at < options.count; at += 1) {
    const socket = connect({ host: '127.0.0.1', port, localAddress: options.from?.(at) ?? '127.0.0.1' })
    heads.push('')
    socket.on('error', () => {})
    socket.on('data', bytes => {
      heads[at] += bytes.toString('latin1').slice(0, 4096)
    })
    socket.on('connect', () => socket.write(text))
    sockets.push(socket)
  }
  return {
    heads: () => heads,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy()
    },
  }
}

/** The status lines that have come. */
const statuses = (held: HeldConnections) => held.heads().flatMap(head => /^HTTP\/1\.1 ([0-9]{3})/.exec(head)?.[1] ?? [])

const dribble = (key: string | null, text = `{"nonce":"00","source_data":"AAAA`) =>
  `POST /build HTTP/1.1\r\nHost: x.example\r\n${key === null ? '' : `Authorization: Bearer ${key}\r\n`}` +
  `Content-Type: application/json\r\nContent-Length: 900000\r\n\r\n${text}`

async function served(rig: BuildsRig, key: string | null = rig.keys.globex): Promise<void> {
  const answer = await rig.send('POST', '/build', { key, body: body() })
  expect([answer.status, answer.text.slice(0, 200)]).toEqual([200, expect.stringContaining('job_id')])
}

/** While the others still hold their places: nobody has waited for one of theirs. */
async function servedBeside(rig: BuildsRig, ...others: readonly HeldConnections[]): Promise<void> {
  await served(rig)
  expect(others.map(held => held.heads().includes(''))).toEqual(others.map(() => true))
}

describe('uploads', () => {
  test('goal: as many slow uploads of one organization as there are places leave a place for another', async () => {
    await using rig = await startBuilds({ starts: false })
    await using held = await hold(rig, dribble(rig.keys.acme), { count: 8 })
    await until('the rest is refused', 20_000, () => statuses(held).length >= 6)
    await servedBeside(rig, held)
    expect(new Set(statuses(held))).toEqual(new Set(['429']))
  })

  test('goal: where anybody may build, strangers leave half of the places to keys, and one network a part to other strangers', async () => {
    await using rig = await startBuilds({ starts: false, open: true })
    await using first = await hold(rig, dribble(null), { count: 8, from: at => `127.0.0.${at + 1}` })
    await until('the rest is refused', 20_000, () => statuses(first).length >= 6)
    await using others = await hold(rig, dribble(null), { count: 24, from: at => `127.${at + 1}.0.1` })
    await until('the rest is refused', 20_000, () => statuses(others).length >= 21)
    await servedBeside(rig, first, others)
  })

  test('goal: a body that comes in drops ends long before its deadline, and its place is free', async () => {
    await using rig = await startBuilds({ starts: false, body: { timeoutMs: 600_000, slowMs: 4_000 } })
    await using held = await hold(rig, dribble(rig.keys.acme), { count: 2 })
    await until('they are cut', 20_000, () => statuses(held).length === 2)
    expect(statuses(held)).toEqual(['408', '408'])
    await served(rig, rig.keys.acme)
  })
})

test('goal: as many followers of one organization as there are places leave places for another', async () => {
  await using rig = await startBuilds({ starts: false })
  const own = await rig.submit()
  const other = String((await rig.send('POST', '/build', { key: rig.keys.globex, body: body() })).json.job_id)
  const ask = `GET /build/${own}/events HTTP/1.1\r\nHost: x.example\r\nAuthorization: Bearer ${rig.keys.acme}\r\n\r\n`
  await using held = await hold(rig, ask, { count: 1_024 })
  await until('all have an answer', 60_000, () => statuses(held).length === 1_024)
  // None of them ends: whoever waited for a place of theirs would wait for ever.
  const response = await fetch(`${rig.url()}/build/${other}/events`, {
    headers: { authorization: `Bearer ${rig.keys.globex}` },
  })
  const first = await response.body?.getReader().read()
  expect([response.status, Buffer.from(first?.value ?? '').toString()]).toEqual([200, expect.stringContaining('retry')])
  expect(statuses(held).filter(status => status === '200')).toHaveLength(128)
})

test('goal: where anybody may build, one network has a part of the builds that strangers may have, under way and in a day', async () => {
  const settings = { perOrganizationMax: 8, perDayMax: 16, queueMax: 64 }
  await using rig = await startBuilds({ open: true, settings })
  const ended = Promise.withResolvers<void>()
  rig.world.script = [{ kind: 'wait', until: ended.promise }, ...goodScript]
  const post = async (from: string) => {
    const text = JSON.stringify(body())
    const head = `POST /build HTTP/1.1\r\nHost: x.example\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n`
    await using held = await hold(rig, head + text, { count: 1, from: () => from })
    await until('an answer', 20_000, () => statuses(held).length === 1)
    return statuses(held)[0]
  }
  const [own, sameNetwork, other] = ['127.0.0.2', '127.0.0.3', '127.9.0.1']
  expect([await post(own), await post(own), await post(sameNetwork), await post(other)]).toEqual([
    ...['200', '200', '429', '200'],
  ])
  ended.resolve()
  const all = rig.store().directory.db.all<{ id: string }>('SELECT id FROM builds')
  for (const { id } of all) await rig.ended(id)
  const answers: unknown[] = []
  for (let count = 0; count < 4; count += 1) {
    answers.push(await post(own))
    for (const { id } of rig.store().directory.db.all<{ id: string }>('SELECT id FROM builds')) await rig.ended(id)
  }
  expect([answers, await post(other)]).toEqual([['200', '200', '429', '429'], '200'])
})

describe('VMs', () => {
  test('goal: one organization cannot reserve the last VM, and none is reserved while builds wait', async () => {
    await using rig = await startBuilds({ starts: false, settings: { concurrentMax: 2 } })
    const reserved = [await rig.send('POST', '/vm'), await rig.send('POST', '/vm')]
    expect(reserved.map(({ status }) => status)).toEqual([200, 429])
    await served(rig)
    await served(rig)
    const late = await rig.send('POST', '/vm', { key: rig.keys.globex })
    expect([late.status, late.text]).toEqual([429, expect.stringContaining('wait')])
  })

  test('goal: builds of an organization that has a VM wait behind those of one that has none', async () => {
    await using rig = await startBuilds({ settings: { concurrentMax: 1, queueMax: 32 } })
    const held = Promise.withResolvers<void>()
    rig.world.script = [{ kind: 'wait', until: held.promise }, ...goodScript]
    const own: string[] = []
    for (let count = 0; count < 4; count += 1) own.push(await rig.submit())
    const other = String((await rig.send('POST', '/build', { key: rig.keys.globex, body: body() })).json.job_id)
    await until('the first has its VM', 20_000, () => rig.build(own[0] ?? '').state === 'running')
    expect((await rig.send('GET', `/build/${other}`, { key: rig.keys.globex })).status).toBe(200)
    held.resolve()
    for (const id of [...own, other]) await rig.ended(id)
    const startedAt = (id: string) => rig.build(id).startedAtMs ?? 0
    expect(own.filter(id => startedAt(id) < startedAt(other))).toEqual([own[0] ?? ''])
  })

  test('goal: one organization cannot take every place in the queue, whatever it may have itself', async () => {
    await using rig = await startBuilds({ starts: false, settings: { concurrentMax: 1, queueMax: 8 } })
    const answers: number[] = []
    for (let count = 0; count < 10; count += 1)
      answers.push((await rig.send('POST', '/build', { body: body() })).status)
    expect(answers.filter(status => status === 200)).toHaveLength(5)
    await served(rig)
  })
})

test('goal: results of one organization push out its own, not those of one that has less', async () => {
  await using rig = await startBuilds({ settings: { resultBytesMax: 8_000 } })
  const small = String((await rig.send('POST', '/build', { key: rig.keys.globex, body: body() })).json.job_id)
  await rig.ended(small)
  const big = Buffer.alloc(1_000, 'x').toString('base64')
  const own: string[] = []
  for (let count = 0; count < 6; count += 1) {
    own.push(await rig.submit({ source_data: big }))
    await rig.ended(own.at(-1) ?? '')
  }
  expect(rig.build(own[0] ?? '').removedAtMs).not.toBeNull()
  expect(rig.build(small).removedAtMs).toBeNull()
  expect((await rig.send('GET', `/build/${small}/result`, { key: rig.keys.globex })).status).toBe(200)
})
