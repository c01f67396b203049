// The guard's table beside the appliance's, as the kernel runs them, between namespaces. Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { plugIn } from '../../../scripts/rigs/guest/network.ts'
import { gateway, guest, plan } from '../../../scripts/rigs/guest/two-guests.ts'
import { createNetns, type Netns, needsRoot } from '../../../scripts/rigs/netns.ts'
import { acceptedMark, rulesetText } from '../../../src/vm/network/nft.plan.ts'

const guardText = readFileSync(join(import.meta.dir, '../../../scripts/systemd/strongroom-guard.nft'), 'utf8')
/** The guests of this test hang on veth pairs, which carry packets between namespaces; taps would need a QEMU. */
const guardOfVeth = guardText.replaceAll('ifkind "tun"', 'ifkind "veth"')

// A host with two guests and an uplink: four namespaces joined by veth pairs that are named as taps would be.
describe.if(needsRoot('the guard test'))('the guard in a network of namespaces', () => {
  let host: Netns
  let world: Netns
  let guests: [Netns, Netns]
  const servers: Bun.Subprocess[] = []

  const listen = async (where: Netns, port: number) => {
    const code = `Bun.listen({ hostname: '0.0.0.0', port: ${port}, socket: {
      open(s) { s.write('hello') }, data() {} } }); console.log('up')`
    const argv = where.argv([process.execPath, '-e', code])
    const server = Bun.spawn(argv, { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' })
    servers.push(server)
    await server.stdout.getReader().read()
  }

  /** Whether there is a way through. */
  const reaches = async (from: Netns, address: string, port: number): Promise<boolean> => {
    const code = `const timer = setTimeout(() => { console.log('-'); process.exit() }, 700)
      require('node:net').connect({ host: '${address}', port: ${port} })
        .on('data', d => { console.log(String(d)); process.exit() })
        .on('error', () => { console.log('-'); process.exit() })`
    return (await from.run([process.execPath, '-e', code])).trim() === 'hello'
  }

  /** Every way that a packet from or to a guest could take, and whether it is open. */
  const ways = async () => {
    const [netns, two] = guests
    const [worldToGuest, guestToWorld, guestToGateway, hostToGuest, guestToHost, guestToGuest] = await Promise.all([
      reaches(world, guest(1).address, 22),
      reaches(netns, '192.0.2.9', 80),
      reaches(netns, gateway, 8442),
      reaches(host, guest(1).address, 22),
      reaches(netns, '192.0.2.1', 8441),
      reaches(netns, guest(2).address, 22),
    ])
    expect(await reaches(two, gateway, 8442)).toBe(guestToGateway)
    return { worldToGuest, guestToWorld, guestToGateway, hostToGuest, guestToHost, guestToGuest }
  }
  const allowed = {
    worldToGuest: true,
    guestToWorld: true,
    guestToGateway: true,
    hostToGuest: true,
    guestToHost: false,
    guestToGuest: false,
  }
  const nothing = {
    worldToGuest: false,
    guestToWorld: false,
    guestToGateway: false,
    hostToGuest: false,
    guestToHost: false,
    guestToGuest: false,
  }
  const everything = {
    worldToGuest: true,
    guestToWorld: true,
    guestToGateway: true,
    hostToGuest: true,
    guestToHost: true,
    guestToGuest: true,
  }

  const apply = (text: string) => host.run(['nft', '--file', '-'], { stdin: text })
  const removeAppliance = () => apply('delete table inet strongroom\n')

  beforeAll(async () => {
    host = createNetns()
    world = createNetns()
    guests = [createNetns(), createNetns()]
    await host.run(['sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward'])
    for (const [index, netns] of guests.entries()) await plugIn(host, netns, index + 1)
    await host.run(['ip', '-batch', '-'], {
      stdin: [
        `link add uplink type veth peer name eth0 netns ${world.name}`,
        'link set uplink up',
        'address add 192.0.2.1/24 dev uplink',
      ].join('\n'),
    })
    await world.run(['ip', '-batch', '-'], {
      stdin: ['link set eth0 up', 'address add 192.0.2.9/24 dev eth0', 'route add 10.88.0.0/24 via 192.0.2.1'].join(
        '\n',
      ),
    })
    await Promise.all([
      listen(world, 80),
      listen(guests[0], 22),
      listen(guests[1], 22),
      listen(host, 8442),
      listen(host, 8441),
    ])
  })

  afterAll(() => {
    for (const server of servers) server.kill('SIGKILL')
    for (const netns of [...(guests ?? []), world, host]) netns?.close()
  })

  test('the mark of the guard is the mark of the plan', () => {
    // Goal: two files that must agree do.
    const hex = (value: number) => `0x${(value >>> 0).toString(16).padStart(8, '0')}`
    expect(guardText.match(/meta mark & 0x[0-9a-f]{8} == 0 drop/g)?.length).toBe(3)
    for (const [, mask] of guardText.matchAll(/mark & (0x[0-9a-f]{8}) == 0 drop/g)) expect(mask).toBe(hex(acceptedMark))
    for (const [, mask] of guardText.matchAll(/set meta mark & (0x[0-9a-f]{8})/g)) expect(mask).toBe(hex(~acceptedMark))
  })

  test('without either table everything is open', async () => {
    // Goal: what is closed below is closed by the rules, not by the network of this test.
    expect(await ways()).toEqual(everything)
  })

  test('an interface of the same name that is no tap is left alone', async () => {
    // Goal: an operator's own interface whose name begins like a tap's keeps working.
    await apply(guardText)
    expect(await ways()).toEqual(everything)
  })

  test('without the table of the appliance a guest reaches nothing and nobody reaches it', async () => {
    // Goal: closed is what holds when the daemon has not been there yet, or someone has deleted its table.
    await apply(guardOfVeth)
    expect(await ways()).toEqual(nothing)
    expect(await reaches(world, '192.0.2.1', 8441)).toBe(true)
    expect(await reaches(host, '192.0.2.9', 80)).toBe(true)
  })

  test('with it there a guest reaches what that table accepts, and nothing more', async () => {
    // Goal: the guard takes nothing away from what the appliance allows.
    await apply(rulesetText(plan()))
    expect(await ways()).toEqual(allowed)
    await apply(guardOfVeth)
    expect(await ways()).toEqual(allowed)
  })

  test("a mark that others set or keep does not open the guard's way", async () => {
    // Goal: only packets that our table accepts in the same hook count; marks of others bring nothing back.
    await apply(`table inet other {
      chain marking { type filter hook prerouting priority mangle; meta mark set 0xffffffff; }
    }\n`)
    expect(await ways()).toEqual(allowed)
    await removeAppliance()
    expect(await ways()).toEqual(nothing)
    await apply('delete table inet other\n')
  })

  test('a connection that was open stays closed until the table is back', async () => {
    // Goal: connection tracking does not carry a flow past the guard.
    expect(await ways()).toEqual(nothing)
    await apply(rulesetText(plan()))
    expect(await ways()).toEqual(allowed)
  })
})
