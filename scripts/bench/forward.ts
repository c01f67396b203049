// Cost of the map to the gateway's VM: bytes from a VM to a client in the world, by this host's mapped port and by the
// VM's own address, through the same firewall. Namespaces stand for VM and world. Effects: needs root; namespaces,
// processes. As a program it prints its figures.

import { rulesetText } from '../../src/vm/network/nft.plan.ts'
import { gatewayVmPlan, listenPort, servicePort } from '../rigs/gateway/guests.ts'
import { createGuestNetwork, hostAddress } from '../rigs/guest/network.ts'
import { guest } from '../rigs/guest/two-guests.ts'
import type { Netns } from '../rigs/netns.ts'
import type { Figures } from './bench-report.ts'
import { percentile, round, type Say } from './in-netns.ts'

const rounds = 7
const durationMs = 1_000

/** `hostForwardRatio`: mapped against routed, medians of several rounds in turns. */
export async function measureForward(say: Say): Promise<Figures> {
  using network = await createGuestNetwork(5)
  const [vm] = network.guests
  // With packets of one segment, as a tap has them, packets queue here: 17 MiB/s in place of 300 on either path.
  await vm.run(['ip', 'link', 'set', 'eth0', 'gso_max_segs', '64'])
  await network.program(vm, sourceCode)
  await network.apply(rulesetText(gatewayVmPlan()))
  const measured = { mapped: [] as number[], routed: [] as number[] }
  for (let turn = 0; turn < rounds; turn += 1) {
    measured.mapped.push(await mibPerS(network.world, hostAddress, listenPort))
    measured.routed.push(await mibPerS(network.world, guest(1).address, servicePort))
    say(`mapped ${measured.mapped[turn]} MiB/s, routed ${measured.routed[turn]} MiB/s`)
  }
  const [mapped, routed] = [percentile(measured.mapped, 50), percentile(measured.routed, 50)]
  return {
    hostForwardRatio: { value: round(mapped / routed), unit: '', aim: { atLeast: 0.95 } },
    hostForwardMapped: { value: mapped, unit: 'MiB/s', aim: null, baseline: 'hostForwardRouted' },
    hostForwardRouted: { value: routed, unit: 'MiB/s', aim: null },
  }
}

/** Sends whatever a client takes. */
const sourceCode = `const chunk = new Uint8Array(262144)
  const pump = s => { while (s.write(chunk) === chunk.length); }
  Bun.listen({ hostname: '0.0.0.0', port: ${servicePort}, socket: { open: pump, drain: pump, data() {} } })
  console.log('up')`

async function mibPerS(from: Netns, address: string, port: number): Promise<number> {
  const code = `let bytes = 0, startMs = 0
    Bun.connect({ hostname: '${address}', port: ${port}, socket: { data(s, chunk) {
      const nowMs = performance.now()
      if (startMs === 0) startMs = nowMs; else bytes += chunk.length
      if (nowMs - startMs < ${durationMs}) return
      console.log(bytes / 1048576 / ((nowMs - startMs) / 1000)); process.exit() } } })`
  return round(Number(await from.run([process.execPath, '-e', code])))
}

if (import.meta.main) {
  const figures = await measureForward(line => void process.stderr.write(`${line}\n`))
  for (const [name, { value, unit }] of Object.entries(figures)) process.stdout.write(`${name} ${value} ${unit}\n`)
}
