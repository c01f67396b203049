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

/** The effect of each problem, in the words that people read. */
export const PROBLEMS = {
  upgrade: 'every change: none is accepted while the upgrade is on trial',
  database: 'everything that the damaged part of the database holds',
  status_unknown: 'the list of problems and the alerts: other problems are not noticed',
  disk: 'creates and changes, and VMs that write to their disks',
  firewall: 'every instance: owners cannot reach it, or it cannot send',
  firewall_table: 'instances, for the moment until the daemon restored the rules',
  log: 'clients that pin the transparency log, and with an unwritable log all launches',
  fleet: 'new instances from the fleet, or requests that other hosts pass on',
  gateway: 'every request to the inference gateway',
  models: 'every request for the named models',
  upstream: 'requests for models that no other upstream serves',
  usage: 'billing and budgets; the gateway refuses requests if the backlog grows',
  instances: 'the owners of these instances',
  pool: 'the time that a create takes: it waits for a boot',
  capacity: 'new instances: creates wait or fail',
  builds: 'new builds: they wait',
  vm_paused: 'the instances of these VMs: they do not run',
  snapshots: 'the files of instances that end: no snapshot may be left of them',
  leaks: 'memory, addresses or names that nothing uses',
  clock: 'certificates, revocation lists and billing; nothing is deleted by age',
  certificate: 'all clients once the certificate has expired',
  acme: 'clients that trust public authorities only',
  authority: 'clients with the former ca.pem',
  former_names: 'clients that still use the former names, once these end',
  collateral: 'clients that verify reports of this host',
  tpm: 'software in instances that reads a TPM',
  backup: 'what you can restore after a loss of this host',
  budget: 'requests of the key or organization once its budget is spent',
  traces: 'the traces of requests',
  alerts: 'the notification of new problems by this receiver',
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
