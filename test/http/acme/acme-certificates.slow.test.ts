// Goal: certificates by ACME are ordered one at a time, served while they are valid and renewed; failures are tried
// ever less often; a gateway VM's key cannot use up what a server allows; nothing is lost over a restart.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createManualClock, type ManualClock } from '../../../scripts/rigs/clock.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { AcmeCertificates } from '../../../src/http/acme/acme-certificates.ts'
import type { Order } from '../../../src/http/acme/order.ts'
import type { AskRenewal } from '../../../src/http/acme/renewal-info.ts'
import { readRows } from '../../../src/http/acme/rows.ts'
import { AcmeFailure } from '../../../src/http/acme/transport.ts'
import { type Authority, openAuthority } from '../../../src/http/authority.ts'
import { spkiOf, spkiSha256Of } from '../../../src/linux/keys/spki.ts'

const host = 'instances.agents.example'
const gateway = 'inference.agents.example'
const [hourMs, dayMs] = [3_600_000, 86_400_000]
let dir: string
let clock: ManualClock
let ca: Authority
let key: Uint8Array
const open: AcmeCertificates[] = []

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-acme-'))
  clock = createManualClock()
  const names = ['agents.example']
  ca = await openAuthority({ kind: 'clients', stateDir: dir, names, nowMs: clock.nowMs, random: systemRandom })
  key = await newKey()
})
afterEach(async () => {
  for (const acme of open.splice(0)) await acme.stop()
  rmSync(dir, { recursive: true, force: true })
})

async function newKey(): Promise<Uint8Array> {
  return spkiOf((await ca.issue([host], 1)).key)
}

/** The server's side: it signs for the key that stands where a request would. */
type PlaceOrder = (order: Order) => Promise<string>
const issue: PlaceOrder = ({ name, csr }) => ca.certify(csr, [name], 30)

/** A server without renewal information. */
const nothing: AskRenewal = () => Promise.resolve(null)

function setUp({ place = issue, gatewayNames = [] as string[], publishedPerWeek = 0, askRenewal = nothing } = {}) {
  const placed: string[] = []
  /** One for this host and the gateways, one for instances. */
  const running = new Set<boolean>()
  const acme = new AcmeCertificates({
    dir,
    names: { host: [host], gateway: gatewayNames },
    publishedPerWeek,
    challengeFor: () => 'dns-01',
    host: { spkiSha256: spkiSha256Of(key), request: () => key },
    placeOrder: async order => {
      placed.push(order.name)
      const isInstance = order.name.endsWith('.acme.agents.example')
      expect(running.has(isInstance)).toBe(false)
      running.add(isInstance)
      return place(order).finally(() => {
        running.delete(isInstance)
      })
    },
    askRenewal,
    clock,
    random: () => new Uint8Array(1).fill(128),
    log: silentLogger,
    onEvent: () => {},
  })
  open.push(acme)
  let changes = 0
  acme.onChange(() => {
    changes += 1
  })
  return {
    acme,
    placed,
    changes: () => changes,
    start: () => acme.start({ domain: '', httpListen: null, showTexts: null }),
  }
}

const own = (acme: AcmeCertificates) => acme.chainsFor(spkiSha256Of(key)).map(({ serverName }) => serverName)

test('goal: it is there after one order, told of once, kept over a restart, and renewed in time', async () => {
  const first = setUp()
  expect(own(first.acme)).toEqual([])
  first.start()
  await until('it is there', 15_000, () => own(first.acme).length === 1)
  await until('it was told', 15_000, () => first.changes() === 1)
  await first.acme.stop()
  const second = setUp()
  expect(own(second.acme)).toEqual([host])
  second.start()
  await clock.elapse(19 * dayMs)
  // A third of 30 days is left after 20, less half the spread.
  expect([second.placed, second.changes()]).toEqual([[], 0])
  await clock.elapse(dayMs / 2)
  await until('it is renewed', 15_000, () => second.changes() === 1)
  expect(second.placed).toEqual([host])
  await second.acme.stop()
  // Another key of this host: what was for the earlier one is of no use.
  key = await newKey()
  expect(own(setUp().acme)).toEqual([])
})

