// A host with an uplink, and two guests in the namespace of VMs: five namespaces, joined as the appliance joins its own
// two, guests by veth pairs with the names of taps. Needs root.

import { linkNames } from '../../../src/base/link-names.ts'
import {
  addLinkArgv,
  hostCommands,
  hostRuleCommands,
  hostSettings,
  insideCommands,
  insideRuleCommands,
  insideSettings,
  parseRules,
  type VmLinkPlan,
  vmRouteCommands,
} from '../../../src/host/network/vm-link.ts'
import { namespaceFile } from '../../../src/host/network/vm-namespace.ts'
import { hostTableText } from '../../../src/vm/network/host-table.plan.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'
import { createNetns, type Netns } from '../netns.ts'
import { until } from '../until.ts'
import { guest, hostPlan, link, nextHop, nextHopV6, plan } from './two-guests.ts'

export type GuestNetwork = Disposable & {
  readonly host: Netns
  /** Where the guests' taps are. */
  readonly inside: Netns
  readonly world: Netns
  /** Two, or as many as were asked for. */
  readonly guests: readonly [Netns, Netns, ...Netns[]]
  /** Applies text to the guests' firewall. */
  readonly apply: (text: string) => Promise<string>
  /** Applies text to the firewall of the host. */
  readonly applyHost: (text: string) => Promise<string>
  /** Bytes used, by the quota's name. */
  readonly quotas: () => Promise<Record<string, number>>
  /** Bytes of IPv4 that have come to the world or to a guest, fragment by fragment. */
  readonly countArrivals: (where: Netns) => Promise<number>
  /** Sends each client its address, after a greeting if any; then as many more bytes as a line asks for. */
  readonly listen: (where: Netns, address: string, port: number, greeting?: string) => Promise<void>
  /** The address that the server saw us as, or null when there is no way through. */
  readonly reach: (from: Netns, address: string, port: number, local?: Local) => Promise<string | null>
  /** The targets that answer, all tried at once. */
  readonly reachAny: (from: Netns, targets: readonly Target[]) => Promise<Target[]>
  /** A program that runs until the end; resolves once it has said `up`. */
  readonly program: (where: Netns, code: string) => Promise<Program>
}

/** Where a connection comes from. */
type Local = { readonly localAddress?: string; readonly localPort?: number }

export type Target = readonly [address: string, port: number]

export type Program = {
  readonly write: (line: string) => void
  /** The first line that begins so, now or later. */
  readonly says: (start: string) => Promise<string>
}

export const worldAddress = '192.0.2.9'
export const hostAddress = '192.0.2.1'

/** With the rulesets of `plan()` and `hostPlan()` in force, and the host forwarding. */
export async function createGuestNetwork(guestCount = 2): Promise<GuestNetwork> {
  using undo = new DisposableStack()
  const host = undo.use(createNetns())
  const inside = undo.use(createNetns())
  const world = undo.use(createNetns())
  const create = () => undo.use(createNetns())
  const guests = [create(), create(), ...Array.from({ length: guestCount - 2 }, create)] as const
  const apply = (text: string) => inside.run(['nft', '--file', '-'], { stdin: text })
  const applyHost = (text: string) => host.run(['nft', '--file', '-'], { stdin: text })
  await host.run(['sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward'])
  await joinNamespaces({ host, inside }, link)
  await apply(rulesetText(plan()))
  await applyHost(hostTableText(hostPlan()))
  for (const [index, netns] of guests.entries()) await plugIn({ host, inside }, netns, index + 1)
  await host.run(['ip', '-batch', '-'], {
    stdin: [
      `link add uplink type veth peer name eth0 netns ${world.name}`,
      'link set uplink up',
      `address add ${hostAddress}/24 dev uplink`,
    ].join('\n'),
  })
  const route = `route add 10.88.0.0/24 via ${hostAddress}`
  await world.run(['ip', '-batch', '-'], {
    stdin: ['link set eth0 up', `address add ${worldAddress}/24 dev eth0`, route].join('\n'),
  })
  for (const where of [world, ...guests]) await where.run(['nft', '--file', '-'], { stdin: arrivals })
  for (const where of [host, inside, world, ...guests]) await linksAreOpen(where)
  const kept = undo.move()
  const program = async (where: Netns, code: string) => {
    const { child, ...running } = startProgram(where, code)
    kept.defer(() => child.kill('SIGKILL'))
    await running.says('up')
    return running
  }
  return {
    host,
    inside,
    world,
    guests,
    apply,
    applyHost,
    program,
    quotas: async () => {
      const { nftables } = JSON.parse(await inside.run(['nft', '--json', 'list', 'quotas'])) as {
        nftables: { quota?: { name: string; used: number } }[]
      }
      return Object.fromEntries(nftables.flatMap(({ quota }) => (quota ? [[quota.name, quota.used]] : [])))
    },
    countArrivals: async where => {
      const { nftables } = JSON.parse(await where.run(['nft', '--json', 'list', 'counters'])) as {
        nftables: { counter?: { name: string; bytes: number } }[]
      }
      return nftables.find(({ counter }) => counter?.name === 'arrived')?.counter?.bytes ?? 0
    },
    listen: async (where, address, port, greeting = '') => {
      await program(where, serverCode(address, port, greeting))
    },
    reach,
    reachAny,
    [Symbol.dispose]: () => kept.dispose(),
  }
}

