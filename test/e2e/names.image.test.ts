// An instance that reaches the world by name alone: a real VM, in a network namespace with a resolver of the test's.

import { expect, test } from 'bun:test'
import { decode, encode } from 'dns-packet'
import { createAppliance } from '../../scripts/rigs/appliance.ts'
import { createCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { hostAddress, openUplink, worldAddress } from '../../scripts/rigs/network/tap-wire.ts'

const timeoutMs = 600_000
const [listed, other] = ['198.51.100.7', '198.51.100.8']
const script = `cat /etc/resolv.conf
  getent ahostsv4 evil.example || echo blocked $?
  timeout 3 bash -c 'exec 3<>/dev/tcp/${listed}/80'; timeout 3 bash -c 'exec 3<>/dev/tcp/${other}/80'
  echo asking; getent ahostsv4 crates.example | grep STREAM
  timeout 12 bash -c 'exec 3<>/dev/tcp/crates.example/80'; timeout 3 bash -c 'exec 3<>/dev/tcp/${other}/80'; echo done`

/** Destinations of IPv4 packets. */
const destinationsOf = (packets: readonly Uint8Array[]) =>
  new Set(packets.map(packet => packet.subarray(16, 20).join('.')))

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'goal: an instance asks this host, which opens what a listed name leads to and nothing else',
      async () => {
        const network = `allow_names = ["crates.example"]\nresolvers = ["${hostAddress}"]\npool_v6 = "2001:db8:88::/64"`
        const lines = { listen: 'inference = "[::]:8442"', inference: 'placement = "host"', network }
        using uplink = await openUplink()
        const asked: string[] = []
        await using _ = await nameServer(asked)
        Bun.spawnSync(['ip', 'route', 'add', '198.51.100.0/24', 'via', worldAddress])
        await using appliance = await createAppliance('', 'vm', undefined, '', lines)
        await appliance.start()
        const acme = await createCustomer(appliance, 'acme')
        const { name, hostname } = (await acme.create()).body.data
        await acme.reached(name, 'ready', 300_000)
        uplink.left()
        const { stdout } = await appliance.ssh(hostname, [script])
        expect(stdout).toContain('nameserver 169.254.88.1\nnameserver fd73:7472:6f6e:67::1\n')
        expect(stdout).toContain('blocked 2\n')
        expect(stdout.split('asking\n')[1]).toMatch(new RegExp(`^${listed.replaceAll('.', '\\.')} +STREAM.*\ndone\n$`))
        // Packets sent before the query did not leave.
        expect(destinationsOf(uplink.left())).toEqual(new Set([listed]))
        expect(new Set(asked)).toEqual(new Set(['A crates.example', 'AAAA crates.example']))
        const { names } = await appliance.admin<{ names: unknown }>('status')
        expect(names).toMatchObject({ entries: 1, addresses: 1, listening: ['169.254.88.1', 'fd73:7472:6f6e:67::1'] })
        expect(appliance.log()).not.toContain('"level":"error"')
        await acme.remove(name)
        await acme.reached(name, 'terminated', 60_000)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)

/** Has an IPv4 address for each name. */
async function nameServer(asked: string[]): Promise<AsyncDisposable> {
  const socket = await Bun.udpSocket({
    hostname: hostAddress,
    port: 53,
    socket: {
      data: (server, bytes, port, from) => {
        const { id, questions = [] } = decode(bytes)
        const [question] = questions
        if (question === undefined || id === undefined) return
        asked.push(`${question.type} ${question.name}`)
        const answers =
          question.type === 'A' ? [{ type: 'A', name: question.name, ttl: 300, data: listed } as const] : []
        server.send(encode({ type: 'response', id, flags: 0x0180, questions, answers }), port, from)
      },
    },
  })
  return { [Symbol.asyncDispose]: async () => socket.close() }
}
