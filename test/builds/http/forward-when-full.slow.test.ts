// Requests that find no room on the host that is asked, while another host of the fleet has some. Real PostgreSQL and
// HTTP, build VMs that play scripts.

import { expect, test } from 'bun:test'
import { certainClock, randomNonce, source } from '../../../scripts/rigs/build/builds-service.ts'
import { resultOf } from '../../../scripts/rigs/build/engine.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { type BuildHost, openBuildFleet } from '../../rigs/fleet/build-fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')
const full = () => ({ kind: 'full', lacking: 'memory', isEnding: false }) as const
const bodyOf = () => ({ nonce: randomNonce(), source_data: source.toString('base64') })

let server: PostgresServer

startForTests(started => {
  server = started
})

const knows = (host: BuildHost, id: string) => until(`${host.name} knows it`, 20_000, () => host.look(id) !== null)

/** A body that does not end before `finish`. */
function slowBody() {
  const { promise, resolve } = Promise.withResolvers<void>()
  const text = JSON.stringify(bodyOf())
  const body = new ReadableStream<Uint8Array>({
    start: async controller => {
      controller.enqueue(Buffer.from(text.slice(0, 10)))
      await promise
      controller.enqueue(Buffer.from(text.slice(10)))
      controller.close()
    },
  })
  return { body, finish: resolve }
}

// Goal: what waits at all hosts together is the sum of their queues, whichever host a client asks; an organization has
// its share of each. A build that was passed on is served through the host that was asked.
test.skipIf(missing)('one queue', async () => {
  await using rig = await openBuildFleet(server)
  const settings = { queueMax: 4, concurrentMax: 1 }
  const east = await rig.host('east', { room: full, settings })
  const west = await rig.host('west', { room: full, settings })
  const ids: string[] = []
  // Its share of a queue and the VM that is free, on each host.
  for (let count = 0; count < 6; count += 1) {
    ids.push(await east.submit())
    await knows(west, ids.at(-1) ?? '')
    await knows(east, ids.at(-1) ?? '')
  }
  const hostsOf = ids.map(id => east.build(id).hostId)
  expect(hostsOf.map<string>(id => (id === east.hostId ? 'east' : 'west'))).toEqual([
    ...['east', 'east', 'east', 'west', 'west', 'west'],
  ])
  const refused = await east.send('POST', '/build', { body: bodyOf() })
  expect([refused.status, refused.text]).toEqual([
    429,
    expect.stringContaining('You have reached the limit of 2 waiting builds'),
  ])
  const other = await east.send('POST', '/build', { key: rig.keys.globex, body: bodyOf() })
  expect(other.status).toBe(200)
  const last = ids[5] ?? ''
  for (const host of [east, west]) expect((await host.send('GET', `/build/${last}`)).json.state).toBe('queued')
  const north = await rig.host('north')
  await north.ended(last)
  expect((await east.send('GET', `/build/${last}/result`)).text).toBe(resultOf(source).toString())
})

// Goal: a source finds one of the places for uploads of any host, without a byte of it read by the host that has none.
test.skipIf(missing)('uploads', async () => {
  await using rig = await openBuildFleet(server)
  const settings = { uploadsMax: 4 }
  const east = await rig.host('east', { settings })
  const west = await rig.host('west', { room: full, settings })
  const [first, second] = [slowBody(), slowBody()]
  const begin = ({ body }: ReturnType<typeof slowBody>) =>
    east.open('/build', { method: 'POST', body, headers: { 'content-type': 'application/json' } })
  const uploads = [begin(first)]
  const isTaken = async (host: BuildHost) => {
    const answer = await host.builds.answerHost(new Request('https://x/room?organization=org-acme&address='), 'any')
    return answer.status === 409
  }
  await until('east has one', 20_000, () => isTaken(east))
  uploads.push(begin(second))
  await until('west has one', 20_000, () => isTaken(west))
  expect((await east.send('POST', '/build', { body: bodyOf() })).status).toBe(429)
  expect((await west.send('POST', '/build', { body: bodyOf() })).status).toBe(429)
  first.finish()
  second.finish()
  const answers = await Promise.all(uploads.map(async answer => (await answer).status))
  expect(answers).toEqual([200, 200])
  expect(await rig.sql('SELECT count(*) FROM strongroom.builds')).toBe('2')
  expect((await west.send('POST', '/build', { body: bodyOf() })).status).toBe(200)
})

