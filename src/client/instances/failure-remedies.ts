// The advice for an instance that has failed, by failure code: the rows of `strongroom help instances`. Pure.

import { INSTANCE_FAILURES, type InstanceFailureCode } from '../../contract/http/instance.ts'
import { oneLine } from '../../terminal/render.ts'
import type { SeenInstance } from './records.ts'

export const FAILURE_REMEDIES: Readonly<Record<InstanceFailureCode, string>> = {
  capacity_exhausted: 'delete an instance, or wait',
  launch_mismatch: 'tell the operator',
  attestation_failed: 'tell the operator; be wary',
  boot_failed: 'create again',
  boot_timeout: 'create again',
  agent_unreachable: 'create again',
  claim_failed: 'create again',
  ssh_unreachable: 'tell the operator; see `strongroom help ssh_unreachable`',
  network_lost: 'create again',
  host_restarted: 'create again',
  host_restored: 'create again',
  host_lost: 'create again',
  internal: 'give the operator name and time',
}

/** Returns words of our own for a known code, followed by the service's if they differ: these may be any text. */
export function failureWords({ failure_code: code, failure_message: message }: SeenInstance): {
  readonly reason: string
  readonly remedy: string
} {
  if (code == null) return { reason: 'the service gives no reason', remedy: 'give the operator name and time' }
  if (!Object.hasOwn(INSTANCE_FAILURES, code)) {
    return {
      reason: `${code}${message == null ? '' : `: ${oneLine(message)}`}`,
      remedy: 'give the operator name and time',
    }
  }
  const known = code as InstanceFailureCode
  const own = INSTANCE_FAILURES[known]
  // The service may add a detail, such as that another SSH host key answered.
  const detail = message == null || message === own ? '' : ` The service reports: ${oneLine(message)}`
  return { reason: `${known}: ${own}${detail}`, remedy: FAILURE_REMEDIES[known] }
}
