// The firewall as the kernel runs it, between namespaces. Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { gatewayVmHostPlan } from '../../../scripts/rigs/gateway/guests.ts'
import { createGuestNetwork, type GuestNetwork } from '../../../scripts/rigs/guest/network.ts'
import { guest, nextHop, nextHopV6, objectsOf, plan, planV6 } from '../../../scripts/rigs/guest/two-guests.ts'
import { createNetns, type Netns, needsRoot } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { hostTableText } from '../../../src/vm/network/host-table.plan.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'

describe.if(needsRoot('the firewall test'))('the firewall in a network of namespaces', () => {
  let network: GuestNetwork
  let host: Netns
  let inside: Netns
  let world: Netns
  let guests: GuestNetwork['guests']
  const { reach, apply, quotas } = {
    reach: (...to: Parameters<GuestNetwork['reach']>) => network.reach(...to),
    apply: (text: string) => network.apply(text),
    quotas: () => network.quotas(),
  }

  beforeAll(async () => {
    network = await createGuestNetwork()
    host = network.host
    inside = network.inside
    world = network.world
    guests = network.guests
    await network.listen(world, '0.0.0.0', 80)
    await network.listen(guests[1], '0.0.0.0', 22)
    await network.listen(guests[1], '0.0.0.0', 80)
    await network.listen(host, '0.0.0.0', 8442)
    await network.listen(host, '0.0.0.0', 8441)
  })

  afterAll(() => network?.[Symbol.dispose]())

  /** Sent by the kernel of the namespace of VMs. */
  const resets = async () => Number(/TcpOutRsts +(\d+)/.exec(await inside.run(['nstat', '-asz', 'TcpOutRsts']))?.[1])

  test('a guest reaches the world under the address of the host', async () => {
    // Goal: outbound works and is masqueraded.
    expect(await reach(guests[0], '192.0.2.9', 80)).toBe('192.0.2.1')
  })

  test('the world reaches a guest by SSH only, and sees its real address', async () => {
    // Goal: port 22 passes unproxied, another open port does not.
    expect(await reach(world, '10.88.0.2', 22)).toBe('192.0.2.9')
    expect(await reach(world, '10.88.0.2', 80)).toBeNull()
  })

  test('guests have no path to each other', async () => {
    // Goal: not even to port 22, which the world may reach.
    expect(await reach(guests[0], '10.88.0.2', 22)).toBeNull()
  })

  test('of the host a guest sees the port of the gateway on its next hop and nothing else', async () => {
    // Goal: service A and the other addresses of the host are closed to guests; the host itself may probe a guest.
    expect(await reach(guests[0], nextHop, 8442)).toBe('10.88.0.1')
    expect(await reach(guests[0], nextHop, 8441)).toBeNull()
    expect(await reach(guests[0], '192.0.2.1', 8442)).toBeNull()
    expect(await reach(host, '10.88.0.2', 22)).toBe(nextHop)
  })

  test('a spoofed source goes nowhere', async () => {
    // Goal: another address, another MAC, and IPv6 are dropped by the guard, before anything counts or routes them.
    await guests[0].run(['ip', 'address', 'add', '10.88.0.77/32', 'dev', 'eth0'])
    expect(await reach(guests[0], '192.0.2.9', 80, { localAddress: '10.88.0.77' })).toBeNull()
    await guests[0].run(['ip', 'link', 'set', 'eth0', 'address', '02:00:00:00:00:99'])
    expect(await reach(guests[0], '192.0.2.9', 80)).toBeNull()
    await guests[0].run(['ip', 'link', 'set', 'eth0', 'address', guest(1).mac])
    expect(await reach(guests[0], '192.0.2.9', 80)).toBe('192.0.2.1')
    await inside.run(['ip', 'address', 'add', 'fd00::1/64', 'dev', guest(1).tap, 'nodad'])
    await guests[0].run(['ip', 'address', 'add', 'fd00::2/64', 'dev', 'eth0', 'nodad'])
    // Dropped by the guard and not only further on: what it drops is not counted.
    const counted = (await quotas())[guest(1).tap]
    expect(await reach(guests[0], 'fd00::1', 8443)).toBeNull()
    expect((await quotas())[guest(1).tap]).toBe(counted)
  })

  test('applying again keeps what was counted; the cap cuts off one guest alone; a new table resumes from the sample', async () => {
    // Goal: quotas never count back, are enforced by the kernel, and are restored after a flush.
    const used = (await quotas())[guest(1).tap] ?? 0
    expect(used).toBeGreaterThan(0)
    await apply(rulesetText(plan()))
    expect((await quotas())[guest(1).tap]).toBe(used)
    const capped = plan({
      vms: plan().vms.map((vm, index) => ({ ...vm, limitBytes: index === 0 ? used : vm.limitBytes })),
    })
    await apply(rulesetText(capped))
    expect(await reach(guests[0], '192.0.2.9', 80)).toBeNull()
    expect(await reach(guests[1], '192.0.2.9', 80)).toBe('192.0.2.1')
    await inside.run(['nft', 'flush', 'ruleset'])
    await apply(
      rulesetText({ ...capped, vms: capped.vms.map((vm, index) => ({ ...vm, usedBytes: index === 0 ? used : 0 })) }),
    )
    expect(await reach(guests[0], '192.0.2.9', 80)).toBeNull()
    expect((await quotas())[guest(1).tap]).toBeGreaterThanOrEqual(used)
  })

  test('a guest whose cap is spent is told at once, at a bounded rate, and nothing leaves', async () => {
    // Goal: a program fails with an error; before, a connection that was open stood still for ever, and a new one for
    // two minutes. Segments of many attempts are not answered one by one.
    await apply(rulesetText(plan()))
    const open = await network.program(guests[0], openConnectionCode)
    await open.says('connected')
    const spent = plan({
      vms: plan().vms.map((vm, index) => ({ ...vm, limitBytes: index === 0 ? 1 : vm.limitBytes, usedBytes: 1 })),
    })
    await inside.run(['nft', 'flush', 'ruleset'])
    await apply(rulesetText(spent))
    const left = await network.countArrivals(world)
    open.write('more')
    await open.says('ECONNRESET')
    const refused = ['timeout', '60', 'bash', '-c', 'exec 3<>/dev/tcp/192.0.2.9/80']
    const { stderr, exitCode } = Bun.spawnSync(guests[0].argv(refused))
    expect([exitCode, stderr.toString()]).toEqual([1, expect.stringContaining('No route to host')])
    const told = async () =>
      Number(/IcmpInDestUnreachs +(\d+)/.exec(await guests[0].run(['nstat', '-asz', 'IcmpInDestUnreachs']))?.[1])
    await inside.run(['sh', '-c', 'echo 0 > /proc/sys/net/ipv4/icmp_ratelimit'])
    const before = await told()
    const startedMs = performance.now()
    const flood = await network.program(guests[0], datagramsCode)
    flood.write('192.0.2.9')
    await flood.says('sent')
    expect((await told()) - before).toBeLessThan(20 + 5 * Math.ceil((performance.now() - startedMs) / 1_000))
    expect(await network.countArrivals(world)).toBe(left)
    expect(await reach(guests[1], '192.0.2.9', 80)).toBe('192.0.2.1')
  })

  test('goal: what a guest sends to this host while its table is gone arrives once that is back', async () => {
    // No kernel on the way refuses it: sessions of this host and streams of the gateway outlive a flush.
    await apply(rulesetText(plan()))
    const open = await network.program(guests[0], askingCode)
    await open.says('connected')
    const before = await resets()
    await inside.run(['nft', 'flush', 'ruleset'])
    open.write('7')
    const sent = ['ss', '--no-header', '--tcp', '--info', 'dport = 8442']
    await until('it is sent again and again', 60_000, async () => {
      expect(await resets()).toBe(before)
      return /retrans:\d+\/[3-9]/.test(await guests[0].run(sent))
    })
    await apply(rulesetText(plan()))
    expect(await open.says('got')).toBe('got 7')
  })

  test('a removed guest leaves no object behind and loses its way', async () => {
    // Goal: quota, counter and set elements go in the same transaction that forgets the VM.
    await apply(rulesetText(plan({ vms: plan().vms.slice(1), removed: objectsOf(guest(1).tap) })))
    const ruleset = await inside.run(['nft', 'list', 'ruleset'])
    expect(ruleset).not.toContain(guest(1).tap)
    expect(ruleset).toContain(guest(2).tap)
  })
})

