// Judges a host by the facts of its status, and what else the daemon observes: the list of its problems. Pure.

import { dayMs } from '../../base/time.ts'
import type { AdminStatus } from '../../contract/admin/admin.ts'
import type { FoundProblem, ProblemName } from '../../contract/admin/problems.ts'
import { acmeProblems, certificateProblems, type OwnCertificate } from './certificates.plan.ts'
import { type FailureFacts, failedInstanceProblems } from './failed-instances.ts'
import { type GatewayFacts, gatewayProblems } from './gateway.plan.ts'

/** `problems` and `ready` follow from the rest. */
export type BareStatus = Omit<AdminStatus, 'problems' | 'ready'>

/** From the journal of this host. */
export type JournalFacts = {
  /** When the daemon last restored its firewall table; null if never. */
  readonly tableRestoredMs: number | null
  /** When the local certificate authority was last replaced; null if never. */
  readonly authorityReplacedMs: number | null
}

export type ProblemFacts = {
  readonly status: BareStatus
  readonly nowMs: number
  /** Null if the database is damaged. */
  readonly failures: FailureFacts | null
  readonly gateway: GatewayFacts
  readonly journal: JournalFacts
  /** VMs that are paused because the disk was full, with the time. */
  readonly pausedVms: readonly { readonly vm: string; readonly sinceMs: number }[]
  /** Size of an instance. */
  readonly instance: { readonly memoryMib: number; readonly vcpus: number }
  readonly acme: { readonly directory: string; readonly httpListen: string }
  readonly ownCertificate: OwnCertificate
}

/** How long an event that is over stays a problem, because an operator has to find its cause. */
const tableShownMs = dayMs
const authorityShownMs = 7 * dayMs

/** Returns the problems in the order of the table. */
export function problemsIn(facts: ProblemFacts): FoundProblem[] {
  const { status, nowMs, failures, gateway, acme } = facts
  return [
    // A damaged database can be read in part only.
    ...(failures === null ? [] : gatewayProblems(status.gateway, gateway, nowMs)),
    ...(failures === null ? [] : failedInstanceProblems(failures, nowMs)),
    ...(failures === null ? [] : roomProblems(facts)),
    ...vmProblems(facts),
    ...clockProblems(status),
    ...certificateProblems(status.tls, facts.ownCertificate, nowMs),
    ...acmeProblems(status.tls.acme ?? [], acme, nowMs),
    ...nameProblems(facts),
    ...collateralProblems(status),
    ...logProblems(status),
    ...backupProblems(status),
    ...budgetProblems(status),
    ...fleetProblems(status),
    ...tracesProblems(status),
    ...tpmProblems(status),
  ]
}

type Words = Pick<FoundProblem, 'detail' | 'remedy'> & Partial<Pick<FoundProblem, 'subject' | 'sinceMs'>>

function warning(name: ProblemName, { subject = null, sinceMs = null, ...words }: Words): FoundProblem {
  return { name, subject, severity: 'warning', sinceMs, ...words }
}

function critical(name: ProblemName, words: Words): FoundProblem {
  return { ...warning(name, words), severity: 'critical' }
}

function vmProblems({ journal: { tableRestoredMs }, pausedVms, nowMs }: ProblemFacts): FoundProblem[] {
  const paused = pausedVms.map(({ sinceMs }) => sinceMs)
  const [first] = pausedVms
  return [
    ...(first === undefined
      ? []
      : [
          critical('vm_paused', {
            sinceMs: Math.min(...paused),
            detail: `${pausedVms.length} VMs are paused, because the disk was full when they wrote to it: ${first.vm}${pausedVms.length > 1 ? ', …' : ''}`,
            remedy: 'free some space: the VMs continue by themselves',
          }),
        ]),
    ...(tableRestoredMs === null || nowMs - tableRestoredMs > tableShownMs
      ? []
      : [
          warning('firewall_table', {
            sinceMs: tableRestoredMs,
            detail: `another program changed the firewall table of the VMs at ${iso(tableRestoredMs)}; the daemon restored it at once`,
            remedy: 'find out which program did it, and keep it from network.table; this warning ends after a day',
          }),
        ]),
  ]
}

function clockProblems({ clock: { problem, remedy } }: BareStatus): FoundProblem[] {
  if (problem === null) return []
  return [critical('clock', { detail: problem, remedy: remedy ?? '' })]
}

function nameProblems({ status: { tls }, journal, nowMs }: ProblemFacts): FoundProblem[] {
  const { authorityReplacedMs: replacedMs } = journal
  const ca = tls.ca_file ?? 'ca.pem'
  return [
    ...(replacedMs === null || nowMs - replacedMs > authorityShownMs || tls.source !== 'local'
      ? []
      : [
          warning('authority', {
            sinceMs: replacedMs,
            detail: `the certificate authority of this appliance was replaced at ${iso(replacedMs)}`,
            remedy: `give clients the new ${ca}; this warning ends after seven days`,
          }),
        ]),
    ...(tls.former === null
      ? []
      : [
          warning('former_names', {
            detail: `${tls.former.names.join(', ')} are served until ${tls.former.until} only`,
            remedy: `give clients the new ${ca} and the new names; next time, announce the names first (tls.announced_names)`,
          }),
        ]),
  ]
}