/** A link is up before the kernel has a queue for it, and until then what is sent by it is lost. */
async function linksAreOpen(where: Netns): Promise<void> {
  await until(`the links of ${where.name} are open`, 30_000, async () => {
    const links = JSON.parse(await where.run(['ip', '-json', 'link', 'show', 'up'])) as {
      ifname: string
      operstate: string
    }[]
    return links.every(({ ifname, operstate }) => ifname === 'lo' || operstate === 'UP')
  })
}

/** Datagrams to port 9 are dropped, so that nobody answers that nobody listens. */
const arrivals = `add table inet seen
  add counter inet seen arrived
  add chain inet seen pre { type filter hook prerouting priority -450; }
  add rule inet seen pre iifname "eth0" meta nfproto ipv4 counter name arrived
  add rule inet seen pre iifname "eth0" udp dport 9 drop
`

/**
 * Joins guest `n` with its default route, as a tap would. No segmentation offload, like a guest's tap: packets leave
 * with their own sizes.
 */
export async function plugIn({ host, inside }: Pick<GuestNetwork, 'host' | 'inside'>, netns: Netns, n: number) {
  const { tap, mac, address } = guest(n)
  await inside.run(['ip', '-batch', '-'], {
    stdin: [
      `link add ${tap} type veth peer name eth0 netns ${netns.name}`,
      `link set ${tap} up`,
      `address add ${nextHop}/32 dev ${tap}`,
      `route add ${address}/32 dev ${tap} src ${nextHop}`,
      `neighbour add proxy ${nextHop} dev ${tap}`,
    ].join('\n'),
  })
  await inside.run(['sh', '-c', `echo 0 > /proc/sys/net/ipv4/neigh/${tap}/proxy_delay`])
  const { host: name } = linkNames(link.tapPrefix)
  const routes = vmRouteCommands({ link: name, nextHop, nextHopV6, address, addressV6: null })
  await host.run(['ip', '-batch', '-'], { stdin: routes.join('\n') })
  await netns.run(['ip', '-batch', '-'], {
    stdin: [
      `link set eth0 address ${mac} gso_max_segs 1 up`,
      `address add ${address}/32 dev eth0`,
      `route add ${nextHop} dev eth0 scope link`,
      `route add default via ${nextHop}`,
    ].join('\n'),
  })
}

/** As vm-namespace.ts does, between namespaces that are no mounts of the appliance's. */
export async function joinNamespaces(
  { host, inside }: Pick<GuestNetwork, 'host' | 'inside'>,
  link: VmLinkPlan,
): Promise<void> {
  const names = linkNames(link.tapPrefix)
  const batch = (where: Netns, commands: readonly string[], family = '-0') =>
    where.run(['ip', ...(family === '-0' ? [] : [family]), '-batch', '-'], { stdin: commands.join('\n') })
  const write = (where: Netns, settings: readonly (readonly [string, string])[]) =>
    where.run(['sh', '-ec', settings.map(([path, value]) => `echo ${value} > ${path}`).join('\n')])
  const isThere = (await host.run(['cat', '/proc/net/dev'])).includes(`${names.host}:`)
  if (!isThere) await host.run(addLinkArgv(names, namespaceFile(inside.name)))
  await write(host, hostSettings(link))
  await write(inside, insideSettings(link))
  const nextHops = [
    ['-4', link.nextHop],
    ['-6', link.nextHopV6],
  ] as const
  for (const [family, address] of nextHops) {
    if (address === null) continue
    const rules = async (where: Netns) => parseRules(await where.run(['ip', family, '-json', 'rule', 'show']))
    await batch(host, hostRuleCommands(await rules(host), names.host), family)
    await batch(inside, insideRuleCommands(await rules(inside), { nextHop: address, link: names.inside }), family)
  }
  await batch(inside, insideCommands(link))
  await batch(host, hostCommands(link))
}

