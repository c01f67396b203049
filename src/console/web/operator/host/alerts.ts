// The parts of the status that need attention, severe ones first. Pure.

import { dayMs } from '../../../../base/time.ts'
import type { AdminStatus } from '../../../../contract/admin/admin.ts'

export type Alert = {
  readonly name: string
  readonly severe: boolean
  readonly detail: string
  /** Null if no remedy is known. */
  readonly remedy: string | null
}

const expirySoonMs = 14 * dayMs

export function alertsOf(status: AdminStatus): readonly Alert[] {
  const nowMs = Date.parse(status.clock.now)
  const { backups, clock, collateral, gateway, log, pool } = status
  const alerts: (Alert | null)[] = [
    ...status.problems.map(problem => ({ ...problem, severe: true })),
    clock.problem === null ? null : { name: 'clock', severe: true, detail: clock.problem, remedy: clock.remedy },
    collateral === null || collateral.state === 'good'
      ? null
      : {
          name: 'collateral',
          severe: collateral.state === 'bad',
          detail: collateral.problem ?? collateral.state,
          remedy: collateral.remedy,
        },
    gateway.problem === null
      ? null
      : { name: 'gateway', severe: gateway.state !== 'serving', detail: gateway.problem, remedy: null },
    ...gateway.attested_upstreams
      .filter(({ attested }) => !attested)
      .map(({ name }) => ({
        name: 'upstream',
        severe: true,
        detail: `${name} is not attested and gets no prompts`,
        remedy: null,
      })),
    ...(log?.problems ?? []).map(({ witness, ...problem }) => ({ name: witness ?? 'log', ...problem })),
    ...(status.tls.acme ?? []).flatMap(({ name, failure }) =>
      failure === null
        ? []
        : [{ name: 'certificate', severe: false, detail: `${name}: ${failure.detail}`, remedy: null }],
    ),
    ...status.tls.certificates
      .filter(({ expires_at }) => Date.parse(expires_at) - nowMs < expirySoonMs)
      .map(({ name, expires_at }) => ({
        name: 'certificate',
        severe: Date.parse(expires_at) < nowMs,
        detail: `${name} ends ${expires_at.slice(0, 10)}`,
        remedy: null,
      })),
    ...(status.budgets_near ?? []).map(({ organization, key, period, kind, percent }) => ({
      name: 'budget',
      severe: false,
      detail: `${percent} % of the ${kind === 'usd' ? 'money' : 'tokens'} of ${key === null ? organization : `key ${key} of ${organization}`} for ${period} are spent`,
      remedy: 'Raise the budget, or wait until it resets.',
    })),
    backups.problem === null
      ? null
      : { name: 'backup', severe: false, detail: backups.problem, remedy: backups.remedy },
    pool.last_failure === null
      ? null
      : { name: 'warm pool', severe: false, detail: pool.last_failure.reason, remedy: null },
  ]
  return alerts.filter(alert => alert !== null).sort((a, b) => Number(b.severe) - Number(a.severe))
}
