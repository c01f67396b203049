// How long a client that only waits does not know that its gateway VM is gone. Effects: network namespaces; needs root.

import { hostTableText } from '../../../src/vm/network/host-table.plan.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'
import { createGuestNetwork, hostAddress } from '../guest/network.ts'
import { guest } from '../guest/two-guests.ts'
import type { Netns } from '../netns.ts'
import { gatewayVmHostPlan, gatewayVmPlan, listenPort, servicePort } from './guests.ts'

const source = new URL('../../../src', import.meta.url).pathname

/** A client that waits in silence and says when its connection ends, and how. */
export const clientCode = (address: string, port: number) => `
  const s = require('node:net').connect(${port}, '${address}')
  s.on('data', () => console.log('up')).on('error', e => console.log('error ' + e.code)).on('close', () => console.log('closed'))`

/** As the daemon does it once nothing of the VM is left. */
export const restCode = (address: string, inside: Netns) => `
  const { resetClientsOf } = await import('${source}/host/network/reset-connections.ts')
  const { hereNetns, netnsAt } = await import('${source}/host/network/netns.ts')
  const random = n => crypto.getRandomValues(new Uint8Array(n))
  console.log('up')
  for await (const _ of console) {
    let count = 0
    for (const netns of [netnsAt('/run/netns/${inside.name}'), hereNetns])
      count += await resetClientsOf('${address}', { netns, random, timeoutMs: 60000 })
    console.log('reset ' + count)
  }`

/** From the moment at which the firewall leads nobody to the VM any more. */
export async function measureVmDeath(): Promise<number> {
  using network = await createGuestNetwork(5)
  const { host, inside, world } = network
  const [vm] = network.guests
  await network.listen(vm, '0.0.0.0', servicePort, 'a ')
  await network.apply(rulesetText(gatewayVmPlan()))
  await network.applyHost(hostTableText(gatewayVmHostPlan()))
  const client = await network.program(world, clientCode(hostAddress, listenPort))
  const daemon = await network.program(host, restCode(guest(1).address, inside))
  await inside.run(['ip', 'link', 'set', guest(1).tap, 'down'])
  const change = { vms: { 1: { opened: false } }, service: { address: null } }
  await network.apply(rulesetText(gatewayVmPlan(change)))
  await network.applyHost(hostTableText(gatewayVmHostPlan(change)))
  const startedMs = performance.now()
  daemon.write('go')
  const said = await client.says('error')
  if (said !== 'error ECONNRESET') throw new Error(`a client of a VM that is gone: ${said}`)
  return performance.now() - startedMs
}
