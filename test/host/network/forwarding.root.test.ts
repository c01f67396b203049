// Whether this host routes for others, as `doctor` sees it, in a namespace of its own.

import { expect, test } from 'bun:test'
import { plan } from '../../../scripts/rigs/guest/two-guests.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { lookAtForwarding, othersChain } from '../../../src/host/network/forwarding.ts'
import { run } from '../../../src/linux/command.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'

const timeoutMs = 5_000
const look = (family: 'ipv4' | 'ipv6' = 'ipv4') =>
  lookAtForwarding({ family, tapPrefix: 'sr', table: 'strongroom', timeoutMs })

inOwnNetns(
  import.meta.path,
  () => {
    const sh = (text: string, stdin = '') => run(['sh', '-ec', text], { stdin, timeoutMs, outputBytesMax: 100_000 })
    const apply = (text: string) => sh('nft --file -', text)

    test('goal: a host that forwards between its interfaces is told from one that does not', async () => {
      await sh('echo 0 > /proc/sys/net/ipv4/ip_forward')
      expect(await look()).toEqual({ forwards: false, interfaces: [], droppedBy: [], droppedByUs: false })
      const addresses = {
        lan1: '192.0.2.1/25',
        lan2: '192.0.2.2/25',
        sr0123456789: '169.254.88.1/32',
        sriov0: '192.0.2.9/32',
      }
      for (const [name, address] of Object.entries(addresses)) {
        await sh(`ip link add ${name} type veth peer name ${name}p
          ip address add ${address} dev ${name}; ip link set ${name} up; ip link set ${name}p up`)
      }
      await sh('echo 1 > /proc/sys/net/ipv4/ip_forward')
      expect(await look()).toMatchObject({ forwards: true, interfaces: ['lan1', 'lan2', 'sriov0'] })
      await sh('echo 0 > /proc/sys/net/ipv6/conf/all/forwarding')
      expect(await look('ipv6')).toMatchObject({ forwards: false, interfaces: [] })
      await sh('ip address add 2001:db8::1/64 dev lan1 nodad; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding')
      expect(await look('ipv6')).toMatchObject({ forwards: true, interfaces: ['lan1'] })
    })

    test('goal: what drops it is named, ours and that of others', async () => {
      await apply(rulesetText(plan()))
      expect(await look()).toMatchObject({ droppedBy: [], droppedByUs: false })
      await apply(rulesetText(plan({ dropOthers: true })))
      expect(await look()).toMatchObject({ droppedBy: [], droppedByUs: true })
      await apply('table ip filter { chain FORWARD { type filter hook forward priority filter; policy drop; }\n}\n')
      await apply('table ip6 filter { chain FORWARD { type filter hook forward priority filter; policy drop; }\n}\n')
      await apply(
        `table inet other { chain ${othersChain} { type filter hook input priority filter; policy drop; }\n}\n`,
      )
      expect((await look()).droppedBy).toEqual(['ip filter FORWARD'])
      expect((await look('ipv6')).droppedBy).toEqual(['ip6 filter FORWARD'])
    })
  },
  { timeoutMs: 30_000 },
)
