// Streams of the gateway's VMs while the map is switched, rewritten and its writer killed; and their bounds. Needs
// root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import {
  type GatewayVmChange,
  gatewayVmHostPlan,
  gatewayVmPlan,
  listenPort,
  servicePort,
} from '../../../scripts/rigs/gateway/guests.ts'
import {
  createGuestNetwork,
  type GuestNetwork,
  hostAddress,
  worldAddress,
} from '../../../scripts/rigs/guest/network.ts'
import { guest, nextHop, plan } from '../../../scripts/rigs/guest/two-guests.ts'
import { killFound } from '../../../scripts/rigs/kill.ts'
import { type Netns, needsRoot } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { present } from '../../../src/base/assert.ts'
import { hostTableText } from '../../../src/vm/network/host-table.plan.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'

const second = guest(2).address
const local = '127.0.0.1'
const chunkBytes = 1_000

/** Says up with what it is greeted with; then asks for so many bytes with each line, and says when they are there. */
const streamCode = (address: string, port: number) => `
  const s = require('node:net').connect(${port}, '${address}'); let want = 0, got = 0, greeted = false
  s.on('data', d => {
    if (!greeted) { greeted = true; console.log('up'); console.log('to ' + String(d).trim()); return }
    got += d.length; if (got >= want) console.log('got ' + got) })
  s.on('error', error => console.log('error ' + error.code)); s.on('close', () => console.log('closed'))
  for await (const line of console) { want += Number(line); s.write(line) }`

describe.if(needsRoot('the test of streams of the gateway'))('streams', () => {
  let network: GuestNetwork
  let host: Netns
  let world: Netns
  let instance: Netns

  const apply = async (change: GatewayVmChange = {}) => {
    await network.apply(rulesetText(gatewayVmPlan(change)))
    await network.applyHost(hostTableText(gatewayVmHostPlan(change)))
  }
  const toSecond = { service: { address: second } } as const
  const open = async (from: Netns, address: string, port: number) => {
    const stream = await network.program(from, streamCode(address, port))
    const to = (await stream.says('to ')).slice(3)
    let got = 0
    const flows = async () => {
      got += chunkBytes
      stream.write(String(chunkBytes))
      expect(await stream.says('got ')).toBe(`got ${got}`)
    }
    await flows()
    return { stream, to, flows }
  }

  beforeAll(async () => {
    network = await createGuestNetwork(5)
    ;({ host, world } = network)
    const [netns, two, three] = network.guests
    instance = present(three, 'five guests')
    await network.listen(netns, '0.0.0.0', servicePort, 'a ')
    await network.listen(two, '0.0.0.0', servicePort, 'b ')
    await network.listen(world, '0.0.0.0', 443)
    await apply()
  })

  afterAll(() => network?.[Symbol.dispose]())

  test('stay with their VM when the map leads to another, which gets the new ones, and when its writer is killed', async () => {
    // Goal: an update has no gap: no stream is cut, no client comes to the VM that is drained.
    const routes: readonly (readonly [Netns, string, string])[] = [
      [world, hostAddress, worldAddress],
      [instance, nextHop, guest(3).address],
      [host, local, nextHop],
      [host, hostAddress, hostAddress],
    ]
    const streams = await Promise.all(routes.map(([from, address]) => open(from, address, listenPort)))
    expect(streams.map(({ to }) => to)).toEqual(routes.map(([, , seen]) => `a ${seen}`))
    // A writer that is killed behind its work, as a daemon may be.
    const writer = await network.program(
      host,
      `const { exitCode } = Bun.spawnSync(['nft', '--file', '-'], { stdin: Buffer.from(${JSON.stringify(
        hostTableText(gatewayVmHostPlan(toSecond)),
      )}) })
        console.log(exitCode === 0 ? 'up' : 'nft failed'); console.log('pid ' + process.pid); for await (const _ of console);`,
    )
    killFound(Number((await writer.says('pid ')).slice(4)))
    for (const change of [toSecond, {}, toSecond]) {
      await apply(change)
      for (const { flows } of streams) await flows()
    }
    const seen = await Promise.all(routes.map(([from, address]) => network.reach(from, address, listenPort)))
    expect(seen).toEqual(routes.map(([, , from]) => `b ${from}`))
    for (const { flows } of streams) await flows()
  })

  test('to an upstream whose address has changed run on, and no new one goes to the old address', async () => {
    // Goal: names change their addresses while answers stream.
    await apply()
    const [from] = network.guests
    const { flows, to } = await open(from, worldAddress, 443)
    expect(to).toBe(hostAddress)
    await apply({ service: { upstreams: [{ address: '192.0.2.77', port: 443 }] } })
    await flows()
    expect(await network.reach(from, worldAddress, 443)).toBeNull()
    await flows()
  })

  test('learn that a path takes smaller packets only', async () => {
    // Goal: no client behind a tunnel waits for ever for an answer that is too large for it.
    await apply()
    await host.run(['ip', 'link', 'set', 'uplink', 'mtu', '1300'])
    const { stream } = await open(world, hostAddress, listenPort)
    stream.write('100000')
    expect(await stream.says(`got ${100_000 + chunkBytes}`)).toBeDefined()
    await host.run(['ip', 'link', 'set', 'uplink', 'mtu', '1500'])
  })

  test('carry nothing more once their VM is closed', async () => {
    // Goal: a VM that is shut off keeps none of its clients and upstreams.
    await apply()
    const [from] = network.guests
    const streams = [await open(world, hostAddress, listenPort), await open(from, worldAddress, 443)]
    await apply({ vms: { 1: { opened: false } }, ...toSecond })
    const arrived = await network.countArrivals(from)
    for (const { stream } of streams) stream.write(String(chunkBytes))
    // While they wait, the one that serves now is reached.
    expect(await network.reach(world, hostAddress, listenPort)).toBe(`b ${worldAddress}`)
    expect(await network.countArrivals(from)).toBe(arrived)
    // They did try: what was lost is sent again.
    await apply()
    for (const { stream } of streams) expect(await stream.says('got ')).toBe(`got ${2 * chunkBytes}`)
  })
})

