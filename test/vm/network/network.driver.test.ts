// The only writer of the firewall, with a slow fake nft that keeps what it gets: removed objects stay removed.

import { describe, expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { hostPlan, plan } from '../../../scripts/rigs/guest/two-guests.ts'
import { failure } from '../../../scripts/rigs/until.ts'
import { Fault } from '../../../src/base/fault.ts'
import { newUuid } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { Counters, Nft } from '../../../src/host/network/nft.ts'
import { openStore } from '../../../src/store/db.ts'
import { recordEgress } from '../../../src/store/ledger/egress.query.ts'
import { recordResource, strikeResource } from '../../../src/store/ledger/resource.query.ts'
import { closeVm, insertVm, moveVm, type NewVm, openVm } from '../../../src/store/ledger/vm.query.ts'
import { tapName } from '../../../src/vm/launch.plan.ts'
import { VmNetwork, type VmNetworkDeps } from '../../../src/vm/network/network.driver.ts'
import { formerNetworkNames, keepNetworkNames } from '../../../src/vm/network/network-names.query.ts'

function bench(names: VmNetworkDeps['names'] = null, publicPort: number | null = null) {
  const store = openStore(':memory:')
  const clock = createManualClock()
  const kernel = new Set<string>()
  const texts: string[] = []
  /** How texts begin that the kernel takes none of. */
  const refused: string[] = []
  const counters = (): Counters => ({
    counters: new Map(),
    quotas: new Map([...kernel].map(name => [name, { usedBytes: 0, limitBytes: 1 }])),
  })
  const nft: Nft = {
    applyRuleset: async text => {
      await Bun.sleep(1)
      if (refused.some(word => text.startsWith(word))) throw new Error('refused')
      texts.push(text)
      for (const [, verb, name] of text.matchAll(/^(add|delete) quota \S+ \S+ (\S+)/gm)) {
        if (verb === 'add') kernel.add(name ?? '')
        else kernel.delete(name ?? '')
      }
    },
    readCounters: async () => counters(),
    tableExists: async () => true,
    deleteTables: async () => {},
  }
  const limits = { egressLimitBytes: 1, rescueLimitBytes: 1, names }
  const ruleset = plan({ publicPort, gatewayListen: { address: '0.0.0.0', port: 9442 } })
  let networks: readonly string[] = ['192.0.2.0/24']
  const ownNetworks = () => networks
  const hostTexts: string[] = []
  const host = {
    nft: {
      applyRuleset: async (text: string) => {
        hostTexts.push(text)
      },
    },
    ruleset: hostPlan({ gatewayListen: { address: '0.0.0.0', port: 9442 } }),
  }
  const own = { ownNetworks, ownAddresses: () => [] }
  /** The number of rulesets in the kernel at each call. */
  const closings: number[] = []
  const closeRouting = async () => void closings.push(texts.length)
  const create = () =>
    new VmNetwork({
      ledger: store.ledger,
      nft,
      host,
      clock,
      log: silentLogger,
      ruleset,
      closeRouting,
      ...own,
      ...limits,
    })
  const network = create()
  const addVm = (n: number, kind: Partial<NewVm> = {}) => {
    const id = `0000000${n}-0000-4000-8000-000000000000`
    const nowMs = clock.nowMs()
    insertVm(store.ledger.db, { id, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs, ...kind })
    moveVm(store.ledger.db, { id, from: 'waiting', to: 'launching', nowMs, address: `10.88.0.${n}` })
    recordResource(store.ledger.db, { vmId: id, kind: 'nft', name: `tap${n}`, nowMs })
    return id
  }
  /** Where new connections lead in the newest ruleset, and what VMs of the gateway reach. */
  const served = () => {
    const leadsTo = ({ text }: { text: string | undefined }) => [
      ...new Set((text ?? '').split('\n').flatMap(line => / dnat ip to (\S+)$/.exec(line)?.[1] ?? [])),
    ]
    // Guests inside and everybody else on this host are led to the same.
    expect(leadsTo({ text: hostTexts.at(-1) })).toEqual(leadsTo({ text: texts.at(-1) }))
    return { leadsTo: leadsTo({ text: texts.at(-1) }), upstreams: elementsOf(texts, 'gateway_upstreams') }
  }
  /** Networks of this host, from now on. */
  const move = (...to: string[]) => {
    networks = to
  }
  return { store, create, network, kernel, addVm, texts, closings, refused, served, move }
}

/** Elements of a set in the newest ruleset. */
function elementsOf(texts: readonly string[], set: string): string[] {
  const found = new RegExp(`^add element inet \\S+ ${set} \\{ (.*) \\}$`, 'm').exec(texts.at(-1) ?? '')?.[1]
  return found?.split(', ') ?? []
}

test('goal: the public port is open for VMs that publish, over a restart, and for no others', async () => {
  const b = bench(null, 443)
  const [id, build] = [b.addVm(1), b.addVm(2, { network: 'fetch' })]
  b.addVm(3)
  for (const vmId of [id, build]) openVm(b.store.ledger.db, { id: vmId, nowMs: 1 })
  await b.network.sync()
  expect([elementsOf(b.texts, 'publishing'), b.kernel.has('tap1_published')]).toEqual([[], false])
  expect(await b.network.setPublished(id, 0)).toBe(false)
  expect(b.texts).toHaveLength(1)
  expect([await b.network.setPublished(id, 100), await b.network.setPublished(build, 100)]).toEqual([false, false])
  const open = ['"tap1"']
  expect([elementsOf(b.texts, 'publishing'), b.kernel.has('tap2_published')]).toEqual([open, false])
  const runs = b.texts.length
  await b.network.setPublished(id, 100)
  expect(b.texts).toHaveLength(runs)
  // A run that fails is repeated with the next poll, though nothing has changed since.
  b.refused.push('add table')
  await failure(b.network.setPublished(id, 200))
  b.refused.pop()
  await b.network.setPublished(id, 200)
  expect(b.texts.at(-1)).toContain('tap1_published { over 200 bytes used 0 bytes; }')
  await b.create().sync()
  expect(elementsOf(b.texts, 'publishing')).toEqual(open)
  await b.network.setPublished(id, 0)
  expect([elementsOf(b.texts, 'publishing'), b.kernel.has('tap1_published')]).toEqual([[], true])
})

test('what is removed does not come back by a run for another VM before its row is struck', async () => {
  // Goal: a VM that ends beside others that open, as at a start that drains the warm pool, leaves nothing in the
  // kernel.
  const b = bench()
  const gone = b.addVm(1)
  b.addVm(2)
  await b.network.sync()
  expect([...b.kernel]).toEqual(['tap1', 'tap1_rescue', 'tap2', 'tap2_rescue'])
  // The run of `remove`, and the run of another VM that was asked for meanwhile; only then the row goes.
  const removed = b.network.remove('tap1')
  await Bun.sleep(0)
  await Promise.all([removed, b.network.sync()])
  strikeResource(b.store.ledger.db, { vmId: gone, kind: 'nft' })
  expect([...b.kernel]).toEqual(['tap2', 'tap2_rescue'])
  await b.network.sync()
  expect([...b.kernel]).toEqual(['tap2', 'tap2_rescue'])
})

test('goal: routing closes after the first table alone, and each sample keeps it closed', async () => {
  const { network, addVm, closings, refused } = bench()
  addVm(1)
  refused.push('')
  await failure(network.sync())
  await failure(network.sample())
  expect(closings).toEqual([])
  refused.pop()
  await network.sync()
  await network.sync()
  expect(closings).toEqual([1])
  await network.sample()
  expect(closings.length).toBeGreaterThan(1)
})

describe('the gateway', () => {
  const upstreams = [{ address: '192.0.2.9', port: 443 }]
  const kind = { network: 'gateway' } as const

  test('gets new connections in the VM that serves, once that is opened, and until it is closed or removed', async () => {
    // Goal: no client comes to a VM that has proved nothing, or that is going.
    const { store, network, addVm, served } = bench()
    const [first, second] = [addVm(1, kind), addVm(2, kind)]
    const at = { nowMs: 5 }
    await network.setGatewayVm({ serving: first, port: 8442, upstreams })
    expect(served()).toEqual({ leadsTo: [], upstreams: ['192.0.2.9 . 443'] })
    openVm(store.ledger.db, { id: first, ...at })
    await network.sync()
    expect(served().leadsTo).toEqual(['10.88.0.1:8442'])
    openVm(store.ledger.db, { id: second, ...at })
    await network.setGatewayVm({ serving: second, port: 8442, upstreams: [] })
    expect(served()).toEqual({ leadsTo: ['10.88.0.2:8442'], upstreams: [] })
    closeVm(store.ledger.db, { id: second, ...at })
    await network.sync()
    expect(served().leadsTo).toEqual([])
    await network.setGatewayVm({ serving: first, port: 8442, upstreams })
    expect(served().leadsTo).toEqual(['10.88.0.1:8442'])
    await network.remove('tap1')
    expect(served().leadsTo).toEqual([])
    await network.setGatewayVm({ serving: null, port: 8442, upstreams })
    expect(served()).toEqual({ leadsTo: [], upstreams: ['192.0.2.9 . 443'] })
  })

  test('is where it was when a daemon starts again, before anybody has said so', async () => {
    // Goal: the first ruleset of a new process cuts no stream and turns no client away.
    const { store, network, create, addVm, served } = bench()
    const id = addVm(1, kind)
    openVm(store.ledger.db, { id, nowMs: 5 })
    await network.setGatewayVm({ serving: id, port: 8442, upstreams })
    const before = served()
    expect(before.leadsTo).toEqual(['10.88.0.1:8442'])
    const next = create()
    await next.sync()
    expect(served()).toEqual(before)
    await next.setGatewayVm({ serving: null, port: 8442, upstreams: [] })
    await create().sync()
    expect(served()).toEqual({ leadsTo: [], upstreams: [] })
  })

  test('is in no VM of another network, and in none that is unknown', async () => {
    // Goal: a wrong id leads no client to an instance.
    const { store, network, addVm, served } = bench()
    const instance = addVm(1)
    openVm(store.ledger.db, { id: instance, nowMs: 5 })
    for (const serving of [instance, '00000009-0000-4000-8000-000000000000']) {
      await network.setGatewayVm({ serving, port: 8442, upstreams })
      expect(served().leadsTo).toEqual([])
    }
  })

  test('changes in turn with everything else, and calls made meanwhile share a run', async () => {
    // Goal: the newest that was said is what holds, and there is one writer.
    const { store, network, addVm, served, texts } = bench()
    const ids = [1, 2].map(n => addVm(n, kind))
    for (const id of ids) openVm(store.ledger.db, { id, nowMs: 5 })
    const last = ids[1] ?? ''
    const said = Array.from({ length: 40 }, (_, n) =>
      network.setGatewayVm({ serving: ids[(n + 1) % 2] ?? null, port: 8442, upstreams }),
    )
    said.push(network.setGatewayVm({ serving: last, port: 8442, upstreams }), network.sync())
    await Promise.all(said)
    expect(served().leadsTo).toEqual(['10.88.0.2:8442'])
    expect(texts.length).toBeLessThanOrEqual(2)
  })

  test('is refused where an address or a port is none, and what held before goes on', async () => {
    // Goal: what a resolver says never becomes part of a ruleset but as the address that it is.
    const { store, network, addVm, served } = bench()
    const id = addVm(1, kind)
    openVm(store.ledger.db, { id, nowMs: 5 })
    const sound = { serving: id, port: 8442, upstreams }
    await network.setGatewayVm(sound)
    const wrong = [
      { ...sound, port: 0 },
      { ...sound, port: 8442.5 },
      { ...sound, upstreams: [{ address: '::1', port: 443 }] },
      { ...sound, upstreams: [{ address: '192.0.2.9 . 22 }\nflush ruleset', port: 443 }] },
      { ...sound, upstreams: [{ address: '192.0.2.9', port: 65_536 }] },
      { ...sound, upstreams: Array.from({ length: 513 }, () => ({ address: '192.0.2.9', port: 443 })) },
    ]
    for (const item of wrong) expect(await failure(network.setGatewayVm(item))).toMatchObject({ code: 'internal' })
    await network.sync()
    expect(served()).toEqual({ leadsTo: ['10.88.0.1:8442'], upstreams: ['192.0.2.9 . 443'] })
  })

  test('has no cap, and its traffic is on record as that of others', async () => {
    // Goal: a gateway never stops for what it has sent; a flush of the ruleset forgets none of it.
    const { store, network, addVm, texts } = bench()
    const id = addVm(1, kind)
    recordEgress(store.ledger.db, [{ vmId: id, usedBytes: 77, rescueBytes: 0, observedAtMs: 1, blockedAtMs: null }])
    await network.setGatewayVm({ serving: null, port: 8442, upstreams })
    expect(texts.at(-1)).toContain(
      `quota inet strongroom tap1 { over ${Number.MAX_SAFE_INTEGER} bytes used 77 bytes; }`,
    )
  })
})

test('each VM is opened to the network of its kind, and one that was closed to none', async () => {
  // Goal: a build's network in the firewall is that of the ledger; no build VM is ever among those that reach the
  // world.
  const b = bench()
  const { db } = b.store.ledger
  const opened = async () => {
    await b.network.sync()
    return ['opened', 'fetching'].flatMap(set =>
      elementsOf(b.texts, set).map(tap => `${tap.replaceAll('"', '')} ${set}`),
    )
  }
  const [instance, build] = [b.addVm(1), b.addVm(2, { network: 'fetch' })]
  expect(await opened()).toEqual([])
  for (const id of [instance, build]) openVm(db, { id, nowMs: 5 })
  expect(await opened()).toEqual(['tap1 opened', 'tap2 fetching'])
  closeVm(db, { id: build, nowMs: 6 })
  openVm(db, { id: build, nowMs: 7 })
  expect(await opened()).toEqual(['tap1 opened'])
})

test('a database that cannot be written keeps nobody from restoring the firewall', async () => {
  // Goal: a full disk opens no hole: what has gone from the kernel comes back, and the failure is still told.
  const b = bench()
  b.addVm(1)
  await b.network.sync()
  b.kernel.clear()
  b.store.ledger.db.run('PRAGMA query_only = ON')
  expect(await failure(b.network.sample())).toMatchObject({ message: expect.stringContaining('store samples') })
  expect([...b.kernel]).toEqual(['tap1', 'tap1_rescue'])
  b.kernel.clear()
  const seen = b.texts.length
  const stopping = new AbortController()
  const watch: Parameters<VmNetwork['watch']>[0] = {
    run: listener => listener.onForeignChange({ certain: true }),
  }
  await b.network.watch(watch, stopping.signal)
  expect([b.texts.length, ...b.kernel]).toEqual([seen + 1, 'tap1', 'tap1_rescue'])
  b.store.ledger.db.run('PRAGMA query_only = OFF')
  expect(await b.network.sample()).toHaveLength(1)
})

test('what VMs may not reach follows the networks of this host', async () => {
  // Goal: a network that the host joins is closed with the next sample at the latest; without a change a sample runs no
  // nft.
  const b = bench()
  b.addVm(1)
  await b.network.sync()
  const denied = () => elementsOf(b.texts, 'egress_denied')
  expect(denied()).toContain('192.0.2.0-192.0.2.255')
  await b.network.sample()
  expect(b.texts.length).toBe(1)
  b.move('198.51.100.0/24', '203.0.113.64/26')
  await b.network.sample()
  expect(denied()).not.toContain('192.0.2.0-192.0.2.255')
  expect(denied()).toEqual(expect.arrayContaining(['198.51.100.0-198.51.100.255', '203.0.113.64-203.0.113.127']))
  expect(b.texts.length).toBe(2)
})

test('addresses of names', async () => {
  // Goal: addresses are opened together and restored after others removed them; a full set does not stop the rest of
  // the ruleset.
  const list = { entries: ['crates.io'], port: 53 }
  const b = bench(list)
  b.addVm(1)
  await b.network.sync()
  const opened = () => elementsOf(b.texts, 'names_v4')
  const open = (...addresses: string[]) =>
    b.network.openNamed(
      addresses.map(address => ({ address, timeoutMs: 60_000 })),
      '10.88.0.1',
    )
  const before = b.texts.length
  expect(await Promise.all([open('198.51.100.1'), open('198.51.100.2'), open('198.51.100.1')])).toEqual([
    true,
    true,
    true,
  ])
  expect([b.texts.length - before, opened()]).toEqual([1, ['198.51.100.1 timeout 60s', '198.51.100.2 timeout 60s']])
  // A VM more changes nothing of it.
  b.addVm(2)
  await b.network.sync()
  expect(b.texts.at(-1)).toStartWith('add table')
  await b.network.resync()
  expect(opened()).toHaveLength(2)
  b.refused.push('add element')
  await b.network.resync()
  expect(b.texts.at(-1)).toStartWith('add table')
  expect(await failure(open('198.51.100.3'))).toMatchObject({ message: 'refused' })
  // A successor with the same list keeps the kernel's addresses, with another list none.
  const flushes = (text = '') => text.includes('flush set inet strongroom names_v4')
  expect(flushes(b.texts[0])).toBe(true)
  await b.create().sync()
  expect(flushes(b.texts.at(-1))).toBe(false)
  list.entries.push('other.example')
  await b.create().sync()
  expect(flushes(b.texts.at(-1))).toBe(true)
})

function ledgerWithVm(prefix: string) {
  const store = openStore(':memory:')
  const { db } = store.ledger
  const vmId = newUuid()
  insertVm(db, { id: vmId, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs: 1 })
  recordResource(db, { vmId, kind: 'tap', name: tapName(prefix, vmId), nowMs: 1 })
  const start = (tapPrefix: string, table = 'strongroom', hostRestarted = false, killed = false): string => {
    try {
      const former = formerNetworkNames(db, { tap_prefix: tapPrefix, table, hostRestarted })
      if (!killed) keepNetworkNames(db, { table, tapPrefix })
      return former === null ? 'starts' : `starts, and removes ${former.tapPrefix} and ${former.table}`
    } catch (error) {
      return error instanceof Fault ? `${error.code} ${error.param}: ${error.message}` : String(error)
    }
  }
  return { start, end: () => strikeResource(db, { vmId, kind: 'tap' }), close: () => store.close() }
}

// Goal: while a VM runs, a start under another prefix or table is refused with the way back and the way on, and one
// under the names of before goes on; a prefix that begins with the other is another.
test('names that changed under VMs that run', () => {
  const { start, end, close } = ledgerWithVm('srx')
  expect(start('srx')).toBe('starts')
  for (const prefix of ['sr', 'srxy', 'vm']) {
    const refusal = start(prefix)
    expect(refusal).toStartWith('config.invalid network.tap_prefix: ')
    expect(refusal).toContain('put network.tap_prefix back to "srx"')
    expect(refusal).toContain('pool.warm = 0')
  }
  expect(start('srx', 'other')).toContain('put network.table back to "strongroom"')
  // A refused start has changed nothing.
  expect(start('srx')).toBe('starts')
  end()
  expect(start('vm', 'other')).toBe('starts, and removes srx and strongroom')
  expect(start('vm', 'other')).toBe('starts')
  close()
})

// Goal: after a reboot of the host no VM runs, and the names may be others.
test('a host that has rebooted', () => {
  const { start, close } = ledgerWithVm('sr')
  expect([start('sr'), start('vm', 'other', true), start('sr', 'other', true)]).toEqual([
    'starts',
    'starts, and removes sr and strongroom',
    'starts, and removes vm and other',
  ])
  close()
})

// Goal: a start that is killed before it has removed what was held under the former names leaves that to the next one.
test('a start that ends before the former names are given up', () => {
  const { start, end, close } = ledgerWithVm('sr')
  expect(start('sr')).toBe('starts')
  end()
  for (let count = 0; count < 2; count += 1) {
    expect(start('vm', 'other', false, true)).toBe('starts, and removes sr and strongroom')
  }
  expect(start('vm', 'other')).toBe('starts, and removes sr and strongroom')
  expect(start('vm', 'other')).toBe('starts')
  close()
})

// Goal: a ledger of an earlier release, which kept no table's name, starts under any table.
test('a ledger without a name of the table', () => {
  const { start, close } = ledgerWithVm('sr')
  expect(start('sr', 'mine')).toBe('starts')
  expect(start('sr', 'other')).toContain('back to "mine"')
  close()
})
