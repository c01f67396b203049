import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { makeSandbox, type Sandbox } from '../../scripts/rigs/guest/root.ts'
import { systemClock } from '../../src/base/clock.ts'
import { Fault } from '../../src/base/fault.ts'
import type { Network } from '../../src/contract/vm/network.ts'
import { networkProblem, planNetwork, resolvConf } from '../../src/guest/network.plan.ts'
import { createNetworking } from '../../src/guest/network.ts'

const network = { address: '10.9.0.7', gateway: '10.9.0.1', mtuBytes: 1420, resolvers: ['10.9.0.1', '192.0.2.53'] }

// Goal: the commands are exactly these: a /32, an on-link next hop, a default route through it.
test('the plan', () => {
  expect(planNetwork(network, 'eth0').map(argv => argv.join(' '))).toEqual([
    'ip link set dev eth0 mtu 1420 up',
    'ip -4 address flush dev eth0',
    'ip address replace 10.9.0.7/32 dev eth0',
    'ip route replace 10.9.0.1/32 dev eth0 scope link src 10.9.0.7',
    'ip route replace default via 10.9.0.1 dev eth0 src 10.9.0.7',
  ])
  expect(resolvConf(network)).toBe('nameserver 10.9.0.1\nnameserver 192.0.2.53\n')
})

const v6 = { address: '2001:db8::7', gateway: 'fd00::1', gatewayMac: '0a:00:00:00:00:01' }
const { address: _address, gateway: _gateway, ...shared } = network
const planV6 = [
  'ip -6 address flush dev eth0',
  'ip -6 address replace 2001:db8::7/128 dev eth0 nodad',
  'ip -6 neighbour replace fd00::1 lladdr 0a:00:00:00:00:01 dev eth0 nud permanent',
  'ip -6 route replace fd00::1/128 dev eth0 src 2001:db8::7',
  'ip -6 route replace default via fd00::1 dev eth0 src 2001:db8::7',
]
const planned = (wanted: Network) => planNetwork(wanted, 'eth0').map(argv => argv.join(' '))

// Goal: IPv6 comes with a fixed neighbour and no address of the kernel's own, before the link is up; IPv4 is the same
// with and without.
test('the plan with IPv6, beside IPv4 and alone', () => {
  const none = 'ip link set dev eth0 addrgenmode none'
  expect(planned({ ...network, v6 })).toEqual([none, ...planned(network), ...planV6])
  expect(planned({ ...shared, v6 })).toEqual([none, 'ip link set dev eth0 mtu 1420 up', ...planV6])
})

// Goal: what cannot be is refused by name, and a guest without any address is none.
test.each([
  [{}, 'network.address: missing for both families'],
  [{ address: '10.9.0.7' }, 'network.gateway: requires network.address'],
  [{ gateway: '10.9.0.7', v6 }, 'network.gateway: requires network.address'],
  [{ v6: { ...v6, address: ':::' } }, 'network.v6.address: not an IPv6 host address'],
  [{ v6: { ...v6, address: 'fe80::7' } }, 'network.v6.address: not an IPv6 host address'],
  [{ v6: { ...v6, gateway: 'ff02::1' } }, 'network.v6.gateway: not an IPv6 host address'],
  [{ v6: { ...v6, gateway: '::1' } }, 'network.v6.gateway: not an IPv6 host address'],
  [{ v6: { ...v6, gateway: v6.address } }, 'network.v6.gateway: the same as the address'],
  [{ v6, mtuBytes: 1279 }, 'network.mtuBytes: below 1280, which IPv6 needs'],
])('IPv6: %j', (change, problem) => {
  expect(networkProblem({ ...shared, ...change })).toBe(problem)
})