describe.if(needsRoot('the test of connections to the gateway'))('connections', () => {
  let network: GuestNetwork
  const others = ['192.0.2.10', '192.0.2.11']
  const { perAddressMax, allMax } = plan().services

  beforeAll(async () => {
    network = await createGuestNetwork(5)
    const [netns, two] = network.guests
    for (const where of [netns, two]) await network.listen(where, '0.0.0.0', servicePort)
    for (const address of others) await network.world.run(['ip', 'address', 'add', `${address}/24`, 'dev', 'eth0'])
    await network.apply(rulesetText(gatewayVmPlan()))
    await network.applyHost(hostTableText(gatewayVmHostPlan()))
  })
  afterAll(() => network?.[Symbol.dispose]())

  /**
   * Number of accepted connections, out of 20 that a process of its own opens, and the ends of the others. It ends when
   * both sides have closed them: an open one keeps its place, however long its client is gone.
   */
  const held = async (where: Netns, target: string, port: number, from: readonly (string | null)[]) => {
    const code = `const net = require('node:net'); const up = []; let settled = 0, closed = 0; const ends = {}
      const from = ${JSON.stringify(from)}
      for (let i = 0; i < 20; i += 1) {
        const localAddress = from[i % from.length]
        const socket = net.connect({ host: '${target}', port: ${port}, ...(localAddress === null ? {} : { localAddress }) })
        const done = () => { settled += 1; if (settled === 20) for (const each of up) each.end() }
        const gone = () => { closed += 1; if (closed === 20) { console.log(up.length + ' ' + Object.keys(ends)); process.exit() } }
        socket.on('connect', () => { up.push(socket); done() }).on('error', ({ code }) => { ends[code] = 1; done() })
          .on('close', gone).resume()
      }`
    return (await where.run([process.execPath, '-e', code], { timeoutMs: 60_000 })).trim()
  }

  type Begun = { readonly began: number; readonly refused: number; readonly tookMs: number }

  /** Begins 40 connections one after the other, and closes each before the next. */
  const beginsEach = async (where: Netns, target: string, port: number) => {
    const code = `const net = require('node:net'); let began = 0, refused = 0; const startedMs = Date.now()
      const next = () => {
        if (began + refused === 40) {
          console.log(JSON.stringify({ began, refused, tookMs: Date.now() - startedMs })); process.exit()
        }
        const socket = net.connect({ host: '${target}', port: ${port} })
        socket.on('connect', () => { began += 1; socket.end() }).on('error', () => { refused += 1 })
          .on('close', () => setTimeout(next, 20)).resume()
      }
      next()`
    return JSON.parse(await where.run([process.execPath, '-e', code])) as Begun
  }

  /**
   * Fails when more than `max` connections are ever accepted, or when it stays at fewer: the kernel clears closed
   * connections up some milliseconds later, and only so many at a time.
   */
  const holds = (max: number, ...[where, target, port, from]: Parameters<typeof held>) =>
    until(`${max} connections to ${target}:${port} from ${from.join(' and ')}`, 60_000, async () => {
      const [accepted, ends] = (await held(where, target, port, from)).split(' ')
      expect(Number(accepted)).toBeLessThanOrEqual(max)
      expect(ends).toBe('ECONNREFUSED')
      return Number(accepted) === max
    })

  test('of one client, and of all together, are as many as to the other services, mapped or routed', async () => {
    // Goal: no client takes all places of the gateway; a refused client learns it at once; a switch keeps the counts.
    const { world, guests } = network
    const instance = present(guests[2], 'five guests')
    const all = [worldAddress, ...others]
    await holds(perAddressMax, world, hostAddress, listenPort, [worldAddress])
    await holds(allMax, world, hostAddress, listenPort, all)
    await holds(perAddressMax, world, guest(1).address, servicePort, [worldAddress])
    await holds(perAddressMax, instance, nextHop, listenPort, [null])
    const stays = await network.program(
      world,
      `const net = require('node:net'); let up = 0
        for (const localAddress of ${JSON.stringify([...others, ...others])})
          net.connect({ host: '${hostAddress}', port: ${listenPort}, localAddress }).on('connect', () => { up += 1; if (up === 4) console.log('up') })
        for await (const _ of console);`,
    )
    const toSecond = { service: { address: guest(2).address } }
    await network.apply(rulesetText(gatewayVmPlan(toSecond)))
    await network.applyHost(hostTableText(gatewayVmHostPlan(toSecond)))
    await holds(allMax - 4, world, hostAddress, listenPort, all)
    stays.write('')
  })

  test('goal: one client, outside or an instance, begins as many in a second as it may, mapped or routed', async () => {
    const { world, guests } = network
    const instance = present(guests[2], 'five guests')
    const rate = { services: { ...plan().services, newPerSecondMax: 1 } }
    const hostRate = { services: { ...gatewayVmHostPlan().services, newPerSecondMax: 1 } }
    await network.apply(rulesetText({ ...gatewayVmPlan(), ...rate }))
    await network.applyHost(hostTableText({ ...gatewayVmHostPlan(), ...hostRate }))
    try {
      for (const [where, target, port] of [
        [world, hostAddress, listenPort],
        [world, guest(1).address, servicePort],
        [instance, nextHop, listenPort],
      ] as const) {
        // An entry keeps the rate that was in force when it was made.
        for (const { run } of [network.host, network.inside])
          await run(['nft', 'flush', 'set', 'inet', plan().table, 'rates_v4'])
        const { began, refused, tookMs } = await beginsEach(where, target, port)
        // The burst is the share of open connections, 4.
        expect(began).toBeGreaterThanOrEqual(4)
        expect(began).toBeLessThanOrEqual(4 + Math.ceil(tookMs / 1000) + 1)
        expect(refused).toBe(40 - began)
      }
    } finally {
      await network.apply(rulesetText(gatewayVmPlan()))
      await network.applyHost(hostTableText(gatewayVmHostPlan()))
    }
  })

  test('of clients on this host are not counted', async () => {
    // Goal: a proxy on this host speaks for many clients.
    const { host } = network
    expect(await held(host, hostAddress, listenPort, [null])).toBe('20')
  })
})
