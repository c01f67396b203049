import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { systemClock } from '../../src/base/clock.ts'
import { Fault } from '../../src/base/fault.ts'
import { networkProblem, planNetwork, resolvConf } from '../../src/guest/network.plan.ts'
import { createNetworking } from '../../src/guest/network.ts'
import { makeSandbox, type Sandbox } from '../rigs/guest-root.ts'

const network = { address: '10.9.0.7', gateway: '10.9.0.1', mtuBytes: 1420, resolvers: ['10.9.0.1', '192.0.2.53'] }

// Goal: the commands are exactly these: a /32, an on-link gateway, a default route through it.
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

// Goal: an address that the schema's pattern lets through but no host can have is refused by name.
test.each([
  [{ address: '999.1.1.1' }, 'network.address: not an IPv4 host address'],
  [{ address: '10.9.0.07' }, 'network.address: not an IPv4 host address'],
  [{ address: '0.0.0.0' }, 'network.address: not an IPv4 host address'],
  [{ gateway: '224.0.0.1' }, 'network.gateway: not an IPv4 host address'],
  [{ gateway: '10.9.0.1.1' }, 'network.gateway: not an IPv4 host address'],
  [{ gateway: '10.9.0.7' }, 'network.gateway: the same as the address'],
  [{ resolvers: ['10.9.0.1', '.......'] }, 'network.resolvers: not an IPv4 host address'],
])('%j', (change, problem) => {
  expect(networkProblem({ ...network, ...change })).toBe(problem)
})

describe('applied', () => {
  // Goal: the same addresses again, by a restarted agent too, change nothing; others do before a claim and are refused after it.
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
