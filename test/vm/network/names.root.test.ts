// Instances that reach the world only by name, between namespaces, with the real firewall and forwarder. Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import {
  createGuestNetwork,
  type GuestNetwork,
  type Program,
  worldAddress,
} from '../../../scripts/rigs/guest/network.ts'
import { guest, guestV6, nextHop, nextHopV6, poolV6 } from '../../../scripts/rigs/guest/two-guests.ts'
import { type Netns, needsRoot } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { tapMac } from '../../../src/host/network/tap.ts'
import { macAddress } from '../../../src/vm/launch.plan.ts'
import { nameClientCode, type Told } from '../../rigs/dns/name-client.ts'
import { nameServerCode, type Zone } from '../../rigs/dns/name-server.ts'
import { namedHostCode, vmId } from '../../rigs/dns/named-host.ts'
import { plugInV6 } from '../../rigs/guest/network-v6.ts'

const [public1, public2, publicV6, privateAddress] = ['198.51.100.7', '198.51.100.8', '2a0f:1::7', '10.1.2.3'] as const
/** Time to use an answer in, on a machine that stands still for some seconds. */
const ttlSecondsMin = 10
const toml = `
listen.inference = "0.0.0.0:8442"
[network]
pool_v6 = "${poolV6}"
table = "strongroom"
allow_names = ["crates.example", "*.wide.example"]
resolvers = ["${worldAddress}"]
`