// Goal: a VM is reserved where one is free, and its build goes there, by the host that was asked.
test.skipIf(missing)('reserved VMs', async () => {
  await using rig = await openBuildFleet(server)
  const settings = { concurrentMax: 2 }
  const east = await rig.host('east', { room: full, settings })
  const west = await rig.host('west', { settings })
  const reserved = await east.send('POST', '/vm', { body: {} })
  expect(reserved.status).toBe(200)
  const vmId = String(reserved.json.vm_id)
  expect(await rig.sql('SELECT host_id FROM strongroom.build_reservations')).toBe(west.hostId)
  await until('east knows it', 20_000, async () => (await east.send('GET', `/vm/${vmId}/health`)).status === 200)
  // Its share of west, and nothing here: the refusal is of the host that was asked.
  const none = await east.send('POST', '/vm')
  expect([none.status, none.text]).toEqual([429, expect.stringContaining('This host has no room')])
  const id = await east.submit({}, `/vm/${vmId}/build`)
  expect((await west.ended(id)).vmId).toBe(vmId)
  await knows(east, id)
  const drains = "UPDATE hosts SET draining_ms = 1 WHERE name = 'west'"
  await rig.sql(`SET search_path = strongroom; BEGIN; SELECT begin_change(true); ${drains}; COMMIT`)
  const north = await rig.host('north', { settings })
  const again = await west.send('POST', '/vm')
  expect([again.status, await rig.sql('SELECT host_id FROM strongroom.build_reservations')]).toEqual([
    200,
    north.hostId,
  ])
})

// Goal: limits of the caller are never passed on; nor is a request twice; a host that does not answer costs little, and
// one where nobody has room asks nobody again at once.
test.skipIf(missing)('refusals', async () => {
  await using rig = await openBuildFleet(server)
  const settings = { queueMax: 0, concurrentMax: 1, perOrganizationMax: 2 }
  // While it stands still, a second does not pass.
  let standsAtMs: number | null = null
  const clock = { ...certainClock, monotonicMs: () => standsAtMs ?? certainClock.monotonicMs() }
  const east = await rig.host('east', { room: full, settings, clock })
  const west = await rig.host('west', { room: full, settings })
  const calls: string[] = []
  for (const host of [east, west]) {
    const { answerHost, fetch } = host.builds
    Object.assign(host.builds, {
      answerHost: (...given: Parameters<typeof answerHost>) => {
        calls.push(`room of ${host.name}`)
        return answerHost(...given)
      },
      fetch: (...given: Parameters<typeof fetch>) => {
        if (given[1].isForwarded === true) calls.push(`to ${host.name}`)
        return fetch(...given)
      },
    })
  }
  expect((await east.send('POST', '/vm', { key: rig.keys.globex })).status).toBe(429)
  expect(calls.splice(0)).toEqual(['to west'])
  await knows(west, await east.submit())
  const passed = await east.submit()
  expect(calls).toEqual(['room of west', 'to west'])
  await knows(east, passed)
  expect(east.build(passed).hostId).toBe(west.hostId)
  // As many as the organization may have.
  expect((await east.send('POST', '/build', { body: bodyOf() })).text).toContain('limit of 2 unfinished builds')
  expect(calls).toHaveLength(2)
  const ask = async () => (await east.send('POST', '/build', { key: rig.keys.globex, body: bodyOf() })).status
  standsAtMs = certainClock.monotonicMs()
  expect(await ask()).toBe(429)
  expect(calls.splice(0)).toEqual(['room of west', 'to west', 'room of west'])
  expect(await ask()).toBe(429)
  expect(calls).toEqual([])
  standsAtMs = null
  await until('it is asked again', 20_000, async () => (await ask()) === 429 && calls.length === 1)
  await west.kill()
  expect((await east.send('POST', '/vm')).status).toBe(429)
})

// Goal: hosts that drain, which have the fewest VMs, keep nobody from the one that has room.
test.skipIf(missing)('many hosts that drain', async () => {
  await using rig = await openBuildFleet(server)
  const settings = { concurrentMax: 2 }
  const east = await rig.host('east', { room: full, settings })
  for (const name of ['d1', 'd2', 'd3', 'd4']) await rig.host(name, { settings })
  const drains = "UPDATE hosts SET draining_ms = 1 WHERE name LIKE 'd%'"
  await rig.sql(`SET search_path = strongroom; BEGIN; SELECT begin_change(true); ${drains}; COMMIT`)
  const west = await rig.host('west', { settings })
  expect((await east.send('POST', '/vm')).status).toBe(200)
  expect(await rig.sql('SELECT host_id FROM strongroom.build_reservations')).toBe(west.hostId)
})
