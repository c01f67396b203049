// When a running VM counts as lost. Pure. Misses are counted in a row, and each is a question that had its full time to be answered: a daemon
// or a host that stood still for minutes has asked once, not a dozen times.

/** A round of questions begins this often, and not before the last round has ended. */
export const pulseEveryMs = 15_000
/** SSH is asked this seldom, but in every round while the agent does not answer. */
export const sshEveryMs = 60_000
export const agentTimeoutMs = 30_000
export const sshTimeoutMs = 20_000

/** QEMU itself answers at once, however busy its guest. Four misses are 65 to 95 s: the first round waits for the guest as well. */
export const monitorMissesMax = 4
/** A guest under load may be slow. Three minutes without a word of the agent and without SSH. */
export const guestMissesMax = 6
/** An interface goes with its QEMU: it is looked at again, in case QEMU is just ending. */
export const networkMissesMax = 2

/** Misses in a row. */
export type Misses = {
  readonly monitor: number
  readonly agent: number
  readonly ssh: number
  /** Rounds in which neither the agent nor SSH gave a sign. */
  readonly guest: number
  readonly network: number
}

export const noMisses: Misses = { monitor: 0, agent: 0, ssh: 0, guest: 0, network: 0 }

/** What a round found. Null: not asked. */
export type Round = {
  readonly monitor: boolean
  readonly agent: boolean
  readonly ssh: boolean | null
  readonly network: boolean
}

export function count(misses: Misses, round: Round): Misses {
  const next = (before: number, ok: boolean | null) => (ok === null ? before : ok ? 0 : before + 1)
  return {
    monitor: next(misses.monitor, round.monitor),
    agent: next(misses.agent, round.agent),
    ssh: next(misses.ssh, round.ssh),
    guest: next(misses.guest, round.agent || round.ssh === true),
    network: next(misses.network, round.network),
  }
}

/** Silence of SSH alone is no loss: whoever floods port 22 from outside must not be able to end a VM, nor its owner by mistake. */
export function lossOf(misses: Misses): 'network_lost' | 'unanswered' | null {
  if (misses.network >= networkMissesMax) return 'network_lost'
  return misses.monitor >= monitorMissesMax || misses.guest >= guestMissesMax ? 'unanswered' : null
}