const serverCode = (address: string, port: number, greeting: string) => `
  const pump = s => { while (s.data.left > 0) {
    const sent = s.write(new Uint8Array(Math.min(s.data.left, 65536))); if (sent <= 0) return; s.data.left -= sent } }
  Bun.listen({ hostname: '${address}', port: ${port}, socket: {
    open(s) { s.data = { left: 0 }; s.write('${greeting}' + s.remoteAddress + '\\n') },
    data(s, bytes) { s.data.left += Number(bytes.toString()) || 0; pump(s) }, drain: pump } })
  console.log('up')`

/**
 * A dropped packet is silence: so many turns of the program that connects, so that one that others keep from running
 * has not waited meanwhile. Once the kernels have connected, the way is open, and the server is waited for.
 */
const [turnMs, silentTurns, patientTurns] = [50, 14, 300]
const reachTimeoutMs = 60_000

async function reach(from: Netns, address: string, port: number, local: Local = {}): Promise<string | null> {
  const options = JSON.stringify({ host: address, port, ...local })
  // It ends when both sides have closed the connection: nothing of it is under way, or has a place, afterwards.
  const code = `let turns = ${silentTurns}, seen = '-'
    const end = () => { console.log(seen); process.exit() }
    setInterval(() => { turns -= 1; if (turns === 0) end() }, ${turnMs})
    const socket = require('node:net').connect(${options})
    socket.on('connect', () => { turns = ${patientTurns} })
      .once('data', d => { seen = String(d).trim(); socket.end() })
      .on('error', end).on('close', end)`
  const seen = (await from.run([process.execPath, '-e', code], { timeoutMs: reachTimeoutMs })).trim()
  return seen === '-' ? null : seen
}

async function reachAny(from: Netns, targets: readonly Target[]): Promise<Target[]> {
  const code = `const targets = ${JSON.stringify(targets)}, found = targets.map(() => false); let left = targets.length
    let turns = ${silentTurns}
    const end = () => { console.log(JSON.stringify(found)); process.exit() }
    setInterval(() => { turns -= 1; if (turns === 0) end() }, ${turnMs})
    const open = new Set()
    targets.forEach(([host, port], at) => {
      const socket = require('node:net').connect({ host, port })
      socket.on('connect', () => { open.add(at); turns = ${patientTurns} })
        .once('data', () => { found[at] = true; socket.end() })
        .on('error', () => {})
        .on('close', () => {
          left -= 1
          if (left === 0) end()
          if (open.delete(at) && open.size === 0) turns = ${silentTurns}
        })
    })`
  const found = JSON.parse(await from.run([process.execPath, '-e', code], { timeoutMs: reachTimeoutMs })) as boolean[]
  return targets.filter((_, at) => found[at])
}

function startProgram(where: Netns, code: string) {
  const child = Bun.spawn(where.argv([process.execPath, '-e', code]), {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const reader = child.stdout.getReader()
  let text = ''
  const says = async (start: string) => {
    for (;;) {
      const found = text
        .split('\n')
        .slice(0, -1)
        .findIndex(line => line.startsWith(start))
      if (found >= 0) {
        const lines = text.split('\n')
        const [line = ''] = lines.splice(found, 1)
        text = lines.join('\n')
        return line
      }
      const { value, done } = await reader.read()
      if (done) throw new Error(`ended with ${JSON.stringify(text)} before ${start}`)
      text += Buffer.from(value).toString()
    }
  }
  const write = (line: string) => {
    child.stdin.write(`${line}\n`)
    child.stdin.flush()
  }
  return { child, says, write }
}
