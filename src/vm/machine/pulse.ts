// Regular health checks of a running VM: monitor, agent, SSH server and interface. Effects: sends probes; never waits
// for them.

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import type { Hello } from '../../contract/vm/agent-responses.ts'
import type { SshProbe } from '../../host/network/ssh-probe.ts'
import { qmpTimeoutMs } from '../../host/qemu/qmp.ts'
import type { VmLink } from '../link.driver.ts'
import {
  agentTimeoutMs,
  count,
  lossOf,
  type Misses,
  noMisses,
  pulseEveryMs,
  sshEveryMs,
  sshTimeoutMs,
} from './liveness.plan.ts'

export type PulseDeps = {
  readonly clock: Clock
  readonly log: Logger
  readonly vmId: string
  readonly probeSsh: (probe: SshProbe) => Promise<void>
  /** Returns false if the interface is permanently gone. Repairs other damage. Faults: host.*. */
  readonly checkNetwork: () => Promise<boolean>
  readonly address: string
  /** Called after each round. */
  readonly onChange: () => void
}

const sshPort = 22
/**
 * Concurrent handshakes over all VMs. A round without a free slot skips its probe. No share: probes of the daemon, in
 * turns over all VMs.
 */
const sshProbesMax = 4
let sshProbes = 0

export type Loss = NonNullable<ReturnType<typeof lossOf>>

/** The pulse of one VM, from when it runs or this daemon first sees it running. */
export class Pulse {
  readonly #deps: PulseDeps
  #misses: Misses = noMisses
  /** The agent's latest hello, because the claim changes it. */
  #hello: Hello | null = null
  #asking = false
  #askedMs = Number.NEGATIVE_INFINITY
  #sshAskedMs: number
  #signMs: number

  constructor(deps: PulseDeps) {
    this.#deps = deps
    this.#signMs = deps.clock.nowMs()
    // SSH of a new VM answered when it became ready.
    this.#sshAskedMs = deps.clock.monotonicMs()
  }

  /** Wall clock time of the last sign of life. */
  get signMs(): number {
    return this.#signMs
  }

  /** Begins a round if it is due. Never waits: results are reported as changes. */
  ask(link: VmLink): Loss | null {
    const loss = lossOf(this.#misses)
    const { clock } = this.#deps
    if (loss === null && !this.#asking && clock.monotonicMs() - this.#askedMs >= pulseEveryMs) {
      this.#asking = true
      this.#askedMs = clock.monotonicMs()
      void this.#round(link)
    }
    return loss
  }

  /** Counts a failed connection to its monitor. */
  missedMonitor(): Loss | null {
    this.#misses = { ...this.#misses, monitor: this.#misses.monitor + 1 }
    return lossOf(this.#misses)
  }

  async #round(link: VmLink): Promise<void> {
    const { log, vmId, onChange, checkNetwork, clock } = this.#deps
    const answered = link.qmp.command('query-status', qmpTimeoutMs.blocking).then(yes, no)
    // A silent QEMU passes nothing on, so the guest's answer is not awaited: that would double the time to notice.
    const hurry = this.#misses.monitor > 0
    const answer = link.channel.hello(hurry ? qmpTimeoutMs.blocking : agentTimeoutMs).catch(() => null)
    const reachable = checkNetwork().catch(error => {
      // A failed check proves nothing about the interface.
      log.warn('the network interface of a VM could not be checked', { vm: vmId, error })
      return true
    })
    const ssh = this.#askSsh(this.#hello ?? link.observe().hello, hurry ? qmpTimeoutMs.blocking : sshTimeoutMs)
    const hello = await answer
    // The agent has restarted with new keys, so the earlier hello is void.
    const known = this.#hello ?? link.observe().hello
    if (hello !== null && known !== null && hello.boxKey !== known.boxKey) link.forget()
    this.#hello = hello ?? this.#hello
    const round = { monitor: await answered, agent: hello !== null, ssh: await ssh, network: await reachable }
    const before = this.#misses
    this.#misses = count(before, round)
    if (round.monitor && round.network && (round.agent || round.ssh === true)) this.#signMs = clock.nowMs()
    this.#report(before)
    this.#asking = false
    onChange()
  }

  /** Probes SSH. Null if the probe is not due, or the guest may have no server yet. */
  async #askSsh(hello: Hello | null, timeoutMs: number): Promise<boolean | null> {
    const { clock, probeSsh, address } = this.#deps
    const isDue = this.#misses.agent > 0 || clock.monotonicMs() - this.#sshAskedMs >= sshEveryMs
    const hostKey = hello?.claimId == null ? null : hello.sshHostKey
    if (!isDue || hostKey === null || sshProbes >= sshProbesMax) return null
    this.#sshAskedMs = clock.monotonicMs()
    sshProbes += 1
    try {
      return await probeSsh({ address, port: sshPort, hostKey, timeoutMs }).then(yes, no)
    } finally {
      sshProbes -= 1
    }
  }

  /** Logs once when a silence becomes unusual, and once when it ends. */
  #report(before: Misses): void {
    const { log, vmId: vm } = this.#deps
    for (const who of ['monitor', 'agent', 'ssh', 'network'] as const) {
      const misses = this.#misses[who]
      if (misses === oddMisses && before[who] < misses) log.warn('a VM does not answer', { vm, who, misses })
      if (misses === 0 && before[who] >= oddMisses) log.info('a VM answers again', { vm, who })
    }
  }
}

const oddMisses = 2
const yes = () => true
const no = () => false
