// Second attempt of an instance on another host of its fleet, after the first host failed to start it. Effects: a
// change of the directory.

import type { InstanceFailureCode } from '../contract/http/instance.ts'
import type { DirectoryStore } from '../store/db.ts'
import { attemptsMax, giveToHost } from '../store/directory/attempt.query.ts'
import { instanceById } from '../store/directory/instance.query.ts'
import type { Instance } from '../store/directory/instance.table.ts'

/** Whether each failure before an instance is ready may not occur on another host. */
export const IS_WORTH_ANOTHER_HOST = {
  capacity_exhausted: true,
  boot_failed: true,
  boot_timeout: true,
  agent_unreachable: true,
  network_lost: true,
  // The image determines what is launched, and every host has the same one.
  launch_mismatch: false,
  // Insufficient firmware or certificates of a chip affect only its host.
  attestation_failed: true,
  claim_failed: true,
  ssh_unreachable: true,
  host_restarted: true,
  // The records are older than the fleet's.
  host_restored: false,
  host_lost: true,
  // A bug.
  internal: false,
} as const satisfies Record<InstanceFailureCode, boolean>

export type RestartDeps = {
  readonly directory: Pick<DirectoryStore, 'change'>
  /** Platform of an instance whose record lacks it. */
  readonly platform: NonNullable<Instance['platform']>
}

/** `given`: another host has it now, or it has changed since it was read. `stays`: it fails here. */
export type RestartVerdict = { readonly kind: 'given'; readonly hostId: string | null } | { readonly kind: 'stays' }

/** Decides for all hosts in one change of the directory. Fault `fleet.unavailable`. */
export async function restartOnOtherHost(
  { directory, platform }: RestartDeps,
  instance: Pick<Instance, 'id' | 'hostId' | 'attempt'>,
  failureCode: InstanceFailureCode,
): Promise<RestartVerdict> {
  if (!IS_WORTH_ANOTHER_HOST[failureCode] || instance.attempt >= attemptsMax) return { kind: 'stays' }
  return await directory.change((tx): RestartVerdict => {
    const { id, hostId: from } = instance
    const now = instanceById(tx, id)
    if (now?.hostId !== from || now.status !== 'provisioning') return { kind: 'given', hostId: null }
    const placement = tx.hosts.place({ platform: now.platform ?? platform, except: from })
    if (placement.kind === 'refused') return { kind: 'stays' }
    const { hostId: to } = placement
    return giveToHost(tx, { id, from, to, nowMs: tx.nowMs }) ? { kind: 'given', hostId: to } : { kind: 'stays' }
  })
}
