// Decides when a running VM counts as lost. Pure. Counts consecutive misses, each a probe that had its full time for an
// answer: after a standstill of minutes, a daemon or host has sent one probe, not a dozen.

/** Interval of rounds. A round begins after the last one has ended. */
export const pulseEveryMs = 15_000
/** Interval of SSH probes. Every round probes while the agent does not answer. */
export const sshEveryMs = 60_000
export const agentTimeoutMs = 30_000
export const sshTimeoutMs = 20_000

/**
 * QEMU answers at once, even with a busy guest. Four misses take 65 to 95 s, because the first round also waits for the
 * guest. No share: limits each VM.
 */
export const monitorMissesMax = 4
/**
 * A loaded guest may be slow. Six misses are three minutes without an answer of agent or SSH.
 * No share: limits each VM.
 */
export const guestMissesMax = 6
/**
 * An interface disappears with its QEMU: the second check allows for a QEMU that is just ending. No share: limits
 * each VM.
 */
export const networkMissesMax = 2

/** Consecutive misses. */
export type Misses = {
  readonly monitor: number
  readonly agent: number
  readonly ssh: number
  /** Rounds without an answer of agent or SSH. */
  readonly guest: number
  readonly network: number
}

export const noMisses: Misses = { monitor: 0, agent: 0, ssh: 0, guest: 0, network: 0 }

/** Results of a round. Null for a probe that was not sent. */
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

/**
 * Returns the loss; null if there is none. Silence of SSH alone is not a loss, because a flood of port 22, or an
 * owner's mistake, must not end a VM.
 */
export function lossOf(misses: Misses): 'network_lost' | 'unanswered' | null {
  if (misses.network >= networkMissesMax) return 'network_lost'
  return misses.monitor >= monitorMissesMax || misses.guest >= guestMissesMax ? 'unanswered' : null
}