// Goal: an address that the schema's pattern lets through but no host can have is refused by name.
test.each([
  [{ address: '999.1.1.1' }, 'network.address: not an IPv4 host address'],
  [{ address: '10.9.0.07' }, 'network.address: not an IPv4 host address'],
  [{ address: '0.0.0.0' }, 'network.address: not an IPv4 host address'],
  [{ gateway: '224.0.0.1' }, 'network.gateway: not an IPv4 host address'],
  [{ gateway: '10.9.0.1.1' }, 'network.gateway: not an IPv4 host address'],
  [{ gateway: '10.9.0.7' }, 'network.gateway: the same as the address'],
  [{ resolvers: ['10.9.0.1', '.......'] }, 'network.resolvers: not a host address'],
])('%j', (change, problem) => {
  expect(networkProblem({ ...network, ...change })).toBe(problem)
})

describe('applied', () => {
  // Goal: the same addresses again, also from a restarted agent, change nothing; others do before a claim and are
  // refused after it.
  test('once', async () => {
    await using sandbox = await makeSandbox()
    addInterface(sandbox, 'eth0')
    const first = makeNetworking(sandbox)
    expect(await first.networking.apply(network, { claimed: false })).toEqual({ ok: true })
    expect(first.commands).toEqual(planNetwork(network, 'eth0'))
    expect(fs.readFileSync(sandbox.paths.resolvConf, 'utf8')).toBe(resolvConf(network))

    const second = makeNetworking(sandbox)
    expect(await second.networking.apply(network, { claimed: true })).toEqual({ ok: true })
    expect(second.commands).toEqual([])

    const other = { ...network, address: '10.9.0.8' }
    expect(await second.networking.apply(other, { claimed: true })).toMatchObject({ ok: false, code: 'claimed' })
    expect(second.commands).toEqual([])
    expect(await second.networking.apply(other, { claimed: false })).toEqual({ ok: true })
    expect(second.commands).toEqual(planNetwork(other, 'eth0'))
  })

  // Goal: a command that fails leaves nothing recorded, so that the same request is tried anew.
  test('again after a failure', async () => {
    await using sandbox = await makeSandbox()
    addInterface(sandbox, 'eth0')
    const failing = makeNetworking(sandbox, { failAt: 3 })
    await expect(failing.networking.apply(network, { claimed: false })).rejects.toThrow('planted')
    const working = makeNetworking(sandbox)
    expect(await working.networking.apply(network, { claimed: false })).toEqual({ ok: true })
    expect(working.commands).toHaveLength(5)
  })

  // Goal: only an interface with a device counts, it may come late, and two are not guessed between.
  test('to the one interface', async () => {
    await using sandbox = await makeSandbox()
    fs.mkdirSync(join(sandbox.paths.interfaces, 'lo'))
    const none = makeNetworking(sandbox, { interfaceWaitMs: 0 })
    await expect(none.networking.apply(network, { claimed: false })).rejects.toThrow('network: no interface')
    const { networking, commands } = makeNetworking(sandbox)
    const applied = networking.apply(network, { claimed: false })
    addInterface(sandbox, 'ens3')
    expect(await applied).toEqual({ ok: true })
    expect(commands).toEqual(planNetwork(network, 'ens3'))
    addInterface(sandbox, 'ens4')
    const change = { ...network, address: '10.9.0.8' }
    await expect(networking.apply(change, { claimed: false })).rejects.toThrow('more than one interface: ens3, ens4')
  })
})

function addInterface(sandbox: Sandbox, name: string): void {
  fs.mkdirSync(join(sandbox.paths.interfaces, name, 'device'), { recursive: true })
}

function makeNetworking(sandbox: Sandbox, { failAt = 0, interfaceWaitMs = 10_000 } = {}) {
  const commands: (readonly string[])[] = []
  const networking = createNetworking({
    paths: sandbox.paths,
    owner: sandbox.owner,
    clock: systemClock,
    interfaceWaitMs,
    run: async argv => {
      commands.push(argv)
      if (commands.length === failAt) throw new Fault('host.command_failed', 'planted')
      return { stdout: '', stderr: '' }
    },
  })
  return { networking, commands }
}
