// The daemon's list of problems as checks of `strongroom doctor`. Pure.

import type { AdminStatus } from '../../contract/admin/admin.ts'
import type { FoundProblem, HostProblem, ProblemName } from '../../contract/admin/problems.ts'
import { type Check, fail, warn } from './check.ts'

/** Checks of doctor that are about the same thing as a problem; the daemon's verdict replaces theirs. */
const CHECK_NAMES: Partial<Readonly<Record<ProblemName, string>>> = {
  certificate: 'certificates',
  disk: 'state directory',
  firewall: 'firewalls',
  gateway: 'gateway VM',
  leaks: 'ledger',
  log: 'transparency log',
  usage: 'gateway usage',
}

/** `problems`: null if the daemon does not answer; then doctor's own checks are all there is. */
export function withProblems(own: readonly Check[], problems: AdminStatus['problems'] | null): Check[] {
  if (problems === null) return [...own]
  const listed = problems.map(problem => listedCheck(problem))
  const names = new Set(listed.map(({ name }) => name))
  return [...own.filter(({ name }) => !names.has(name)), ...listed]
}

function listedCheck(problem: HostProblem): Check {
  const check = problemCheck(checkNameOf(problem), problem)
  return CHECK_NAMES[problem.name] === undefined ? { ...check, isOfDaemon: true } : check
}

export function problemCheck(
  name: string,
  { subject, severity, detail, remedy }: Pick<FoundProblem, 'subject' | 'severity' | 'detail' | 'remedy'>,
): Check {
  const text = subject === null || name.includes(subject) || detail.includes(subject) ? detail : `${subject}: ${detail}`
  return severity === 'critical' ? fail(name, text, remedy) : warn(name, text, remedy)
}

function checkNameOf({ name, subject }: HostProblem): string {
  if (name === 'acme') return `acme ${subject}`
  if (name === 'log' && subject !== null) return 'log witness'
  return CHECK_NAMES[name] ?? name.replaceAll('_', ' ')
}