test('goal: a failure leaves the valid one in service until it ends, and the next attempts are ever later', async () => {
  const good = setUp()
  good.start()
  await until('it is there', 15_000, () => own(good.acme).length === 1)
  await good.acme.stop()
  const failing = setUp({ place: () => Promise.reject(new AcmeFailure('no', { type: 'urn:x', retryAfterMs: null })) })
  failing.start()
  await clock.elapse(29 * dayMs)
  expect(own(failing.acme)).toEqual([host])
  expect(failing.placed.length).toBeGreaterThan(10)
  expect(failing.placed.length).toBeLessThan(60)
  const [view] = failing.acme.view()
  expect(view?.failure).toMatchObject({ type: 'urn:x', detail: 'no' })
  expect(view?.nextAtMs).toBeGreaterThan(clock.nowMs())
  await clock.elapse(dayMs + hourMs)
  // From now on the local authority's is served.
  expect([own(failing.acme), failing.changes()]).toEqual([[], 1])
})

test('goal: an operator who reloads has failures tried again now, but not what a server limits', async () => {
  let type = 'urn:ietf:params:acme:error:dns'
  const { acme, placed, start } = setUp({
    place: () => Promise.reject(new AcmeFailure('no', { type, retryAfterMs: null })),
  })
  start()
  await until('it has failed', 15_000, () => acme.view()[0]?.failure !== null)
  type = 'urn:ietf:params:acme:error:rateLimited'
  acme.retryNow()
  await until('it is tried again', 15_000, () => acme.view()[0]?.failure?.type === type)
  acme.retryNow()
  await clock.elapse(60_000)
  expect(placed).toHaveLength(2)
})

test('goal: a chain for another key, or none, is a failure and never served', async () => {
  for (const place of [
    async () => ca.certify(await newKey(), [host], 30),
    async () => 'hello',
    ({ csr }: Order) => ca.certify(csr, [host, 'x.agents.example'], 30),
  ]) {
    const { acme, start } = setUp({ place })
    start()
    await until('it has failed', 15_000, () => acme.view()[0]?.failure !== null)
    expect(acme.view()[0]?.failure?.detail).toStartWith('the certificate is refused')
    expect(own(acme)).toEqual([])
    await acme.stop()
    rmSync(join(dir, 'certificates.json'))
  }
})

test('goal: a gateway VM gets its first before others are renewed, by the request of its own key, and waits no longer than it may', async () => {
  const vm = await newKey()
  const digest = spkiSha256Of(vm)
  let gate = Promise.withResolvers<void>()
  const { acme, start } = setUp({
    gatewayNames: [gateway],
    place: async order => {
      if (order.name === gateway) await gate.promise
      return issue(order)
    },
  })
  start()
  await until('the host has its own', 15_000, () => own(acme).length === 1)
  const before = acme.gatewayStamp()
  acme.takeRequests(digest, [
    { name: gateway, csr: vm },
    { name: 'evil.example', csr: vm },
  ])
  const late = acme.settled(digest, 45_000)
  await clock.elapse(45_000)
  await late
  expect(acme.chainsFor(digest)).toEqual([])
  gate.resolve()
  await acme.settled(digest, 45_000)
  expect(acme.chainsFor(digest).map(({ serverName }) => serverName)).toEqual([gateway])
  expect(acme.gatewayStamp()).not.toBe(before)
  gate = Promise.withResolvers()
  // A repeated request orders nothing.
  acme.takeRequests(digest, [{ name: gateway, csr: vm }])
  await acme.settled(digest, 45_000)
})

