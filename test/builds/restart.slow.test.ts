// The daemon is killed in each phase of a build, around each of its calls: the build goes on with the next daemon to a
// good end; events that a client saw stay, and continue without a gap.

import { expect, test } from 'bun:test'
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type BuildsRig, source, startBuilds } from '../../scripts/rigs/build/builds-service.ts'
import { type Cut, goodScript, line, resultOf } from '../../scripts/rigs/build/engine.ts'
import { until } from '../../scripts/rigs/until.ts'
import { closeBuild } from '../../src/store/directory/build.query.ts'

/** Outcome of every build, whenever its daemon was killed. */
async function checkEnd(rig: BuildsRig, id: string, seen: string): Promise<void> {
  const build = await rig.ended(id)
  const events = await rig.events(id)
  expect(events.map(event => event.id)).toEqual(events.map((_, at) => at + 1))
  expect(events.filter(({ event }) => event === 'complete').length).toBe(1)
  expect(events.at(-1)?.event).toBe('complete')
  const log = readFileSync(join(rig.directory, 'builds', id, 'events.jsonl'), 'utf8')
  expect(log.startsWith(seen)).toBe(true)
  // The guest's lines: each once, in their order.
  expect(events.filter(({ data }) => data.msg === 'unpacked')).toHaveLength(1)
  expect([build.state, build.errorType]).toEqual(['ok', null])
  expect((await rig.send('GET', `/build/${id}/result`)).text).toBe(resultOf(source).toString())
  await until('no VM is left', 20_000, () => rig.world.vms().every(({ state }) => state === 'gone'))
  for (const file of ['source', 'result.tar.gz.tmp']) {
    expect(existsSync(join(rig.directory, 'builds', id, file))).toBe(false)
  }
}

const CUTS: [string, Cut][] = [
  ['before its VM is made', { op: 'define', when: 'before', nth: 1 }],
  ['once its VM is made', { op: 'define', when: 'after', nth: 1 }],
  ['before the guest has its order', { op: 'order', when: 'before', nth: 1 }],
  ['once the guest has its order', { op: 'order', when: 'after', nth: 1 }],
  ['before the first progress', { op: 'progress', when: 'before', nth: 1 }],
  ['with lines on the way', { op: 'progress', when: 'after', nth: 1 }],
  ['before the evidence of the dispatch', { op: 'vouch', when: 'before', nth: 1 }],
  // The host has judged it, and the guest still waits.
  ['with the evidence of the dispatch on the way', { op: 'handing', when: 'before', nth: 1 }],
  ['once the guest has the evidence of the dispatch', { op: 'handing', when: 'after', nth: 1 }],
  ['before the evidence of the completion', { op: 'vouch', when: 'before', nth: 2 }],
  ['with the evidence of the completion on the way', { op: 'handing', when: 'before', nth: 2 }],
  ['once the guest has the evidence of the completion', { op: 'handing', when: 'after', nth: 2 }],
  ['with the result announced', { op: 'progress', when: 'after', nth: 3 }],
  ['before its VM is dismissed', { op: 'dismiss', when: 'before', nth: 1 }],
  ['once its VM is dismissed', { op: 'dismiss', when: 'after', nth: 1 }],
]

test.each(CUTS)('goal: a daemon killed %s leaves a build that the next one ends', async (_what, cut) => {
  await using rig = await startBuilds()
  const hit = rig.world.cutAt(cut)
  const id = await rig.submit()
  await hit
  const seen = readFileSync(join(rig.directory, 'builds', id, 'events.jsonl'), 'utf8')
  await rig.restart()
  await checkEnd(rig, id, seen)
})

test('goal: a fast guest keeps its result, though the daemon was killed before it knew that the order had come', async () => {
  await using rig = await startBuilds()
  const hit = rig.world.cutAt({ op: 'order', when: 'after', nth: 1 })
  const id = await rig.submit()
  await hit
  const vmId = rig.build(id).vmId ?? ''
  // As if it had written its result by now.
  const mark = Buffer.from('this is the result already')
  const exchange = rig.world.exchange(vmId)
  const whole = readFileSync(exchange)
  mark.copy(whole)
  writeFileSync(exchange, whole)
  const held = Promise.withResolvers<void>()
  rig.world.script = [{ kind: 'wait', until: held.promise }, ...goodScript]
  await rig.restart()
  await until('it runs', 20_000, () => rig.build(id).state === 'running')
  expect(readFileSync(exchange).subarray(0, mark.length).toString()).toBe(mark.toString())
  held.resolve()
  expect((await rig.ended(id)).state).toBe('ok')
})