function collateralProblems({ collateral }: BareStatus): FoundProblem[] {
  if (collateral === null || collateral.problem === null) return []
  const words = { detail: collateral.problem, remedy: collateral.remedy ?? '' }
  return [collateral.state === 'bad' ? critical('collateral', words) : warning('collateral', words)]
}

/** A log that cannot be written is found by its own source, which needs no database. */
function logProblems({ log }: BareStatus): FoundProblem[] {
  return (log?.problems ?? []).map(({ witness, severe, detail, remedy }) =>
    (severe ? critical : warning)('log', { subject: witness, detail, remedy }),
  )
}

/** Checks whether an instance fits, and whether warm pool and builds lack something. */
function roomProblems({ status: { capacity, pool, builds }, instance }: ProblemFacts): FoundProblem[] {
  const { memory_mib_used: memory, vcpus_used: vcpus, addresses_used: addresses } = capacity
  const isReady = pool.warm + pool.booting > 0
  const lacks = [
    ...(memory !== null && capacity.memory_mib_total - memory < instance.memoryMib ? ['memory'] : []),
    ...(vcpus !== null && capacity.vcpus_total - vcpus < instance.vcpus ? ['vCPUs'] : []),
    ...(addresses !== null && capacity.addresses_total <= addresses + capacity.addresses_resting ? ['addresses'] : []),
  ]
  return [
    ...(isReady || lacks.length === 0
      ? []
      : [
          warning('capacity', {
            detail: `no instance fits on this host any more: ${lacks.join(' and ')} used up`,
            remedy:
              'wait until owners delete instances, raise the fields of [capacity] or network.pool_v4, or add a host',
          }),
        ]),
    ...(pool.last_failure === null || pool.warm >= pool.wanted
      ? []
      : [
          warning('pool', {
            sinceMs: Date.parse(pool.last_failure.at),
            detail: `${pool.warm} of ${pool.wanted} VMs of the warm pool are warm; the last failure, at ${pool.last_failure.at}: ${pool.last_failure.reason}`,
            remedy:
              'run `strongroom doctor`: its checks of image, qemu and canary have the cause; the daemon tries again by itself',
          }),
        ]),
    ...(builds === null || builds.lacking === null
      ? []
      : [
          warning('builds', {
            detail: `the next build VM cannot be started: ${builds.lacking}`,
            remedy: 'if it is a resource, wait or raise its field of [capacity]; otherwise run `strongroom doctor`',
          }),
        ]),
  ]
}

function backupProblems({ backups: { problem, remedy, failure } }: BareStatus): FoundProblem[] {
  if (problem === null) return []
  const sinceMs = failure === null ? null : Date.parse(failure.at)
  return [warning('backup', { sinceMs, detail: problem, remedy: remedy ?? '' })]
}

function budgetProblems({ budgets_near: near = [] }: BareStatus): FoundProblem[] {
  return near.map(({ organization, key, key_name: name, period, kind, percent }) => {
    const named = name === undefined ? '' : ` (${name})`
    const whose = key === null ? organization : `key ${key}${named} of ${organization}`
    return warning('budget', {
      subject: `${key ?? organization} ${kind} ${period}`,
      detail: `${percent} % of the ${kind === 'usd' ? 'money' : 'tokens'} of ${whose} for ${period} are spent`,
      remedy: 'raise the budget (`strongroom org budget`, `strongroom gateway key set`), or wait until it resets',
    })
  })
}

/** Without a lease the host is not ready; its own source finds that. */
function fleetProblems({ fleet }: BareStatus): FoundProblem[] {
  if (fleet === null) return []
  const away = fleet.peers.filter(({ is_reached: isReached }) => !isReached)
  return [
    ...(fleet.is_reachable || !fleet.has_lease
      ? []
      : [
          warning('fleet', {
            // With a space, which no name of a host has.
            subject: 'the database',
            sinceMs: Date.parse(fleet.since),
            detail: `${fleet.database} is not reached: ${fleet.problem ?? 'no reason is known'}`,
            remedy: 'see that this host reaches the database (`strongroom doctor`); without it the lease ends',
          }),
        ]),
    ...away.map(({ name, problem }) =>
      warning('fleet', {
        subject: name,
        detail: `host ${name} is not reached: ${problem ?? 'no reason is known'}`,
        remedy: `\`strongroom fleet show ${name}\` has the remedy`,
      }),
    ),
  ]
}

function tracesProblems({ gateway: { traces } }: BareStatus): FoundProblem[] {
  if (traces === null || traces.problem === null) return []
  const detail = `the receiver takes no spans (${traces.dropped} dropped, ${traces.waiting} waiting): ${traces.problem}`
  return [
    warning('traces', { detail, remedy: 'see that inference.traces.endpoint is reached and accepts the headers' }),
  ]
}

function tpmProblems({ tpm }: BareStatus): FoundProblem[] {
  if (tpm !== 'missing') return []
  return [
    warning('tpm', {
      detail: 'VMs get no TPM: swtpm is not installed',
      remedy: 'install swtpm, correct vm.swtpm, or set vm.tpm to "off"',
    }),
  ]
}

function iso(ms: number): string {
  return new Date(ms).toISOString()
}