test('goal: of gateway VMs the newest two keep theirs, and new keys beyond a dozen a day are not ordered for', async () => {
  const { acme, placed, start } = setUp({ gatewayNames: [gateway] })
  start()
  const digests: string[] = []
  for (let count = 0; count < 14; count += 1) {
    const vm = await newKey()
    digests.push(spkiSha256Of(vm))
    acme.takeRequests(spkiSha256Of(vm), [{ name: gateway, csr: vm }])
    await acme.settled(spkiSha256Of(vm), 1_000)
    await clock.elapse(1_000)
  }
  expect(placed.filter(name => name === gateway)).toHaveLength(12)
  const held = digests.map(digest => acme.chainsFor(digest).length)
  expect(held).toEqual([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0])
  await clock.elapse(dayMs)
  const vm = await newKey()
  acme.takeRequests(spkiSha256Of(vm), [{ name: gateway, csr: vm }])
  await acme.settled(spkiSha256Of(vm), 1_000)
  expect(acme.chainsFor(spkiSha256Of(vm))).toHaveLength(1)
})

test('goal: a file that somebody else has written is as none', async () => {
  for (const text of ['', '{}', '{"rows":[{}]}', `{"rows":[${'null,'.repeat(300)}null]}`]) {
    writeFileSync(join(dir, 'certificates.json'), text)
    expect(setUp().acme.view()).toMatchObject([{ name: host, expiresAtMs: null, failure: null }])
  }
})

test('goal: a server that revokes has its certificates renewed at once, as replacements, and once an hour at most', async () => {
  const day = { startMs: clock.nowMs() - dayMs, endMs: clock.nowMs() }
  let window = { startMs: clock.nowMs() + 10 * dayMs, endMs: clock.nowMs() + 11 * dayMs }
  const asked: string[] = []
  const orders: Order[] = []
  const { acme, start } = setUp({
    place: order => {
      orders.push(order)
      return issue(order)
    },
    askRenewal: id => {
      asked.push(id)
      return Promise.resolve({ window, retryAfterMs: hourMs })
    },
  })
  start()
  await until('it is there', 15_000, () => own(acme).length === 1)
  await clock.elapse(2 * hourMs)
  expect(asked.length).toBeGreaterThan(0)
  expect(acme.view()[0]?.nextAtMs).toBe(window.startMs + dayMs / 2)
  window = day
  await clock.elapse(hourMs + 1)
  await until('it is renewed', 15_000, () => orders.length === 2)
  expect(orders.map(({ replaces }) => replaces)).toEqual([undefined, asked[0]])
  // Each new certificate is to be renewed at once, too.
  for (const count of [3, 4, 5]) {
    await until('the last is served', 15_000, () => acme.view()[0]?.nextAtMs !== null)
    await clock.elapse(hourMs - 60_000)
    expect(orders).toHaveLength(count - 1)
    await clock.elapse(120_000)
    await until('it is renewed again', 15_000, () => orders.length === count)
  }
})

test('goal: a server that refuses the name of what is replaced gets orders without it, until there is a new chain', async () => {
  const orders: (string | undefined)[] = []
  const past = { startMs: clock.nowMs() - dayMs, endMs: clock.nowMs() }
  // A rate limit does not refuse the name.
  const replies = ['', 'rateLimited', 'alreadyReplaced', 'dns', 'dns', 'dns', '', '']
  const place = (order: Order) => {
    const kind = replies[orders.length]
    orders.push(order.replaces)
    const type = `urn:ietf:params:acme:error:${kind}`
    return kind === '' ? issue(order) : Promise.reject(new AcmeFailure('no', { type, retryAfterMs: null }))
  }
  // The server is polled again before each retry.
  const askRenewal = () => Promise.resolve({ window: past, retryAfterMs: 60_000 })
  const first = setUp({ place, askRenewal })
  first.start()
  await until('it is there', 15_000, () => own(first.acme).length === 1)
  const isNamed = () => orders.map(named => named !== undefined)
  const ordered = async (count: number) => {
    for (let hours = 0; hours < 100 && orders.length < count; hours += 1) await clock.elapse(hourMs)
    await until('the order is placed', 15_000, () => orders.length >= count)
  }
  await ordered(5)
  expect(isNamed()).toEqual([false, true, true, false, false])
  await first.acme.stop()
  // A restart keeps the refusal; a new chain ends it.
  const { acme, start } = setUp({ place, askRenewal })
  start()
  await ordered(7)
  await until('it has succeeded', 15_000, () => acme.view()[0]?.failure === null)
  await ordered(8)
  expect(isNamed().slice(5)).toEqual([false, false, true])
})

