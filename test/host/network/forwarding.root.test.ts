// Whether this host routes for others, as `doctor` sees it, in a namespace of its own.

import { expect, test } from 'bun:test'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { readForwarding } from '../../../src/host/network/forwarding.ts'
import { run } from '../../../src/linux/command.ts'

const timeoutMs = 20_000
const look = (family: 'ipv4' | 'ipv6' = 'ipv4') => readForwarding(family, 'sr-vms')

inOwnNetns(
  import.meta.path,
  () => {
    const sh = (text: string) => run(['sh', '-ec', text], { timeoutMs, outputBytesMax: 100_000 })

    test('goal: a host that forwards between its interfaces is told from one that does not', async () => {
      await sh('echo 0 > /proc/sys/net/ipv4/ip_forward')
      expect(look()).toEqual({ forwards: false, interfaces: [] })
      const addresses = {
        lan1: '192.0.2.1/25',
        lan2: '192.0.2.2/25',
        'sr-vms': '169.254.88.1/32',
        sriov0: '192.0.2.9/32',
      }
      for (const [name, address] of Object.entries(addresses)) {
        await sh(`ip link add ${name} type veth peer name ${name}p
          ip address add ${address} dev ${name}; ip link set ${name} up; ip link set ${name}p up`)
      }
      // The kernel finds a carrier a moment after the link is set up.
      const isUp = async (name: string) => (await sh(`ip -oneline link show ${name}`)).stdout.includes('state UP')
      await until('the links have a carrier', timeoutMs, async () =>
        (await Promise.all(Object.keys(addresses).map(isUp))).every(up => up),
      )
      await sh('echo 1 > /proc/sys/net/ipv4/ip_forward')
      expect(look()).toMatchObject({ forwards: true, interfaces: ['lan1', 'lan2', 'sriov0'] })
      await sh('echo 0 > /proc/sys/net/ipv6/conf/all/forwarding')
      expect(look('ipv6')).toMatchObject({ forwards: false, interfaces: [] })
      await sh('ip address add 2001:db8::1/64 dev lan1 nodad; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding')
      expect(look('ipv6')).toMatchObject({ forwards: true, interfaces: ['lan1'] })
    })
  },
  { timeoutMs: 90_000 },
)
