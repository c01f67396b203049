// Bounds on connections to the appliance's own services, open and new, and on QEMU's users, in the kernel. Needs root;
// namespaces of its own.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { hostPlan } from '../../../scripts/rigs/guest/two-guests.ts'
import { createNetns, type Netns, needsRoot } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { hostTableText } from '../../../src/vm/network/host-table.plan.ts'

const [hostAddress, port, tlsPort] = ['192.0.2.1', 8441, 8442]
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

  /** Bounds on open connections that the tests of rates do not meet. */
  const roomy = { perAddressMax: 20, perNetworkMax: 10_000, allMax: 10_000 }
  const forget = async () => {
    for (const set of ['rates_v4', 'rates_n4', 'newcomers_v4', 'connections_v4', 'connections_n4'])
      await host.run(['nft', 'flush', 'set', 'inet', hostPlan().table, set])
  }

  type Begun = { readonly began: number; readonly refused: number; readonly tookMs: number }

  /** Begins connections one after the other, as fast as it goes, and closes each at once; one at least. */
  const begins = async (from: string, { secure = false, forMs }: { secure?: boolean; forMs: number }) => {
    const code = `const how = require('node:${secure ? 'tls' : 'net'}'); let began = 0, refused = 0
      const startedMs = Date.now()
      const next = () => {
        const to = { host: '${hostAddress}', port: ${secure ? tlsPort : port}, localAddress: '${from}' }
        const socket = how.connect({ ...to, rejectUnauthorized: false })
        socket.on('${secure ? 'secureConnect' : 'connect'}', () => { began += 1; socket.end() }).resume()
          .on('error', () => { refused += 1 })
          .on('close', () => {
            const tookMs = Date.now() - startedMs
            if (tookMs <= ${forMs}) return next()
            console.log(JSON.stringify({ began, refused, tookMs })); process.exit()
          })
      }
      next()`
    return JSON.parse(await world.run([process.execPath, '-e', code])) as Begun
  }

  const handshakeMs = async (from: string) => (await begins(from, { secure: true, forMs: 0 })).tookMs

  /** A server for TLS, which counts the handshakes of each address. */
  const startTlsServer = async () => {
    const directory = mkdtempSync(join(tmpdir(), 'srt-tls-server-'))
    const deps = { kind: 'clients' as const, stateDir: directory, nowMs: systemClock.nowMs, random: systemRandom }
    const pair = await (await openAuthority({ ...deps, names: ['localhost'] })).issue(['localhost'], 1)
    const code = `Bun.listen({ hostname: '0.0.0.0', port: ${tlsPort}, tls: ${JSON.stringify(pair)}, socket: {
        handshake(socket, isDone) { if (isDone) console.log(socket.remoteAddress) },
        data() {}, error() {},
      } }); console.log('up')`
    const child = Bun.spawn(host.argv([process.execPath, '-e', code]), { stdout: 'pipe', stderr: 'inherit' })
    let text = ''
    const reading = (async () => {
      const decoder = new TextDecoder()
      for await (const bytes of child.stdout) text += decoder.decode(bytes, { stream: true })
    })()
    await until('the server listens', 60_000, () => text.includes('up'))
    return {
      handshakes: (address: string) => text.split('\n').filter(line => line === address).length,
      [Symbol.asyncDispose]: async () => {
        child.kill('SIGKILL')
        await child.exited
        await reading
        rmSync(directory, { recursive: true })
      },
    }
  }

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

  const load = (newPerSecondMax: number) =>
    host.run(['nft', '--file', '-'], {
      stdin: hostTableText(hostPlan({ services: { ...services, ...roomy, newPerSecondMax } })),
    })

  // Goal: an address that begins connection after connection gets its rate, so the others cost the server no TLS
  // handshake, while another address connects at once. A ruleset that is applied again gives no new burst.
  test('to the services, by how many begin each second', async () => {
    const [flooder = '', other = ''] = clientAddresses
    const rate = 5
    const burst = roomy.perAddressMax
    await forget()
    await load(rate)
    await using tls = await startTlsServer()
    const flood = begins(flooder, { secure: true, forMs: 4_000 })
    await until('the flood has used up its burst', 60_000, () => tls.handshakes(flooder) >= burst)
    await load(rate)
    const waits = await Promise.all(Array.from({ length: 5 }, () => handshakeMs(other)))
    const { began, refused, tookMs } = await flood
    expect(Math.max(...waits)).toBeLessThan(5_000)
    expect(began).toBeGreaterThanOrEqual(burst)
    expect(began).toBeLessThanOrEqual(burst + Math.ceil((tookMs / 1000) * rate) + 1)
    expect(refused).toBeGreaterThan(began)
    await until('the server has seen each handshake', 60_000, () => tls.handshakes(other) === 5)
    expect(tls.handshakes(flooder)).toBe(began)
  }, 180_000)

  // Goal: strangers who fill the memory of the rates evict no address that has an entry, and do not get around the
  // rate: all addresses without an entry share one bucket.
  test('to the services, of more addresses than have entries', async () => {
    const [first = '', second = ''] = clientAddresses
    const { table } = hostPlan()
    await forget()
    await load(1)
    expect((await begins(first, { forMs: 0 })).began).toBe(1)
    const strangers = Array.from({ length: 65_534 }, (_, n) => `10.1.${n >> 8}.${n & 255}`)
    await host.run(['nft', '--file', '-'], {
      stdin: `add element inet ${table} rates_v4 { ${strangers.join(', ')} }`,
    })
    // The share of eight addresses, 160 at once and 8 a second, is for all that have no entry.
    const { began, refused, tookMs } = await begins(second, { forMs: 3_000 })
    expect(began).toBeGreaterThanOrEqual(8 * roomy.perAddressMax)
    expect(began).toBeLessThanOrEqual(8 * roomy.perAddressMax + Math.ceil((tookMs / 1000) * 8) + 1)
    expect(refused).toBeGreaterThan(0)
    expect((await begins(first, { forMs: 0 })).began).toBe(1)
  }, 180_000)

  // Goal: 4,000 sources of one wide network, which the client has here as a forger would, add a 16th of the entries at
  // most; other networks connect, and so does an address of that network which has an entry.
  test('to the services, of one wide network whose addresses are new', async () => {
    const [first = ''] = clientAddresses
    const { table } = hostPlan()
    await world.run(['ip', 'route', 'add', 'local', '10.9.0.0/16', 'dev', 'lo'])
    await world.run(['ip', 'link', 'set', 'lo', 'up'])
    await host.run(['ip', 'route', 'add', '10.9.0.0/16', 'via', first, 'dev', 'up0'])
    await forget()
    await load(10_000)
    const strangers = Array.from({ length: 4_000 }, (_, n) => `10.9.${n >> 8}.${n & 255}`)
    const startedMs = performance.now()
    const accepted = await held(strangers, strangers.length)
    const most = 2_048 + Math.ceil(((performance.now() - startedMs) / 1000) * 32) + 1
    expect(accepted).toBeGreaterThanOrEqual(2_048)
    expect(accepted).toBeLessThanOrEqual(most)
    const entries = await host.run(['nft', 'list', 'set', 'inet', table, 'rates_v4'])
    expect(entries.match(/10\.9\.\d+\.\d+/g)?.length).toBe(accepted)
    expect((await begins(first, { forMs: 0 })).began).toBe(1)
    expect((await begins('10.9.0.0', { forMs: 0 })).began).toBe(1)
  }, 180_000)

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