const web = 'web.abcd2345.acme.agents.example'
type Asked = { readonly name?: string; readonly organizationId?: string; readonly csr?: Uint8Array }
const asking = (acme: AcmeCertificates, { name = web, organizationId = 'acme', csr = key }: Asked = {}) =>
  acme.publish({ name, organizationId, csr, spkiSha256: spkiSha256Of(csr) })

test('goal: a published port gets its chain for its key, once, over a restart; it is renewed while its VM asks, and no longer', async () => {
  const first = setUp({ publishedPerWeek: 4 })
  first.start()
  key = await newKey()
  expect(asking(first.acme)).toEqual({ chain: null, problem: null })
  await first.acme.settled(spkiSha256Of(key), 45_000)
  const issued = asking(first.acme)
  expect(issued).toEqual({ chain: expect.stringContaining('BEGIN CERTIFICATE'), problem: null })
  expect(first.placed).toEqual([host, web])
  await first.acme.stop()
  // The host's own file is as earlier releases read it.
  expect(readRows(join(dir, 'certificates.json')).map(row => row.holder)).toEqual(['host'])
  const second = setUp({ publishedPerWeek: 4 })
  second.start()
  expect(asking(second.acme)).toEqual(issued)
  for (let day = 0; day < 42; day += 1) {
    await clock.elapse(dayMs / 2)
    asking(second.acme)
  }
  await until('it is renewed', 15_000, () => second.placed.includes(web))
  second.acme.forgetPublished(name => name !== web)
  expect(asking(second.acme).chain).not.toBeNull()
  second.acme.forgetPublished(name => name === web)
  expect(readRows(join(dir, 'published.json'))).toEqual([])
  // A request that waited for the order learns nothing, and places none.
  expect(second.acme.issued({ name: web, spkiSha256: spkiSha256Of(key) })).toEqual({ chain: null, problem: null })
  const placed = second.placed.filter(name => name === web).length
  await clock.elapse(90 * dayMs)
  expect(second.placed.filter(name => name === web)).toHaveLength(placed)
})

test('goal: a name too long for DNS is refused, and the file with the others can be read after a restart', async () => {
  const first = setUp({ publishedPerWeek: 4 })
  first.start()
  key = await newKey()
  asking(first.acme)
  await first.acme.settled(spkiSha256Of(key), 45_000)
  const request = { organizationId: 'o1', csr: key, spkiSha256: 'ab'.repeat(32) }
  const name = `${'x'.repeat(60)}.`.repeat(4) + web
  expect(first.acme.publish({ ...request, name })).toEqual({ chain: null, problem: expect.stringContaining('253') })
  await first.acme.stop()
  expect(asking(setUp({ publishedPerWeek: 4 }).acme).chain).not.toBeNull()
})

test('goal: who waits for a port that is unpublished, or published anew, does not wait for the order under way', async () => {
  const gate = Promise.withResolvers<string>()
  const place: PlaceOrder = order => (order.name === host ? issue(order) : gate.promise)
  const { acme, placed, start } = setUp({ publishedPerWeek: 8, place })
  const ends: ((next: Uint8Array) => unknown)[] = [
    () => acme.forgetPublished(name => name === web),
    next => asking(acme, { csr: next }),
  ]
  for (const end of ends) {
    const former = await newKey()
    asking(acme, { csr: former })
    // The clock of this test does not move by itself: only the end of the request lets it go on.
    let isSettled = false
    acme.settled(spkiSha256Of(former), 180_000).then(() => {
      isSettled = true
    })
    start()
    await until('it is ordered', 15_000, () => placed.includes(web))
    expect(isSettled).toBe(false)
    end(await newKey())
    await until('the wait has ended', 15_000, () => isSettled)
  }
  gate.reject(new Error('the test has ended'))
})

