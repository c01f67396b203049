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
  ssh_unreachable: 'tell the operator: a firewall?',
  network_lost: 'create again',
  host_restarted: 'create again',
  host_restored: 'create again',
  host_lost: 'create again',
  internal: 'give the operator name and time',
}

/** Words of our own for a code that is known; otherwise those of the service, which may be any text. */
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
  return { reason: `${known}: ${INSTANCE_FAILURES[known]}`, remedy: FAILURE_REMEDIES[known] }
}
