// The host's clock in the admin interface: whether it is trusted, and the operator's confirmation that it is right.
// Effects: the guard's.

import { Elysia } from 'elysia'
import { family, metricsText } from '../base/prometheus.ts'
import { type ClockGuard, clockProblem, clockRemedy, clockText } from '../base/work/clock-guard.ts'
import { AdminClock } from '../contract/admin/clock.ts'

export type OperatorClock = Pick<ClockGuard, 'view' | 'confirm'>

export function clockRoutes({ clockGuard }: { readonly clockGuard: OperatorClock }) {
  return new Elysia({ normalize: false })
    .get('/clock', () => clockView(clockGuard), { response: AdminClock })
    .post(
      '/clock/confirm',
      () => {
        clockGuard.confirm()
        return clockView(clockGuard)
      },
      { response: AdminClock },
    )
}

export function clockView(guard: Pick<ClockGuard, 'view'>): AdminClock {
  const view = guard.view()
  const problem = clockProblem(view)
  return {
    state: view.isHeld ? 'held' : 'believed',
    now: clockText(view.certainMs + view.aheadMs),
    ahead_s: Math.round(view.aheadMs / 1000),
    problem,
    remedy: problem === null ? null : clockRemedy,
  }
}

export function createClockMetrics(guard: Pick<ClockGuard, 'view'>): { readonly render: () => string } {
  const help = 'Whether the wall clock is not believed, so that nothing is deleted by age (strongroom clock).'
  return {
    render: () => metricsText([family('strongroom_clock_held', help, 'gauge', [[{}, guard.view().isHeld ? 1 : 0]])]),
  }
}
