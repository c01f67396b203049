// A VM and the Internet as two network namespaces, with the filter, the resolver and the broker of an instance. The
// caller is in the VM's namespace, as root (scripts/rigs/netns.ts). Closes what it starts.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createNetns, type Netns } from '../../../scripts/rigs/netns.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createLogger } from '../../../src/base/log.ts'
import type { EgressPolicy } from '../../../src/contract/http/egress-policy.ts'
import { createDaemon } from '../../../src/guest/daemon.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { createReach, type Reach } from '../../../src/guest/reach/reach.ts'
import { plainEnv, run } from '../../../src/linux/command.ts'
import { WORLD } from './world-facts.ts'

const repo = join(import.meta.dir, '..', '..', '..')
const reachProgram = join(repo, 'guest-image/recipes/instance/root/usr/lib/strongroom/reach')
const bounds = { timeoutMs: 60_000, outputBytesMax: 1_000_000 }
export const [agentUid, gatewayUid, brokerUid] = [1000, 900, 901]

export type TestVm = {
  readonly directory: string
  readonly world: Netns
  readonly reach: Reach
  readonly set: (policy: EgressPolicy) => Promise<void>
  /** Runs a command as a user, with the names that the VM resolves. Rejects if it fails. */
  readonly as: (uid: number, argv: readonly string[], stdin?: string) => Promise<string>
  /** The same, started: the caller ends it. */
  readonly start: (uid: number, argv: readonly string[]) => Bun.Subprocess<'pipe', 'pipe', 'inherit'>
  /** Messages that reached servers of the world. */
  readonly seen: () => Promise<readonly string[]>
  /** Packets that came to the world beside those of allowed connections and of the broker's questions. */
  readonly leaked: () => Promise<number>
  readonly log: () => Promise<readonly Record<string, unknown>[]>
}

/** `claim`: of the instance, as far as /etc/hosts and the resolver need it. */
export async function startVm(
  stack: AsyncDisposableStack,
  inference: { readonly baseUrl: string; readonly address: string | null },
): Promise<TestVm> {
  const sh = (text: string) => run(['sh', '-ec', text], bounds)
  const directory = mkdtempSync(join(tmpdir(), 'sr-broker-'))
  stack.defer(() => rmSync(directory, { recursive: true, force: true }))
  await sh(`chmod 755 ${directory}`)
  const world = stack.use(createNetns())
  await sh(`ip link add eth0 type veth peer name w0 netns ${world.name}
    ip address add ${WORLD.vm}/24 dev eth0; ip -6 address add ${WORLD.vmV6}/64 dev eth0 nodad
    ip link set lo up; ip link set eth0 up`)
  const addresses = [WORLD.resolver, ...WORLD.addresses].map(address => `ip address add ${address}/32 dev lo`)
  await world.run([
    'sh',
    '-ec',
    `${addresses.join('\n')}
    ip -6 address add ${WORLD.v6}/128 dev lo nodad; ip address add 21.1.0.1/24 dev w0
    ip -6 address add 2600:1f18:1::1/64 dev w0 nodad; ip link set w0 up`,
  ])
  await sh('ip route add default via 21.1.0.1; ip -6 route add default via 2600:1f18:1::1')
  await world.run(['nft', '--file', '-'], { stdin: counters })
  const server = Bun.spawn(world.argv([process.execPath, join(import.meta.dir, 'world.ts')]), { stdout: 'pipe' })
  stack.defer(() => server.kill('SIGKILL'))
  await lineOf(server.stdout)

  const paths = guestPaths(directory)
  mkdirSync(join(directory, 'etc'))
  mkdirSync(join(paths.runDir, 'broker'), { recursive: true })
  await sh(`chown ${brokerUid}:${brokerUid} ${paths.runDir}/broker`)
  const network = { address: WORLD.vm, gateway: '21.1.0.1', resolvers: [WORLD.resolver], mtuBytes: 1500 }
  const v6 = { address: WORLD.vmV6, gateway: '2600:1f18:1::1', gatewayMac: '02:00:00:00:00:01' }
  writeFileSync(paths.networkRecord, JSON.stringify({ ...network, v6 }))
  const log = createLogger({ level: 'warn', sink: () => {}, nowMs: systemClock.nowMs })
  const system = { uid: 0, gid: 0 }
  const broker = createDaemon({
    ...{ name: 'broker', record: paths.brokerRecord, logDir: paths.logDir, runDir: null, owner: system },
    argv: [
      ...rightsOf(brokerUid, ['net_bind_service']),
      process.execPath,
      join(import.meta.dir, 'broker-program.ts'),
      paths.runDir,
    ],
    ...{ clock: systemClock, log, listen: 'later' },
  })
  stack.defer(() => broker.stop())
  const reach = createReach({ paths, system, brokerGid: brokerUid, reachProgram, broker, clock: systemClock, run })
  const names = { hostname: 'abcd1234.acme.agents.test', name: 'abcd1234', inference }
  // Before the first policy the names resolve as those of the test's own machine.
  const inVm = (uid: number, argv: readonly string[]) => [
    ...[
      'unshare',
      '--mount',
      'sh',
      '-ec',
      `for file in hosts resolv.conf; do
      [ ! -e ${directory}/etc/$file ] || mount --bind ${directory}/etc/$file /etc/$file; done; exec "$@"`,
    ],
    ...['sh', ...rightsOf(uid, []), ...argv],
  ]
  return {
    directory,
    world,
    reach,
    set: async policy => {
      const changed = await reach.change({ policy }, names, 30_000)
      if (!changed.ok) throw new Error(changed.message)
    },
    as: async (uid, argv, stdin = '') => (await run(inVm(uid, argv), { ...bounds, stdin })).stdout,
    start: (uid, argv) =>
      Bun.spawn(inVm(uid, argv), { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit', env: plainEnv }),
    seen: async () => JSON.parse(await world.run(['curl', '--silent', `http://${WORLD.control}:9/`])),
    leaked: async () => {
      const text = await world.run(['nft', '--json', 'list', 'counter', 'inet', 'world', 'leaked'])
      return JSON.parse(text).nftables.find((row: { counter?: object }) => row.counter !== undefined).counter.packets
    },
    log: async () => {
      const response = await fetch('http://broker/', { unix: `${paths.runDir}/broker/log.sock` })
      return ((await response.json()) as { rows: Record<string, unknown>[] }).rows
    },
  }
}

/** Before any decision of the kernel: also packets that no socket takes. */
const counters = `table inet world {
  counter leaked {}
  chain arriving {
    type filter hook prerouting priority -300;
    iifname != w0 accept
    ip daddr { 21.0.0.10, 21.0.0.11 } tcp dport { 22, 80, 443 } accept
    ip6 daddr ${WORLD.v6} tcp dport 443 accept
    ip daddr ${WORLD.resolver} udp dport 53 accept
    tcp sport 22 accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    counter name leaked
  }
}
`

function rightsOf(uid: number, rights: readonly string[]): [string, ...string[]] {
  const given = rights.map(right => `,+${right}`).join('')
  // Root keeps its rights, of which it has none in the filter.
  if (uid === 0) return ['env']
  return [
    'setpriv',
    ...[`--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--no-new-privs'],
    ...[`--inh-caps=-all${given}`, `--ambient-caps=-all${given}`, `--bounding-set=-all${given}`],
  ]
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
