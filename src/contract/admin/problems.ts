// Problems of a host: what is wrong, since when, what it affects, and the remedy. One list, which status, doctor, the
// console, metrics and alerts show. `strongroom help 3am` has a section for each name. Pure.

import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'

export const PROBLEM_NAMES = [
  'upgrade',
  'database',
  'status_unknown',
  'disk',
  'firewall',
  'firewall_table',
  'log',
  'fleet',
  'gateway',
  'models',
  'upstream',
  'usage',
  'instances',
  'pool',
  'capacity',
  'builds',
  'vm_paused',
  'snapshots',
  'leaks',
  'clock',
  'certificate',
  'acme',
  'authority',
  'former_names',
  'collateral',
  'tpm',
  'backup',
  'budget',
  'traces',
  'alerts',
] as const
export type ProblemName = (typeof PROBLEM_NAMES)[number]

/** The effect of each problem, in the words that people read. Begins with who is affected now. */
export const PROBLEMS = {
  upgrade: 'now: every change; none is accepted while the upgrade is on trial',
  database: 'now: everything that the damaged part of the database holds',
  status_unknown: 'now: the list of problems and the alerts; other problems are not noticed',
  disk: 'no client while there is room; without room, creates and changes are refused and VMs that write are paused',
  firewall: 'now: every instance; owners cannot reach it, or it cannot send',
  firewall_table: 'no client now; instances for the moment until the daemon restored the rules',
  log: 'now: clients that pin the transparency log, and with an unwritable log all launches',
  fleet: 'now: new instances from the fleet, or requests that other hosts pass on',
  gateway: 'now: every request to the inference gateway',
  models: 'now: every request for the named models',
  upstream: 'now: requests for models that no other upstream serves; no client if each model has another',
  usage: 'now: billing and budgets; the gateway refuses requests if the backlog grows',
  instances: 'now: the owners of these instances',
  pool: 'now: creates take longer, because they wait for a boot',
  capacity: 'now: new instances; creates wait or fail',
  builds: 'now: new builds; they wait',
  vm_paused: 'now: the instances of these VMs; they do not run',
  snapshots:
    'no client whose instance runs; the files of an instance that ends without a snapshot may be lost for good',
  leaks: 'no client now; memory, addresses or names stay taken that nothing uses',
  clock: 'now: certificates, revocation lists and billing; nothing is deleted by age',
  certificate: 'no client while the certificate is valid; after its end, all clients',
  acme: 'no client while a public certificate is valid; without one, clients that do not trust the local authority',
  authority: 'now: clients with the former ca.pem',
  former_names: 'no client until the former names end; then clients that still use them',
  collateral: 'now: clients that verify reports of this host',
  tpm: 'now: software in instances that reads a TPM',
  backup: 'no client now; a loss of this host loses what came after the last good backup',
  budget: 'no client until the budget is spent; then requests of the key or organization',
  traces: 'no client; traces of requests may be lost',
  alerts: 'no client; this receiver is not notified of new problems',
} as const satisfies Record<ProblemName, string>

/** Returns the command that prints the section of the problem. `help NAME` may be a topic or a command. */
export function helpCommandFor(name: ProblemName): string {
  return `strongroom help problem ${name}`
}

/** `critical`: this host is not ready, because it does not give clients what its services promise. */
export const PROBLEM_SEVERITIES = ['critical', 'warning'] as const
export type ProblemSeverity = (typeof PROBLEM_SEVERITIES)[number]

export const HostProblem = Closed({
  name: OneOf(PROBLEM_NAMES),
  /** Which one, such as a failure code, an upstream or a certificate; null if the host has only one. */
  subject: OrNull(Type.String()),
  severity: OneOf(PROBLEM_SEVERITIES),
  /** ISO 8601 UTC. */
  since: Type.String(),
  detail: Type.String(),
  affects: Type.String(),
  remedy: Type.String(),
})
export type HostProblem = Static<typeof HostProblem>

/** Size of the list. No share: critical problems come first. */
export const problemCountMax = 200

/** A problem as its source finds it. */
export type FoundProblem = Omit<HostProblem, 'since' | 'affects'> & {
  /** Null if the source does not know since when. */
  readonly sinceMs: number | null
}

/** Identifies a problem over time: its words and severity may change. */
export function problemKey({ name, subject }: Pick<HostProblem, 'name' | 'subject'>): string {
  return subject === null ? name : `${name} ${subject}`
}

/** Reports whether a host with these problems gives clients what its services promise. */
export function isReady(problems: readonly Pick<HostProblem, 'severity'>[]): boolean {
  return problems.every(({ severity }) => severity !== 'critical')
}

/** Returns a problem without a subject. */
export function criticalProblem(
  found: { readonly name: ProblemName; readonly detail: string; readonly remedy: string },
  sinceMs: number | null = null,
): FoundProblem {
  return { ...found, subject: null, severity: 'critical', sinceMs }
}