test.if(needsRoot('the test of names'))('goal: every rule loads on a host that has no names of protocols', async () => {
  // Goal: a bare Debian has no netbase, and so neither /etc/protocols nor /etc/services; its VMs have their network.
  using netns = createNetns()
  const hidden = 'for file in protocols services; do test ! -e /etc/$file || mount --bind /dev/null /etc/$file; done'
  const load = (text: string) => netns.run(['sh', '-euc', `${hidden}; exec nft --file -`], { stdin: text })
  expect(await netns.run(['sh', '-euc', `${hidden}; getent protocols tcp || echo unknown`])).toBe('unknown\n')
  const vms = planV6().vms.map(vm => ({ ...vm, published: { limitBytes: 300, usedBytes: 0 } }))
  await load(rulesetText(planV6({ names: { port: 53, isStale: false }, publicPort: 443, vms })))
  await load(hostTableText({ ...gatewayVmHostPlan(), nextHopV6, sourceV6: { kind: 'masquerade' }, dropOthers: true }))
})

/** Connects to the gateway, then asks for as many bytes as each line says. */
const askingCode = `const socket = require('node:net').connect(8442, '${nextHop}')
  socket.once('data', () => { console.log('connected'); socket.on('data', data => console.log('got ' + data.length)) })
  socket.on('error', error => console.log('got ' + error.code))
  console.log('up')
  for await (const line of console) socket.write(line)`

/** Connects, then sends each line that it gets and prints the error that ends the connection. */
const openConnectionCode = `const socket = require('node:net').connect(80, '192.0.2.9', () => console.log('connected'))
  socket.on('error', error => console.log(error.code))
  console.log('up')
  for await (const line of console) socket.write(line)`

const datagramsCode = `const s = await Bun.udpSocket({ socket: { error() {} } }); console.log('up')
  for await (const line of console) { for (let i = 0; i < 2000; i += 1) try { s.send('x', 7, line) } catch {}; console.log('sent') }`
