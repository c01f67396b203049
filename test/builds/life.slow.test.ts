// A build from request to result, over real HTTP, with a scripted guest: what a client sees, and what is left.

import { describe, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { Value } from '@sinclair/typebox/value'
import { certainClock, randomNonce, saidBy, source, startBuilds } from '../../scripts/rigs/build/builds-service.ts'
import { goodScript, imageSummary, line, resultOf, type Step } from '../../scripts/rigs/build/engine.ts'
import { until } from '../../scripts/rigs/until.ts'
import type { Clock } from '../../src/base/clock.ts'
import { BuildRecord } from '../../src/contract/http/build-api.ts'

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

test('goal: a build is accepted, followed, downloaded and shown, and leaves no VM behind', async () => {
  await using rig = await startBuilds()
  const nonce = randomNonce()
  const accepted = await rig.send('POST', '/build', { body: { nonce, source_data: source.toString('base64') } })
  expect(accepted.status).toBe(200)
  const id = String(accepted.json.job_id)
  expect(accepted.json).toEqual({ job_id: id, build_url: `https://${new URL(rig.url()).host}/build/${id}` })
  const events = await rig.events(id)
  expect(events.map(({ id: number }) => number)).toEqual(events.map((_, at) => at + 1))
  for (const { event, data } of events) expect<unknown>(data.type).toBe(event)
  const said = saidBy(events)
  expect(said.slice(0, 1)).toEqual(['queued: 0'])
  expect(said.filter(text => !/^(queued|vm|host)/.test(text))).toEqual([
    ...['init: unpacked', 'detect: cargo', 'build: compiling', 'provenance: written', 'attest: done'],
    'complete: {"status":"ok"}',
  ])
  expect(said.filter(text => text.startsWith('host')).at(-1)).toBe(
    `host: strongroom verify build ${id}.tar.gz --nonce ${nonce} --source SOURCE`,
  )
  // The host gives the guest the verified image summary for the result, and the client may look it up.
  expect(rig.world.ordered?.imageSummary).toBe(imageSummary)
  expect(said.filter(text => text.startsWith('vm')).at(-1)).toContain(
    `verified before the start: sha256:${imageSummary}.`,
  )
  const expected = resultOf(source)
  const result = await rig.send('GET', `/build/${id}/result`)
  expect([result.status, result.headers.get('content-type'), result.text]).toEqual([
    200,
    'application/gzip',
    expected.toString(),
  ])
  expect(result.headers.get('etag')).toBe(`"${sha256(expected)}"`)
  const { json: record } = await rig.send('GET', `/build/${id}`)
  expect(Value.Check(BuildRecord, record)).toBe(true)
  expect(record).toMatchObject({
    job_id: id,
    state: 'ok',
    nonce,
    result: { size_bytes: expected.length, sha256: sha256(expected) },
  })
  expect(rig.world.vms().map(({ state }) => state)).toEqual(['gone'])
  expect(existsSync(join(rig.directory, 'builds', id, 'source'))).toBe(false)
})

test('goal: a build survives the loss of the answer to its evidence, whether the guest has the evidence or not', async () => {
  await using rig = await startBuilds()
  rig.world.losses = ['after', 'before', 'after']
  const id = await rig.submit()
  expect(await rig.ended(id)).toMatchObject({ state: 'ok', error: null })
  const [vmId] = rig.world.vms().map(vm => vm.id)
  expect(rig.world.calls.filter(call => call.startsWith('vouch'))).toEqual([
    `vouch ${vmId} dispatch`,
    `vouch ${vmId} completion`,
    `vouch ${vmId} completion`,
  ])
}, 120_000)

test('goal: a guest whose connection always ends is given up', async () => {
  await using rig = await startBuilds()
  rig.world.losses = Array.from({ length: 100 }, () => 'before')
  const build = await rig.ended(await rig.submit())
  expect([build.state, build.errorType]).toEqual(['failed', 'internal'])
  expect(build.error).toContain('the evidence of the dispatch could not be taken')
  expect(rig.world.calls.filter(call => call.startsWith('vouch')).length).toBe(3)
}, 120_000)

test('goal: a failure of the build is a complete event with the error type and the words of the guest', async () => {
  await using rig = await startBuilds()
  rig.world.script = [
    line('detect', 'no lock'),
    { kind: 'failed', errorType: 'lock_missing', error: 'Cargo.lock is missing.' },
  ]
  const id = await rig.submit()
  const events = await rig.events(id)
  expect(events.at(-1)?.data).toEqual({
    type: 'complete',
    result: { status: 'failed', error: 'Cargo.lock is missing.', error_type: 'lock_missing' },
  })
  expect((await rig.send('GET', `/build/${id}/result`)).status).toBe(404)
  expect((await rig.send('GET', `/build/${id}`)).json).toMatchObject({
    state: 'failed',
    error_type: 'lock_missing',
    result: null,
  })
})

test('goal: a repository is ordered as such, with the network it may have, which is opened once and closed for good', async () => {
  const fetch = { proxy: 'http://169.254.88.1:8444', cratesMirror: null, ca: null }
  await using rig = await startBuilds({ settings: { fetch } })
  const network = (wanted: 'wanted' | 'done'): Step => ({ kind: 'network', network: wanted })
  const held = Promise.withResolvers<void>()
  rig.world.script = [network('wanted'), { kind: 'wait', until: held.promise }, network('done'), ...goodScript]
  const body = { source_data: undefined, repo_url: 'https://git.example/a/b', repo_ref: 'v1.0' }
  const id = await rig.submit(body)
  await until('the network is open', 20_000, () => rig.gate.length > 0)
  const vmId = rig.build(id).vmId ?? ''
  expect(rig.build(id).network).toBe('open')
  held.resolve()
  await rig.ended(id)
  expect(rig.gate.slice(0, 2)).toEqual([`open ${id} 127.0.0.1`, `close ${id}`])
  expect(rig.world.calls.filter(call => /^(open|close)/.test(call))).toEqual([`open ${vmId}`, `close ${vmId}`])
  expect(rig.build(id)).toMatchObject({ state: 'ok', network: 'closed', repoUrl: 'https://git.example/a/b' })
})

test('goal: a guest that wants a network that it may not have gets none', async () => {
  await using rig = await startBuilds()
  rig.world.script = [{ kind: 'network', network: 'wanted' }, ...goodScript]
  const id = await rig.submit()
  await rig.ended(id)
  expect(rig.gate.filter(call => call.startsWith('open'))).toEqual([])
  expect(rig.world.calls.filter(call => call.startsWith('open'))).toEqual([])
})

describe('cancel', () => {
  test('goal: a build is cancelled in each of its states, at once, and only by its owner', async () => {
    await using rig = await startBuilds({ settings: { concurrentMax: 2 } })
    const held = Promise.withResolvers<void>()
    rig.world.script = [line('init', 'begun'), { kind: 'wait', until: held.promise }, ...goodScript]
    const running = await rig.submit()
    await until('it runs', 20_000, () => rig.build(running).state === 'running')
    rig.world.boots = false
    const starting = await rig.submit()
    await until('it starts', 20_000, () => rig.build(starting).state === 'starting')
    const queued = await rig.submit()
    expect([running, starting, queued].map(id => rig.build(id).state)).toEqual(['running', 'starting', 'queued'])
    const stranger = await rig.send('DELETE', `/build/${running}`, { key: rig.keys.globex })
    const reader = await rig.send('DELETE', `/build/${running}`, { key: rig.keys.acmeRead })
    expect([stranger.status, reader.status]).toEqual([404, 403])
    for (const id of [queued, starting, running]) {
      const answer = await rig.send('DELETE', `/build/${id}`)
      expect([answer.status, answer.json.state, answer.json.error_type]).toEqual([200, 'cancelled', 'cancelled'])
      const events = await rig.events(id)
      expect(events.at(-1)?.data).toEqual({
        type: 'complete',
        result: { status: 'failed', error: 'The build was cancelled.', error_type: 'cancelled' },
      })
      await rig.ended(id)
    }
    expect(rig.world.vms().map(({ state }) => state)).toEqual(['gone', 'gone'])
    const again = await rig.send('DELETE', `/build/${running}`)
    expect([again.status, again.json.state]).toEqual([200, 'cancelled'])
  })

  test('goal: a cancel of a build that is good already changes nothing', async () => {
    await using rig = await startBuilds()
    const id = await rig.submit()
    await rig.ended(id)
    expect((await rig.send('DELETE', `/build/${id}`)).json.state).toBe('ok')
    expect((await rig.send('GET', `/build/${id}/result`)).status).toBe(200)
  })
})

describe('queue', () => {
  test('goal: builds beyond the VMs wait in turn, learn their place, and the next is refused until there is room', async () => {
    await using rig = await startBuilds({ settings: { concurrentMax: 1, queueMax: 4 } })
    const held = Promise.withResolvers<void>()
    rig.world.script = [{ kind: 'wait', until: held.promise }, ...goodScript]
    const first = await rig.submit()
    await until('the first has its VM', 20_000, () => rig.build(first).state === 'running')
    const second = await rig.submit()
    const third = await rig.submit()
    const refused = await rig.send('POST', '/build', { body: { nonce: randomNonce(), source_data: 'AAAA' } })
    expect([refused.status, Number(refused.headers.get('retry-after')) > 0]).toEqual([429, true])
    held.resolve()
    await rig.ended(third)
    const places = (await rig.events(third)).filter(({ event }) => event === 'queued').map(({ data }) => data.position)
    expect(places).toEqual([1, 0])
    const vms = [first, second, third].map(id => rig.build(id).vmId)
    expect(new Set(vms).size).toBe(3)
    expect(rig.world.calls.filter(call => call.startsWith('define')).map(call => call.slice(7))).toEqual(
      vms as string[],
    )
  })

  test('goal: a host without room lets builds wait, and takes them up when there is room', async () => {
    let isFull = true
    await using rig = await startBuilds({
      room: () => (isFull ? { kind: 'full', lacking: 'memory', isEnding: false } : { kind: 'admit' }),
    })
    const id = await rig.submit()
    await Bun.sleep(50)
    expect(rig.build(id).state).toBe('queued')
    isFull = false
    expect((await rig.ended(id)).state).toBe('ok')
  })

  test('goal: a VM that finds no room after all costs its build nothing but time; one that fails ends it', async () => {
    await using rig = await startBuilds()
    rig.world.boots = false
    const id = await rig.submit()
    await until('it has a VM', 20_000, () => rig.build(id).vmId !== null)
    const first = rig.build(id).vmId ?? ''
    rig.world.fail(first, 'capacity_exhausted', 'no room')
    await until('it waits again', 20_000, () => rig.build(id).state === 'queued')
    await until('it has another VM', 10_000, () => rig.build(id).state === 'starting')
    expect((await rig.send('GET', `/build/${id}`)).json.vm_id).not.toBe(first)
    const second = rig.build(id).vmId ?? ''
    expect(second).not.toBe(first)
    rig.world.fail(second, 'boot_failed', 'the kernel did not come up')
    const build = await rig.ended(id)
    expect([build.state, build.errorType, build.error]).toEqual([
      'failed',
      'internal',
      'The build VM failed: the kernel did not come up',
    ])
  })
})

describe('a clock that is set', () => {
  const hourMs = 3_600_000
  for (const jumpMs of [hourMs, -hourMs, 960 * hourMs, -960 * hourMs]) {
    test(`goal: builds that run, start and wait go on when it is set by ${jumpMs / hourMs} hours`, async () => {
      let offsetMs = 0
      let sleepCount = 0
      const clock: Clock = {
        ...certainClock,
        nowMs: () => certainClock.nowMs() + offsetMs,
        sleep: (ms, signal) => {
          sleepCount += 1
          return certainClock.sleep(ms, signal)
        },
      }
      await using rig = await startBuilds({ clock, settings: { concurrentMax: 2 } })
      const held = Promise.withResolvers<void>()
      rig.world.script = [line('init', 'begun'), { kind: 'wait', until: held.promise }, ...goodScript]
      const running = await rig.submit()
      await until('it runs', 20_000, () => rig.build(running).state === 'running')
      const ids = [running, await rig.submit(), await rig.submit()]
      await until('one waits', 20_000, () => rig.build(ids[2] ?? '').state === 'queued')
      offsetMs = jumpMs
      const before = sleepCount
      rig.builds().reconciler.wake(ids[2] ?? '')
      // Nobody else sleeps for less than seconds.
      await until('the one that runs was looked at', 20_000, () => sleepCount > before + 5)
      expect(rig.build(running).state).toBe('running')
      expect(rig.build(ids[2] ?? '').state).toBe('queued')
      // The guest's evidence is of the current time.
      offsetMs = 0
      held.resolve()
      for (const id of ids) expect([(await rig.ended(id)).state, rig.build(id).error]).toEqual(['ok', null])
    })
  }
})

test('goal: a receipt is in the transparency log before its result can be fetched, or the build fails', async () => {
  const known: string[] = []
  await using rig = await startBuilds({ beforeResult: proof => void known.push(proof.provenance ?? '') })
  const id = await rig.submit()
  await rig.ended(id)
  expect(known).toEqual([rig.build(id).provenanceSha256 ?? 'none'])
  const isFull = () => {
    throw new Error('the disk is full')
  }
  await rig.restart({ beforeResult: isFull })
  const other = await rig.submit()
  await rig.ended(other)
  expect(rig.build(other)).toMatchObject({ state: 'failed', errorType: 'internal', resultSha256: null })
  expect((await rig.send('GET', `/build/${other}/result`)).status).toBe(404)
})