test('goal: a second start changes nothing', async () => {
  const { acme, placed, start } = setUp()
  start()
  start()
  await until('it is there', 15_000, () => own(acme).length === 1)
  await clock.elapse(dayMs)
  expect(placed).toEqual([host])
})

test("goal: a tenant's order that takes its time holds up none of the gateway's", async () => {
  const gateway = 'inference.agents.example'
  const never = Promise.withResolvers<string>()
  const place = (order: Order) => (order.name === web ? never.promise : issue(order))
  const { acme, placed, start } = setUp({ publishedPerWeek: 4, gatewayNames: [gateway], place })
  start()
  asking(acme)
  await until('the order is under way', 15_000, () => placed.includes(web))
  const other = await newKey()
  acme.takeRequests(spkiSha256Of(other), [{ name: gateway, csr: other }])
  await acme.settled(spkiSha256Of(other), 45_000)
  expect(acme.chainsFor(spkiSha256Of(other))).toHaveLength(1)
  never.reject(new Error('over'))
})

test('goal: of an odd number of certificates an organization gets less than half, and of a single one that', async () => {
  const { acme, start } = setUp({ publishedPerWeek: 3 })
  start()
  const [first, second] = ['a.abcd2345.acme.agents.example', 'b.abcd2345.acme.agents.example']
  expect(asking(acme, { name: first }).problem).toBeNull()
  expect(asking(acme, { name: second }).problem).toContain('your organization had 1 new')
  await acme.stop()
  rmSync(join(dir, 'published.json'))
  const single = setUp({ publishedPerWeek: 1 })
  single.start()
  expect(asking(single.acme, { name: first }).problem).toBeNull()
})

test('goal: new certificates for published ports are bounded for all, for one organization, and over a restart', async () => {
  const { acme, placed, start } = setUp({ publishedPerWeek: 4 })
  start()
  const name = (at: number) => `a${at}.abcd2345.acme.agents.example`
  for (const at of [1, 2]) expect(asking(acme, { name: name(at) })).toEqual({ chain: null, problem: null })
  expect(asking(acme, { name: name(3) }).problem).toContain('your organization')
  await acme.settled(spkiSha256Of(key), 45_000)
  // A repeated question is none.
  for (let count = 0; count < 20; count += 1) expect(asking(acme, { name: name(1) }).chain).not.toBeNull()
  // Another key for the same name is another certificate.
  expect(asking(acme, { name: name(1), csr: await newKey() }).problem).toContain('your organization')
  for (const at of [4, 5]) expect(asking(acme, { name: name(at), organizationId: 'globex' }).problem).toBeNull()
  expect(asking(acme, { name: name(6), organizationId: 'initech' }).problem).toContain('4 new certificates in 7 days')
  await until('they are there', 15_000, () => placed.length === 5)
  await acme.stop()
  const second = setUp({ publishedPerWeek: 4 })
  second.start()
  expect(asking(second.acme, { name: name(6), organizationId: 'initech' }).problem).toContain('4 new certificates')
  await clock.elapse(7 * dayMs)
  expect(asking(second.acme, { name: name(6), organizationId: 'initech' }).problem).toBeNull()
})

test('goal: without the operator no port is published, and a refusal of the server is told', async () => {
  const closed = setUp()
  closed.start()
  expect(asking(closed.acme)).toEqual({ chain: null, problem: expect.stringContaining('tls.acme.published_per_week') })
  await closed.acme.stop()
  const place = ({ name, ...order }: Order) =>
    name === web
      ? Promise.reject(new AcmeFailure('badCSR', { type: 'urn:x', retryAfterMs: null }))
      : issue({ name, ...order })
  const failing = setUp({ publishedPerWeek: 4, place })
  failing.start()
  asking(failing.acme)
  await failing.acme.settled(spkiSha256Of(key), 45_000)
  expect(asking(failing.acme)).toEqual({ chain: null, problem: 'no certificate: badCSR' })
  // The names of this host are not held up.
  await until('the host has its own', 15_000, () => own(failing.acme).length === 1)
})