describe.if(needsRoot('the test of names'))('an instance with a list of names', () => {
  let network: GuestNetwork
  let world: Netns
  let netns: Netns
  let two: Netns
  let host: Program
  let server: Program
  let client: Program
  let other: Program

  const command = async (line: string) => {
    host.write(line)
    const said = await host.says(`${line.split(' ')[0]} done`)
    return JSON.parse(said.replace(/^\S+ done /, '')) as Record<'addresses' | 'answered' | 'blocked' | 'failed', number>
  }
  const says = async (zone: Zone) => {
    server.write(JSON.stringify(zone))
    await server.says('set')
  }
  const asks = async (type: string, name: string, { from = client, at = nextHop as string, forMs = 20_000 } = {}) => {
    from.write(`${type} ${name} ${at} 1 ${forMs}`)
    return JSON.parse((await from.says('told')).slice('told '.length)) as Told | null
  }
  /** Silence is all that there is of it. */
  const isNotTold = async (...[type, name, how = {}]: Parameters<typeof asks>) =>
    expect(await asks(type, name, { ...how, forMs: 2_000 })).toBeNull()
  /** A connection to port 80 of the first address, made at the line `connect`: it has to be in time. */
  const sessionCode = `let s, n = 0; console.log('up')
    for await (const line of console) {
      if (line !== 'connect') { s.write(line); continue }
      s = require('node:net').connect({ host: '${public1}', port: 80 })
      s.on('data', d => { n += d.length; console.log('has') }).on('error', () => {}) }`
  const a = (name: string, data: string, ttl = 60) => ({ type: 'A', name, data, ttl }) as const
  const reaches = async (from: Netns, address: string, port = 80) => (await network.reach(from, address, port)) !== null

  /** The ledger's VM has the address that its id gives. */
  const hasMacOfVm = async (n: number) => {
    const mac = macAddress(vmId(n))
    await network.guests[n - 1]?.run(['ip', 'link', 'set', 'eth0', 'address', mac])
    // Lost when the link changes.
    const ends = ['lladdr', tapMac, 'dev', 'eth0', 'nud', 'permanent']
    await network.guests[n - 1]?.run(['ip', 'neighbour', 'replace', nextHopV6, ...ends])
    for (const address of [guest(n).address, guestV6(n).addressV6])
      await network.inside.run([
        'ip',
        'neighbour',
        'replace',
        address,
        'lladdr',
        mac,
        'dev',
        guest(n).tap,
        'nud',
        'permanent',
      ])
  }

  beforeAll(async () => {
    network = await createGuestNetwork()
    world = network.world
    ;[netns, two] = network.guests
    await plugInV6(network)
    for (const n of [1, 2]) await hasMacOfVm(n)
    for (const address of [public1, public2, privateAddress]) {
      await world.run(['ip', 'address', 'add', `${address}/32`, 'dev', 'lo'])
      await network.host.run(['ip', 'route', 'add', address, 'via', worldAddress])
    }
    await world.run(['ip', 'address', 'add', `${publicV6}/128`, 'dev', 'lo', 'nodad'])
    for (const port of [53, 80, 443]) await network.listen(world, '::', port)
    await network.listen(network.host, '0.0.0.0', 8442)
    await network.listen(netns, '0.0.0.0', 22)
    server = await network.program(world, nameServerCode([worldAddress, public1]))
    host = await network.program(
      network.host,
      namedHostCode({ toml, inside: network.inside.name, ttlSecondsMin, graceMs: 1_000 }),
    )
    client = await network.program(netns, nameClientCode)
    other = await network.program(two, nameClientCode)
  }, 60_000)
  afterAll(() => network?.[Symbol.dispose]())

  test('goal: reaches what a name of the list leads to once it has asked, and nothing before or beside it', async () => {
    await says({
      'A crates.example': { answers: [a('crates.example', public1)] },
      'AAAA crates.example': { answers: [{ type: 'AAAA', name: 'crates.example', data: publicV6, ttl: 60 }] },
    })
    expect([await reaches(netns, public1), await reaches(netns, publicV6)]).toEqual([false, false])
    expect(await asks('A', 'CRATES.example')).toEqual({
      code: 'NOERROR',
      addresses: [public1],
      ttl: 60,
      isBlocked: false,
    })
    expect(await asks('AAAA', 'crates.example', { at: nextHopV6 })).toMatchObject({ addresses: [publicV6] })
    expect([await network.reach(netns, public1, 80), await network.reach(netns, publicV6, 80)]).toEqual([
      '::ffff:192.0.2.1',
      guestV6(1).addressV6,
    ])
    // By the same list for all; the source port of SSH is no way around it.
    expect(await reaches(two, public1, 443)).toBe(true)
    expect(await reaches(netns, public2)).toBe(false)
    expect(await network.reach(netns, public2, 80, { localPort: 22 })).toBeNull()
    // DNS at an address that is open is not.
    expect(await reaches(netns, public1, 53)).toBe(false)
    await isNotTold('A', 'crates.example', { at: public1 })
    await isNotTold('A', 'crates.example', { at: worldAddress })
  })

  test('goal: is told that a name is blocked, and the resolver never hears of it, nor of what is asked besides addresses', async () => {
    await says({
      'A wide.example': { answers: [a('wide.example', public2)] },
      'A x.y.wide.example': { answers: [a('x.y.wide.example', public2)] },
    })
    const before = await command('count')
    for (const name of ['evil.example', 'wide.example', 'crates.example.evil.example', 'xcrates.example', 'com'])
      expect([name, await asks('A', name)]).toEqual([
        name,
        { code: 'NXDOMAIN', addresses: [], ttl: 0, isBlocked: true },
      ])
    for (const type of ['TXT', 'MX', 'NULL', 'SRV'])
      expect([type, await asks(type, 'secret.wide.example')]).toMatchObject([type, { code: 'NOERROR', addresses: [] }])
    expect((await command('count')).blocked - before.blocked).toBe(5)
    expect(await reaches(netns, public2)).toBe(false)
    expect(await asks('A', 'x.y.wide.example')).toMatchObject({ addresses: [public2] })
    // The first that the server heard since.
    expect(await server.says('asked')).toStartWith('asked A crates.example ')
    expect(await server.says('asked')).toStartWith('asked AAAA crates.example ')
    expect(await server.says('asked')).toStartWith('asked A x.y.wide.example ')
    expect(await reaches(netns, public2)).toBe(true)
  })

  test('goal: gets no address of a private network, of this host or of another instance, by whatever name and alias', async () => {
    const bad = [
      privateAddress,
      nextHop,
      '192.0.2.1',
      worldAddress,
      guest(2).address,
      '127.0.0.1',
      '0.0.0.0',
      '169.254.169.254',
      '224.0.0.1',
    ]
    await says({
      'A bad.wide.example': { answers: bad.slice(0, 5).map(address => a('bad.wide.example', address)) },
      'A worse.wide.example': { answers: bad.slice(5).map(address => a('worse.wide.example', address)) },
      'A mixed.wide.example': { answers: [a('mixed.wide.example', privateAddress), a('mixed.wide.example', public1)] },
      'A alias.wide.example': {
        answers: [
          { type: 'CNAME', name: 'alias.wide.example', data: 'in.evil.example' },
          a('in.evil.example', privateAddress),
        ],
      },
      'AAAA bad6.wide.example': {
        answers: [
          'fd00::1',
          nextHopV6,
          '::1',
          'fe80::1',
          '::ffff:a01:203',
          '64:ff9b::a01:203',
          '2a0f:ffff::9',
          guestV6(2).addressV6,
        ].map(data => ({ type: 'AAAA', name: 'bad6.wide.example', data }) as const),
      },
    })
    const blocked = { code: 'NOERROR', addresses: [], isBlocked: true }
    for (const name of ['bad', 'worse', 'alias'])
      expect([name, await asks('A', `${name}.wide.example`)]).toMatchObject([name, blocked])
    expect(await asks('AAAA', 'bad6.wide.example')).toMatchObject(blocked)
    expect(await asks('A', 'mixed.wide.example')).toMatchObject({ addresses: [public1], isBlocked: false })
    expect(await reaches(netns, privateAddress)).toBe(false)
  })

  test('goal: an answer to another question, with another id or none opens nothing', async () => {
    for (const odd of ['id', 'name', 'none'] as const) {
      const name = `${odd}.wide.example`
      await says({ [`A ${name}`]: { odd, answers: [a(name, '198.51.100.99')] } })
      expect([odd, await asks('A', name)]).toMatchObject([odd, { code: 'SERVFAIL', addresses: [] }])
    }
    const sets = await network.inside.run(['nft', 'list', 'set', 'inet', 'strongroom', 'names_v4'])
    expect(sets).toContain(public1)
    expect(sets).not.toContain('198.51.100.99')
  })

  test('goal: a flow outlives its address in the set, a new one needs a new answer', async () => {
    await command('restart short.wide.example *.wide.example')
    await says({ 'A short.wide.example': { answers: [a('short.wide.example', public1, 0)] } })
    // Another list: what was open is closed.
    expect(await reaches(netns, public1)).toBe(false)
    const session = await network.program(netns, sessionCode)
    expect(await asks('A', 'short.wide.example')).toMatchObject({ addresses: [public1], ttl: ttlSecondsMin })
    session.write('connect')
    await session.says('has')
    const isOpen = async () =>
      (await network.inside.run(['nft', 'list', 'set', 'inet', 'strongroom', 'names_v4'])).includes(public1)
    await until('the kernel has closed it', 60_000, async () => !(await isOpen()))
    expect(await reaches(netns, public1)).toBe(false)
    session.write('100')
    expect(await session.says('has')).toBe('has')
    expect(await asks('A', 'short.wide.example')).toMatchObject({ addresses: [public1] })
    expect(await reaches(netns, public1)).toBe(true)
  })

  test('goal: somebody’s flush and a new daemon keep what is open and flows that run, and open nothing else', async () => {
    const list = 'restart crates.example *.wide.example'
    await command(list)
    await says({ 'A crates.example': { answers: [a('crates.example', public1, 600)] } })
    expect(await asks('A', 'crates.example')).toMatchObject({ addresses: [public1] })
    const session = await network.program(netns, sessionCode)
    session.write('connect')
    await session.says('has')
    for (const what of ['flush', list]) {
      await command(what)
      expect([what, await reaches(netns, public1), await reaches(netns, public2)]).toEqual([what, true, false])
      session.write('100')
      expect(await session.says('has')).toBe('has')
    }
    // With a daemon that remembers nothing, what somebody flushes stays closed until it is asked for again.
    await command('flush')
    expect(await reaches(netns, public1)).toBe(false)
    session.write('100')
    expect(await session.says('has')).toBe('has')
    expect(await asks('A', 'crates.example')).toMatchObject({ addresses: [public1] })
    expect(await reaches(netns, public1)).toBe(true)
  })

  test('goal: a flood of questions costs the resolver and the host a bounded number, and others are answered', async () => {
    await says({ 'A crates.example': { answers: [a('crates.example', public1)] } })
    const before = await command('count')
    const startedMs = performance.now()
    client.write(`A n*.wide.example ${nextHop} 5000`)
    const got = Number((await client.says('got ')).slice('got '.length))
    expect(await asks('A', 'crates.example', { from: other })).toMatchObject({ addresses: [public1] })
    const { failed, answered } = await command('count')
    // The kernel lets 100 through at once and 50 a second.
    const most = 100 + 50 * Math.ceil((performance.now() - startedMs) / 1_000)
    expect([got > 0, got <= most]).toEqual([true, true])
    expect(failed + answered - before.failed - before.answered).toBeLessThanOrEqual(most + 1)
  })

  test('goal: the gateway, SSH from outside and what goes to it stay as they were; strangers and the other services are not answered', async () => {
    expect(await network.reach(netns, nextHop, 8442)).toBe(guest(1).address)
    expect(await network.reach(network.host, guest(1).address, 22)).toBe(nextHop)
    expect(await network.reach(world, guest(1).address, 22)).toBe(worldAddress)
    const stranger = await network.program(world, nameClientCode)
    await world.run(['ip', 'route', 'replace', nextHop, 'via', '192.0.2.1'])
    await isNotTold('A', 'crates.example', { from: stranger })
    const used = await network.quotas()
    expect(used[guest(1).tap]).toBeGreaterThan(0)
  })
})
