// IPv6 for the host, the world and the guests of network.ts, each side set up by the commands that a tap and a guest
// get. Needs root.

import { type GuestNetwork, hostAddress, joinNamespaces, worldAddress } from '../../../scripts/rigs/guest/network.ts'
import { guest, guestV6, link, nextHop, nextHopV6, poolV6 } from '../../../scripts/rigs/guest/two-guests.ts'
import type { Netns } from '../../../scripts/rigs/netns.ts'
import { planNetwork } from '../../../src/guest/network.plan.ts'
import { tapBatch, tapMac } from '../../../src/host/network/tap.ts'
import { vmRouteCommands } from '../../../src/host/network/vm-link.ts'
import { macOfLink } from '../network/frames.ts'

/** In no special range. */
export const worldV6 = '2a0f:ffff::9'
export const hostV6 = '2a0f:ffff::1'

const mtuBytes = 1500

/** No end asks who its neighbour is, so that what arrives is what was sent. `alone`: guests lose IPv4. */
export async function plugInV6({ host, inside, world, guests }: GuestNetwork, { alone = false } = {}): Promise<void> {
  for (const where of [host, inside, world, ...guests]) await where.run(['sh', '-c', quiet])
  await joinNamespaces({ host, inside }, { ...link, nextHopV6 })
  for (const [index, netns] of guests.entries()) {
    const { tap, mac, address } = guest(index + 1)
    const { addressV6 } = guestV6(index + 1)
    const v6 = { nextHop: nextHopV6, address: addressV6 }
    if (alone) await inside.run(['ip', 'address', 'flush', 'dev', tap])
    const batch = tapBatch({ name: tap, nextHop, address: alone ? null : address, v6, mac, mtuBytes })
    await inside.run(['ip', '-batch', '-'], { stdin: batch })
    const routes = vmRouteCommands({ link: 'sr-vms', nextHop, nextHopV6, address: null, addressV6 })
    await host.run(['ip', '-batch', '-'], { stdin: routes.join('\n') })
    if (alone) await netns.run(['ip', '-4', 'address', 'flush', 'dev', 'eth0'])
    const network = {
      ...(alone ? {} : { address, gateway: nextHop }),
      v6: { address: addressV6, gateway: nextHopV6, gatewayMac: tapMac },
      mtuBytes,
      resolvers: [],
    }
    for (const argv of planNetwork(network, 'eth0')) await netns.run(argv)
  }
  const macs = { host: await macOfLink(host, 'uplink'), world: await macOfLink(world, 'eth0') }
  await knows(host, 'uplink', { address: worldAddress, mac: macs.world })
  await knows(world, 'eth0', { address: hostAddress, mac: macs.host })
  await join(host, 'uplink', hostV6, { address: worldV6, mac: macs.world })
  await host.run(['ip', '-6', 'route', 'replace', 'default', 'via', worldV6])
  await join(world, 'eth0', worldV6, { address: hostV6, mac: macs.host })
  await world.run(['ip', '-6', 'route', 'replace', poolV6, 'via', hostV6])
}

type Peer = { readonly address: string; readonly mac: string }

async function join(where: Netns, device: string, address: string, peer: Peer) {
  await where.run(['ip', 'address', 'replace', `${address}/64`, 'dev', device, 'nodad'])
  await knows(where, device, peer)
}

async function knows(where: Netns, device: string, { address, mac }: Peer) {
  await where.run(['ip', 'neighbour', 'replace', address, 'lladdr', mac, 'dev', device, 'nud', 'permanent'])
}

/**
 * Without addresses of the kernel's own, which would send by themselves; the host forwards. The kernel repeats its
 * multicast reports within a millisecond instead of a second: else tests that count frames see them.
 */
const quiet = `cd /proc/sys/net/ipv6/conf
  for each in *; do echo 1 > $each/addr_gen_mode; echo 0 > $each/accept_dad; echo 0 > $each/accept_ra
    echo 1 > $each/mldv2_unsolicited_report_interval; done
  ip -6 address flush scope link
  echo 1 > all/forwarding`
