// Problems of the host of a scripted console, and its time. Pure.

import { type HostProblem, PROBLEMS } from '../../../src/contract/admin/problems.ts'

export const nowMs = Date.parse('2026-11-26T12:00:00.000Z')
export const at = (agoS: number): string => new Date(nowMs - agoS * 1000).toISOString()

export const PROBLEM_LIST: readonly HostProblem[] = [
  problem({ name: 'upstream', subject: 'far-away', detail: 'far-away gets no prompts: not attested' }),
  problem({ name: 'instances', subject: 'boot_failed', detail: '2 instances have failed (boot_failed)' }),
  problem({ name: 'log', subject: 'witness.example', detail: 'has not cosigned for an hour' }),
  problem({ name: 'certificate', subject: 'guest', detail: 'guest ends soon' }),
  problem({
    name: 'backup',
    detail: `the last is of ${at(86_400 * 3)}`,
    remedy: '`journalctl --unit strongroom-backup.service` has the reason',
  }),
]

function problem(words: Partial<HostProblem> & Pick<HostProblem, 'name' | 'detail'>): HostProblem {
  const affects = PROBLEMS[words.name]
  return { subject: null, severity: 'warning', since: at(3_600), affects, remedy: 'see strongroom doctor', ...words }
}
