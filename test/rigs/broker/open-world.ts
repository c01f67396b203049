// Opens the Internet of a test (world.ts) behind a link of the caller's network namespace, and counts what comes out.
// Effects: a network namespace, a process; ended with the stack.

import { join } from 'node:path'
import { createNetns, type Netns } from '../../../scripts/rigs/netns.ts'
import { run } from '../../../src/linux/command.ts'
import { WORLD } from './world-facts.ts'

export type World = {
  readonly netns: Netns
  /** Messages that reached servers of the world. */
  readonly seen: () => Promise<readonly string[]>
  /**
   * Packets that came to the world, beside allowed connections and the broker's questions: source, destination,
   * protocol and number of packets.
   */
  readonly leaked: () => Promise<readonly string[]>
}

export type WorldLink = {
  /** Name of the caller's end. */
  readonly name: string
  /** Addresses of the world's end, with their prefix lengths. */
  readonly addresses: readonly string[]
  /** Next hops of the world, one for each family; empty if its network is the caller's. */
  readonly nextHops: readonly string[]
}

export async function openWorld(stack: AsyncDisposableStack, link: WorldLink): Promise<World> {
  const netns = stack.use(createNetns())
  const bounds = { timeoutMs: 60_000, outputBytesMax: 100_000 }
  await run(['ip', 'link', 'add', link.name, 'type', 'veth', 'peer', 'name', 'w0', 'netns', netns.name], bounds)
  // The caller's kernel would ask for routers, at times of its own, and each question would count as a leak.
  const quiet = `/proc/sys/net/ipv6/conf/${link.name}/router_solicitations`
  await run(['sh', '-c', `echo 0 >${quiet}`], bounds)
  const own = [WORLD.resolver, ...WORLD.addresses].map(address => `ip address add ${address}/32 dev lo`)
  const onLink = link.addresses.map(address =>
    address.includes(':') ? `ip -6 address add ${address} dev w0 nodad` : `ip address add ${address} dev w0`,
  )
  const routes = link.nextHops.map(hop => `ip ${hop.includes(':') ? '-6 ' : ''}route add default via ${hop}`)
  const text = [...own, `ip -6 address add ${WORLD.v6}/128 dev lo nodad`, 'ip link set w0 up', ...onLink, ...routes]
  await netns.run(['sh', '-ec', text.join('\n')])
  await netns.run(['nft', '--file', '-'], { stdin: counters })
  const server = Bun.spawn(netns.argv([process.execPath, join(import.meta.dir, 'world.ts')]), { stdout: 'pipe' })
  stack.defer(() => server.kill('SIGKILL'))
  await lineOf(server.stdout)
  return {
    netns,
    seen: async () => JSON.parse(await netns.run(['curl', '--silent', `http://${WORLD.control}:9/`])),
    leaked: async () => {
      const listed = await netns.run(['nft', '--json', 'list', 'table', 'inet', 'world'])
      return leaksIn(listed)
    },
  }
}

/** Before any decision of the kernel: also packets that no socket takes. */
const counters = `table inet world {
  set leaks4 {
    type ipv4_addr . ipv4_addr . inet_proto
    flags dynamic
    size 1000
  }
  set leaks6 {
    type ipv6_addr . ipv6_addr . inet_proto
    flags dynamic
    size 1000
  }
  chain arriving {
    type filter hook prerouting priority -300;
    iifname != w0 accept
    ip daddr { 21.0.0.10, 21.0.0.11 } tcp dport { 22, 80, 443 } accept
    ip6 daddr ${WORLD.v6} tcp dport 443 accept
    ip daddr ${WORLD.resolver} udp dport 53 accept
    tcp sport 22 accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    update @leaks4 { ip saddr . ip daddr . ip protocol counter }
    update @leaks6 { ip6 saddr . ip6 daddr . meta l4proto counter }
  }
}
`

/** An element of a set in the output of `nft --json`. */
type LeakElement = {
  readonly elem: { readonly val: { readonly concat: readonly string[] }; readonly counter: Counter }
}
type Counter = { readonly packets: number }

function leaksIn(listed: string): string[] {
  const sets: { set?: { elem?: LeakElement[] } }[] = JSON.parse(listed).nftables
  return sets
    .flatMap(({ set }) => set?.elem ?? [])
    .map(({ elem }) => `${elem.val.concat.join(' ')}: ${elem.counter.packets}`)
    .sort()
}

/** The next line; what there is of it if the stream ends. */
export async function lineOf(stream: ReadableStream<Uint8Array>): Promise<string> {
  const reader = stream.getReader()
  const decoder = new TextDecoder()
  let line = ''
  try {
    for (;;) {
      const { value, done } = await reader.read()
      line += decoder.decode(value, { stream: true })
      if (done || line.includes('\n')) return line
    }
  } finally {
    reader.releaseLock()
  }
}
