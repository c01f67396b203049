// Failed instances as problems, one for each failure code. Pure.

import type { FoundProblem } from '../../contract/admin/problems.ts'
import { INSTANCE_FAILURES, type InstanceFailureCode } from '../../contract/http/instance.ts'
import type { FailedInstances } from '../../store/directory/instance-failures.query.ts'

export type FailureFacts = {
  readonly byCode: readonly FailedInstances[]
  /** When an instance last became ready; null if none ever did. */
  readonly lastReadyMs: number | null
}

/** A host on which this many instances failed since one became ready does not deliver instances. */
const failuresInARow = 2
/** Older failures say nothing about the present. */
const recentMs = 3_600_000

/** Codes whose cause is this host as it is now. The others have an end, or are about load. */
const OF_THIS_HOST: ReadonlySet<string> = new Set<InstanceFailureCode>([
  'attestation_failed',
  'boot_failed',
  'boot_timeout',
  'claim_failed',
  'launch_mismatch',
  'ssh_unreachable',
])

const LOGS = '`strongroom instance logs NAME` has the cause'

const REMEDIES: Readonly<Record<InstanceFailureCode, string>> = {
  capacity_exhausted: 'add capacity, or wait until owners delete instances',
  boot_failed: `${LOGS}, with the last lines of QEMU; run \`strongroom doctor\``,
  boot_timeout:
    '`strongroom instance console NAME` shows how far the boot got; look at the load of this host, or raise vm.boot_timeout_ms',
  agent_unreachable:
    'nothing to do if it was one VM; if there are several, look at the load of this host and at `strongroom instance console NAME`',
  network_lost: `find out which program removed the tap; ${LOGS}`,
  launch_mismatch: `${LOGS} and names the file that differs: put back the image or the firmware that the manifest names`,
  attestation_failed: `${LOGS} and names the failed check: put back the image or the firmware that the manifest names`,
  claim_failed: `${LOGS}; run \`strongroom doctor\``,
  ssh_unreachable: 'see `strongroom help ssh_unreachable`: usually a firewall of this host drops packets of instances',
  host_restarted:
    'nothing to do: the memory and disks of these VMs ended with the host; their owners create new instances',
  host_restored: 'nothing to do: these VMs ended with the former host; their owners create new instances',
  host_lost: 'nothing to do: these VMs ended with their host; see `strongroom fleet list`',
  internal: `${LOGS}; report it as a bug`,
}

const UNTIL_DELETED = 'each stays in this list until its owner or `strongroom instance delete NAME` deletes it'

export function failedInstanceProblems({ byCode, lastReadyMs }: FailureFacts, nowMs: number): FoundProblem[] {
  const isRecent = (atMs: number) => nowMs - atMs < recentMs && (lastReadyMs === null || atMs > lastReadyMs)
  const inARow = byCode.filter(({ code, lastMs }) => OF_THIS_HOST.has(code) && isRecent(lastMs))
  const failuresInRow = inARow.reduce((sum, { sinceReady }) => sum + sinceReady, 0)
  return byCode.map(({ code, count, firstMs, lastMs }) => {
    const known = Object.hasOwn(INSTANCE_FAILURES, code) ? (code as InstanceFailureCode) : 'internal'
    const isCause = failuresInRow >= failuresInARow && inARow.some(row => row.code === code)
    const times = count === 1 ? `at ${iso(lastMs)}` : `the first at ${iso(firstMs)}, the last at ${iso(lastMs)}`
    const what = count === 1 ? '1 instance has failed' : `${count} instances have failed`
    const row = isCause ? '; no instance has become ready since' : ''
    return {
      name: 'instances',
      subject: code,
      severity: isCause ? 'critical' : 'warning',
      sinceMs: firstMs,
      detail: `${what} (${code}): ${INSTANCE_FAILURES[known]} ${capitalized(times)}${row}`,
      remedy: `${REMEDIES[known]}; \`strongroom instance list --status failed\` lists them; ${UNTIL_DELETED}`,
    }
  })
}

function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}

function iso(ms: number): string {
  return new Date(ms).toISOString()
}
