// The cap, and the allowance for answers to SSH beyond it, to the byte, counted where packets arrive in the world.
// Between namespaces. Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import {
  createGuestNetwork,
  type GuestNetwork,
  type Program,
  worldAddress,
} from '../../../scripts/rigs/guest/network.ts'
import { nextHop, plan, quotaOf } from '../../../scripts/rigs/guest/two-guests.ts'
import { needsRoot } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'

const limits = { limitBytes: 200_000, rescueLimitBytes: 100_000 } as const
const packetBytesMax = 1_500
const capped = plan({ vms: plan().vms.map(vm => ({ ...vm, ...limits })) })

/**
 * Sends datagrams of 1000 bytes to the world, as many as a line says, from the port that it names. Beyond the cap some
 * are refused.
 */
const floodCode = `console.log('up')
  for await (const line of console) {
    const [count, port] = line.split(' ').map(Number)
    const s = await Bun.udpSocket({ hostname: '0.0.0.0', port, socket: { error() {} } })
    for (let i = 0; i < count; i += 1) {
      try { s.send(new Uint8Array(1000), 9, '${worldAddress}') } catch (error) { if (error.code !== 'EHOSTUNREACH') throw error }
      if (i % 20 === 0) await Bun.sleep(1)
    }
    s.close(); console.log('sent ' + line)
  }`

/** Sends raw packets of protocol 6, too short for a TCP header, on `count bytes`; the first two bytes name port 22. */
const stubCode = `const { dlopen, ptr } = require('bun:ffi')
  const { symbols: c } = dlopen('libc.so.6', {
    socket: { args: ['i32', 'i32', 'i32'], returns: 'i32' },
    sendto: { args: ['i32', 'ptr', 'u64', 'i32', 'ptr', 'u32'], returns: 'i64' } })
  const fd = c.socket(2, 3, 255)
  const to = [192, 0, 2, 9]
  const address = Uint8Array.of(2, 0, 0, 0, ...to, 0, 0, 0, 0, 0, 0, 0, 0)
  console.log('up')
  for await (const line of console) {
    const [count, bytes] = line.split(' ').map(Number)
    const packet = new Uint8Array(20 + bytes)
    packet.set([0x45, 0, 0, 20 + bytes, 0, 0, 0, 0, 64, 6, 0, 0, 10, 88, 0, 1, ...to])
    packet.set([0, 22].slice(0, bytes), 20)
    let sent = 0
    for (let i = 0; i < count; i += 1) if (c.sendto(fd, ptr(packet), packet.length, 0, ptr(address), 16) > 0) sent += 1
    console.log('sent ' + line + ' ' + sent)
  }`

/** Asks the SSH port of the second guest for as many bytes as a line says, and tells how many have come. */
const clientCode = `const s = require('node:net').connect(22, '10.88.0.2'); let n = 0
  s.on('connect', () => console.log('up')); s.on('data', d => { n += d.length; console.log('got ' + n) })
  for await (const line of console) s.write(line)`

/** A connection of the first guest to the world from port 22, made while it may; then as many bytes as a line says. */
const outwardCode = `const s = require('node:net').connect({ host: '${worldAddress}', port: 80, localPort: 22 })
  s.on('data', () => console.log('up')); s.on('error', () => {})
  for await (const line of console) { s.write(new Uint8Array(Number(line))); console.log('written') }`

async function received(client: Program, bytes: number): Promise<void> {
  while (Number((await client.says('got ')).slice(4)) < bytes);
}

