// A VM and the Internet as two network namespaces, with the filter, the resolver and the broker of an instance. The
// caller is in the VM's namespace, as root (scripts/rigs/netns.ts). Closes what it starts.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Netns } from '../../../scripts/rigs/netns.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createLogger } from '../../../src/base/log.ts'
import type { EgressPolicy } from '../../../src/contract/http/egress-policy.ts'
import { createDaemon } from '../../../src/guest/daemon.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { createReach, type Reach } from '../../../src/guest/reach/reach.ts'
import { plainEnv, run } from '../../../src/linux/command.ts'
import { openWorld, type World } from './open-world.ts'
import { WORLD } from './world-facts.ts'

const repo = join(import.meta.dir, '..', '..', '..')
const reachProgram = join(repo, 'guest-image/recipes/instance/root/usr/lib/strongroom/reach')
const bounds = { timeoutMs: 60_000, outputBytesMax: 1_000_000 }
export const [agentUid, gatewayUid, brokerUid] = [1000, 900, 901]

export type TestVm = Pick<World, 'seen' | 'leaked'> & {
  readonly directory: string
  readonly world: Netns
  readonly reach: Reach
  readonly set: (policy: EgressPolicy) => Promise<void>
  /** Runs a command as a user, with the names that the VM resolves. Rejects if it fails. */
  readonly as: (uid: number, argv: readonly string[], stdin?: string) => Promise<string>
  /** The same, started: the caller ends it. */
  readonly start: (uid: number, argv: readonly string[]) => Bun.Subprocess<'pipe', 'pipe', 'inherit'>
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
  const world = await openWorld(stack, {
    ...{ name: 'eth0', addresses: ['21.1.0.1/24', '2600:1f18:1::1/64'], nextHops: [] },
  })
  await sh(`ip address add ${WORLD.vm}/24 dev eth0; ip -6 address add ${WORLD.vmV6}/64 dev eth0 nodad
    ip link set lo up; ip link set eth0 up
    ip route add default via 21.1.0.1; ip -6 route add default via 2600:1f18:1::1`)

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
    ...{ clock: systemClock, log },
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
    world: world.netns,
    reach,
    set: async policy => {
      const changed = await reach.change({ policy }, names, 30_000)
      if (!changed.ok) throw new Error(changed.message)
    },
    as: async (uid, argv, stdin = '') => (await run(inVm(uid, argv), { ...bounds, stdin })).stdout,
    start: (uid, argv) =>
      Bun.spawn(inVm(uid, argv), { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit', env: plainEnv }),
    seen: world.seen,
    leaked: world.leaked,
    log: async () => {
      const response = await fetch('http://broker/', { unix: paths.brokerLog })
      return ((await response.json()) as { rows: Record<string, unknown>[] }).rows
    },
  }
}

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
