// The phases of an upgrade. Pure. One rule decides what an interruption leads to: before `accepted` is on the disk the
// former executable and its database come back, afterwards the upgrade is ended.

/**
 * `prepared`: nothing of the service was changed. `switching`: the service is stopped, its database copied. `trial`:
 * the new executable serves and accepts no change. `returning`: the copy is put back. `returned`: the database is the
 * former one, the service is not. `accepted`: the new executable accepts changes; it is not in its place yet.
 */
export const PHASES = ['prepared', 'switching', 'trial', 'accepted', 'returning', 'returned'] as const
export type Phase = (typeof PHASES)[number]

/**
 * `done`: the work of the phase is done. `failed`: it cannot be done. `interrupted`: the process that did it has
 * died.
 */
export const EVENTS = ['done', 'failed', 'interrupted'] as const
export type UpgradeEvent = (typeof EVENTS)[number]

/** `abandoned`: nothing of the service was changed. */
export const OUTCOMES = ['upgraded', 'returned', 'abandoned'] as const
export type Outcome = (typeof OUTCOMES)[number]
export type Next = { readonly phase: Phase } | { readonly end: Outcome }

/** Null if the work is retried, because only that leaves the host intact. */
export const UPGRADE_TABLE = {
  prepared: { done: to('switching'), failed: end('abandoned'), interrupted: end('abandoned') },
  switching: { done: to('trial'), failed: to('returned'), interrupted: to('returned') },
  trial: { done: to('accepted'), failed: to('returning'), interrupted: to('returning') },
  accepted: { done: end('upgraded'), failed: null, interrupted: to('accepted') },
  returning: { done: to('returned'), failed: null, interrupted: to('returning') },
  returned: { done: end('returned'), failed: null, interrupted: to('returned') },
} as const satisfies Record<Phase, Record<UpgradeEvent, Next | null>>

/** Whether the daemon on trial may accept changes: from then on nothing brings the former database back. */
export function isAccepted(phase: Phase): boolean {
  return phase === 'accepted'
}

function to(phase: Phase): Next {
  return { phase }
}

function end(outcome: Outcome): Next {
  return { end: outcome }
}