describe.if(needsRoot('the test of the allowance beyond the cap'))('what leaves a guest', () => {
  let network: GuestNetwork
  const seen = () => network.countArrivals(network.world)
  /** Packets that have passed may be under way still: looks until no more come, and at least so many bytes have. */
  const settled = async (bytesMin: number) => {
    let [before, now] = [-1, await seen()]
    await until('all that has passed has come', 60_000, async () => {
      ;[before, now] = [now, await seen()]
      return now >= bytesMin && now === before
    })
    return now
  }
  const used = async (n: number) => quotaOf(await network.quotas(), n)
  /** Sent packets may be under way for some more milliseconds, until a thread of the kernel takes them on. */
  const spent = async (n: number) => {
    await until('the cap is spent', 60_000, async () => (await used(n)).cap === limits.limitBytes)
    expect(await used(n)).toEqual({ cap: limits.limitBytes, rescue: 0 })
  }

  beforeAll(async () => {
    network = await createGuestNetwork()
    const { world, guests, apply, listen } = network
    await apply(rulesetText(capped))
    await listen(world, '0.0.0.0', 80)
    await listen(guests[1], '0.0.0.0', 22)
  })

  afterAll(() => network?.[Symbol.dispose]())

  test('stops at the cap to the byte, whatever it is made of and whatever port it is from', async () => {
    // Goal: without a daemon, source port 22 opens nothing: no new flow, none begun before, no UDP, no packet too short
    // for a header.
    const { guests, program, reach } = network
    const outward = await program(guests[0], outwardCode)
    const stubs = await program(guests[0], stubCode)
    const flood = await program(guests[0], floodCode)
    const before = await seen()
    const chargedBefore = (await used(1)).cap
    for (const bytes of [1, 2, 4, 19]) {
      stubs.write(`50 ${bytes}`)
      expect(await stubs.says('sent ')).toBe(`sent 50 ${bytes} 50`)
    }
    // A packet without a whole TCP header belongs to no connection: it is dropped, uncounted.
    expect((await used(1)).cap).toBe(chargedBefore)
    expect(await seen()).toBe(before)
    flood.write('400 0')
    await flood.says('sent ')
    await spent(1)
    const atCap = await settled(limits.limitBytes - 2 * packetBytesMax + 1)
    expect(atCap).toBeLessThanOrEqual(limits.limitBytes)

    outward.write('5000')
    await outward.says('written')
    flood.write('20 22')
    await flood.says('sent 20 22')
    for (const bytes of [1, 2, 4, 19]) {
      stubs.write(`50 ${bytes}`)
      await stubs.says('sent ')
    }
    expect(await reach(guests[0], worldAddress, 80)).toBeNull()
    expect(await reach(guests[0], nextHop, 8442)).toBeNull()
    expect(await seen()).toBe(atCap)
    expect(await used(1)).toEqual({ cap: limits.limitBytes, rescue: 0 })
  })

  test('beyond the cap answers within SSH from outside alone, up to their allowance to the byte', async () => {
    // Goal: the owner rescues the work and no more, also across runs of nft and a table that was lost and restored from
    // samples.
    const { host, world, guests, program, reach, apply } = network
    const flood = await program(guests[1], floodCode)
    const before = await seen()
    flood.write('400 0')
    await flood.says('sent ')
    await spent(2)
    const atCap = await settled(before + limits.limitBytes - 2 * packetBytesMax)
    expect(atCap - before).toBeLessThanOrEqual(limits.limitBytes)

    expect(await reach(world, '10.88.0.2', 22)).toBe(worldAddress)
    expect(await reach(host, '10.88.0.2', 22)).toBe(nextHop)
    const client = await program(world, clientCode)
    client.write('30000')
    await received(client, 30_000)
    await apply(rulesetText(capped))
    const sample = await used(2)
    expect(sample.rescue).toBeGreaterThan(30_000)
    // The daemon restores a lost table in one transaction: otherwise packets would pass in between.
    const restored = capped.vms.map((vm, at) =>
      at === 1 ? { ...vm, usedBytes: sample.cap, rescueUsedBytes: sample.rescue } : { ...vm, usedBytes: vm.limitBytes },
    )
    await apply(`flush ruleset\n${rulesetText({ ...capped, vms: restored })}`)
    expect(await used(2)).toEqual(sample)
    client.write('20000')
    await received(client, 50_000)
    client.write('1000000')
    await until('the allowance is spent', 60_000, async () => {
      await apply(rulesetText(capped))
      return (await used(2)).rescue === limits.rescueLimitBytes
    })
    // Answers to the host stayed on the host.
    const rescued = (await settled(atCap + limits.rescueLimitBytes - 4 * packetBytesMax + 1)) - atCap
    expect(rescued).toBeLessThanOrEqual(limits.rescueLimitBytes)
    expect(await reach(world, '10.88.0.2', 22)).toBeNull()
    expect(await reach(guests[1], worldAddress, 80)).toBeNull()
    expect((await seen()) - atCap).toBe(rescued)
  })

  test('an allowance of nothing is none', async () => {
    // Goal: an operator who wants the cap alone has it.
    const { world, reach, apply } = network
    const none = capped.vms.map(vm => ({ ...vm, limitBytes: 0, rescueLimitBytes: 0, usedBytes: 0 }))
    await apply(`flush ruleset\n${rulesetText({ ...capped, vms: none })}`)
    const before = await seen()
    expect(await reach(world, '10.88.0.2', 22)).toBeNull()
    expect(await seen()).toBe(before)
  })
})
