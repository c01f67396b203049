// Bounds on connections to the appliance's own services, and on QEMU's users, in the kernel. Needs root; namespaces of
// its own.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { hostPlan } from '../../../scripts/rigs/guest/two-guests.ts'
import { createNetns, type Netns, needsRoot } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { hostTableText } from '../../../src/vm/network/host-table.plan.ts'

const [hostAddress, port] = ['192.0.2.1', 8441]
const clientAddresses = ['192.0.2.2', '192.0.2.3']
const { services, uids } = hostPlan()

describe.if(needsRoot('the test of connections'))('connections', () => {
  let host: Netns
  let world: Netns
  let server: Bun.Subprocess<'ignore', 'pipe', 'inherit'>

  /**
   * Number of accepted connections, out of `count` that a process of its own opens from these addresses. It ends when
   * both sides have closed them: an open one keeps its place, however long its client is gone.
   */
  const held = async (from: readonly string[], count: number): Promise<number> => {
    const code = `const net = require('node:net'); const up = []; let settled = 0, closed = 0
      const addresses = ${JSON.stringify(from)}
      for (let i = 0; i < ${count}; i += 1) {
        const socket = net.connect({ host: '${hostAddress}', port: ${port}, localAddress: addresses[i % addresses.length] })
        const done = () => { settled += 1; if (settled === ${count}) for (const each of up) each.end() }
        const gone = () => { closed += 1; if (closed === ${count}) { console.log(up.length); process.exit() } }
        socket.on('connect', () => { up.push(socket); done() }).on('error', done).on('close', gone)
      }`
    return Number(await world.run([process.execPath, '-e', code]))
  }

  /**
   * Fails when more than `max` connections are ever accepted, or when it stays at fewer: the kernel clears closed
   * connections up some milliseconds later, and only so many at a time.
   */
  const holds = (max: number, from: readonly string[], count: number) =>
    until(`${max} of ${count} connections from ${from.join(' and ')}`, 60_000, async () => {
      const accepted = await held(from, count)
      expect(accepted).toBeLessThanOrEqual(max)
      return accepted === max
    })

  beforeAll(async () => {
    host = createNetns()
    world = createNetns()
    await host.run(['ip', 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', world.name])
    await host.run(['ip', 'address', 'add', `${hostAddress}/24`, 'dev', 'up0'])
    await host.run(['ip', 'link', 'set', 'up0', 'up'])
    for (const address of clientAddresses) await world.run(['ip', 'address', 'add', `${address}/24`, 'dev', 'eth0'])
    await world.run(['ip', 'link', 'set', 'eth0', 'up'])
    const code = `Bun.listen({ hostname: '0.0.0.0', port: ${port}, socket: { data() {} } }); console.log('up')`
    const argv = host.argv([process.execPath, '-e', code])
    server = Bun.spawn(argv, { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' })
    await server.stdout.getReader().read()
    await host.run(['nft', '--file', '-'], { stdin: hostTableText(hostPlan()) })
  }, 60_000)
  afterAll(async () => {
    server.kill('SIGKILL')
    await server.exited
    world.close()
    host.close()
  })

  // Goal: one address gets its share, all together theirs; closing frees places; a new ruleset keeps the counts.
  test('to the services', async () => {
    const [first = '', ...others] = clientAddresses
    expect(await held([first], 20)).toBe(services.perAddressMax)
    await holds(services.allMax, [first, ...others], 20)
    await host.run(['nft', '--file', '-'], { stdin: hostTableText(hostPlan()) })
    await holds(services.perAddressMax, [first], 20)
    await holds(services.perAddressMax, [first], services.perAddressMax)
  })

  // Goal: one network that one client may have all of gets its part, whatever number of its addresses ask.
  test('to the services, of one network', async () => {
    // A counter that is there keeps its limit.
    const load = async (perNetworkMax: number) => {
      await host.run(['nft', 'flush', 'set', 'inet', hostPlan().table, 'connections_n4'])
      await host.run(['nft', '--file', '-'], {
        stdin: hostTableText(hostPlan({ services: { ...services, perNetworkMax } })),
      })
    }
    await load(5)
    await holds(5, clientAddresses, 20)
    await load(services.perNetworkMax)
    await holds(services.allMax, clientAddresses, 20)
  })

  // Goal: a QEMU that a guest has taken over reaches nothing, on this host or beyond, whatever protocol; others do.
  test('of the users of QEMU', async () => {
    await host.run(['ip', 'link', 'set', 'lo', 'up'])
    const reaches = async (uid: number, target: string, seconds: number) => {
      const code = `exec 3<>/dev/tcp/${target}/${port} && echo in`
      const argv = ['timeout', `${seconds}`, 'setpriv', `--reuid=${uid}`, '--clear-groups', 'bash', '-c', code]
      return (await Bun.spawn(host.argv(argv), { stdout: 'pipe', stderr: 'ignore' }).stdout.text()).trim() === 'in'
    }
    // A dropped packet gives no answer: the attempt (bash alone) has a second, and what gets through has what it needs.
    for (const uid of [uids.min, uids.max])
      for (const target of ['127.0.0.1', hostAddress])
        expect([uid, target, await reaches(uid, target, 1)]).toEqual([uid, target, false])
    for (const uid of [uids.min - 1, uids.max + 1])
      expect([uid, await reaches(uid, '127.0.0.1', 60)]).toEqual([uid, true])
  })
})
