// The network as the owner of a VM has it: bytes of one TCP stream from a guest to the world, as the appliance forwards
// them and as a router without any rule does. In network namespaces; needs root.

import { hostTableText } from '../../../src/vm/network/host-table.plan.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'
import { createGuestNetwork, type GuestNetwork, plugIn, worldAddress } from '../../rigs/guest/network.ts'
import { guest, hostPlan, nextHop, plan, unspent } from '../../rigs/guest/two-guests.ts'
import { createNetns, type Netns } from '../../rigs/netns.ts'
import { percentile } from '../in-netns.ts'

const rounds = 7
const roundMs = 2_000
const port = 5_201
const plainGuest = 3

export type StreamRates = { readonly plainMbPerS: number; readonly oursMbPerS: number }

/** Medians, taken in turn. Segments leave a guest one by one, as from its tap: nothing is counted in larger pieces. */
export async function measureStreamRates(): Promise<StreamRates> {
  using network = await createGuestNetwork()
  using plain = createNetns()
  const { host, world } = network
  await plugIn({ host, inside: host }, plain, plainGuest)
  const { tap, address } = guest(plainGuest)
  await host.run(['ip', 'route', 'replace', `${address}/32`, 'dev', tap, 'src', nextHop])
  await network.program(world, sinkCode)
  const [ours] = network.guests
  const vms = [1, 2].map(n => ({
    ...guest(n),
    ...unspent,
    limitBytes: 2 ** 50,
    opened: true,
    network: 'world' as const,
  }))
  const found: Record<keyof StreamRates, number[]> = { plainMbPerS: [], oursMbPerS: [] }
  for (let turn = 0; turn < rounds; turn += 1) {
    await network.applyHost('flush ruleset\n')
    found.plainMbPerS.push(await rateFrom(network, plain))
    await network.apply(rulesetText(plan({ vms })))
    await network.applyHost(hostTableText(hostPlan()))
    found.oursMbPerS.push(await rateFrom(network, ours))
  }
  return { plainMbPerS: percentile(found.plainMbPerS, 50), oursMbPerS: percentile(found.oursMbPerS, 50) }
}

async function rateFrom(network: GuestNetwork, from: Netns): Promise<number> {
  const sender = await network.program(from, senderCode)
  return Number((await sender.says('sent ')).slice('sent '.length)) / 1_000_000 / (roundMs / 1_000)
}

const sinkCode = `
  Bun.listen({ hostname: '0.0.0.0', port: ${port}, socket: { data() {} } })
  console.log('up')`

/** Counts what the kernel has taken, which is at most a buffer more than what has arrived. */
const senderCode = `
  const chunk = new Uint8Array(262144)
  let sent = 0
  const endMs = performance.now() + ${roundMs}
  const end = () => { console.log('sent ' + sent); process.exit() }
  const pump = s => {
    for (let n = 1; n > 0; sent += Math.max(0, n)) { if (performance.now() > endMs) end(); n = s.write(chunk) }
  }
  const s = await Bun.connect({ hostname: '${worldAddress}', port: ${port}, socket: { data() {}, drain: pump } })
  console.log('up')
  pump(s)
  setTimeout(end, ${roundMs})`