test('goal: what waits in the queue waits on, in its order, and a cancelled build stays cancelled', async () => {
  await using rig = await startBuilds({ settings: { concurrentMax: 1 }, starts: false })
  const ids = [await rig.submit(), await rig.submit(), await rig.submit()]
  await rig.send('DELETE', `/build/${ids[1]}`)
  await rig.restart({ starts: true })
  const builds = [await rig.ended(ids[0] ?? ''), await rig.ended(ids[1] ?? ''), await rig.ended(ids[2] ?? '')]
  expect(builds.map(({ state }) => state)).toEqual(['ok', 'cancelled', 'ok'])
  expect((builds[0]?.finishedAtMs ?? 0) <= (builds[2]?.startedAtMs ?? 0)).toBe(true)
  expect((await rig.events(ids[1] ?? '')).at(-1)?.event).toBe('complete')
})

test('goal: a VM that died with the host ends its build', async () => {
  await using rig = await startBuilds()
  const held = Promise.withResolvers<void>()
  rig.world.script = [line('init', 'begun'), { kind: 'wait', until: held.promise }, ...goodScript]
  const id = await rig.submit()
  await until('it runs', 20_000, () => rig.build(id).state === 'running')
  rig.world.fail(rig.build(id).vmId ?? '', 'host_restarted', 'the host was restarted')
  await rig.restart()
  const build = await rig.ended(id)
  expect([build.state, build.error]).toEqual(['failed', 'The build VM failed: the host was restarted'])
})

test('goal: a build that is good in the store gets its complete event, though the daemon was killed before it was written', async () => {
  await using rig = await startBuilds()
  const id = await rig.submit()
  await rig.ended(id)
  const path = join(rig.directory, 'builds', id, 'events.jsonl')
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n')
  // Power went in the middle of a line.
  writeFileSync(path, `${lines.slice(0, -1).join('\n')}\n${lines.at(-1)?.slice(0, 20)}`)
  rig.store().directory.db.run('UPDATE builds SET closed_at_ms = NULL')
  await rig.restart()
  await rig.ended(id)
  expect((await rig.events(id)).filter(({ event }) => event === 'complete').length).toBe(1)
  expect((await rig.send('GET', `/build/${id}/result`)).status).toBe(200)
})

test('goal: files that no record names are gone after a start, and those of records stay', async () => {
  await using rig = await startBuilds()
  const id = await rig.submit()
  await rig.ended(id)
  const root = join(rig.directory, 'builds')
  mkdirSync(join(root, 'f0d5a1de-6c1b-4f0e-9c39-0a9a5f6b7c8d'))
  appendFileSync(join(root, 'f0d5a1de-6c1b-4f0e-9c39-0a9a5f6b7c8d', 'source'), 'x')
  appendFileSync(join(root, 'incoming', 'half'), 'x')
  await rig.restart()
  expect(existsSync(join(root, 'f0d5a1de-6c1b-4f0e-9c39-0a9a5f6b7c8d'))).toBe(false)
  expect(existsSync(join(root, 'incoming', 'half'))).toBe(false)
  expect((await rig.send('GET', `/build/${id}/result`)).status).toBe(200)
})

test('goal: builds of another host are left alone', async () => {
  await using rig = await startBuilds()
  const id = await rig.submit()
  await rig.ended(id)
  rig.store().directory.db.run("UPDATE builds SET host_id = 'elsewhere', state = 'running', closed_at_ms = NULL")
  const { calls } = rig.world
  const before = calls.length
  rig.builds().reconciler.wake(id)
  await Bun.sleep(50)
  expect(calls.slice(before)).toEqual([])
  closeBuild(rig.store().directory.db, { id, diskBytes: 0, nowMs: 0 })
})
