// Puts the list of problems together: the sources that look themselves, and the watch that dates and reports what they
// find. Effects: those of the sources; from `run` on they repeat.

import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import type { AdminLeak, AdminStatus } from '../../contract/admin/admin.ts'
import { criticalProblem, type FoundProblem } from '../../contract/admin/problems.ts'
import type { TestAlerts } from '../../operator/alerts/routes.ts'
import { diskProblems } from '../../operator/problems/disk.ts'
import { ProblemJournal } from '../../operator/problems/journal.ts'
import { LeakWatch } from '../../operator/problems/leaks.ts'
import { formerProblem, ProblemWatch } from '../../operator/problems/watch.ts'
import { type StatusDeps, unlessDamaged } from '../../operator/status.ts'
import type { Store } from '../../store/db.ts'
import { noteEvent } from '../../store/ledger/event.query.ts'
import type { ChangeGate } from '../../upgrade/gate.ts'
import type { FirewallWatch } from '../../vm/firewall-probe/watch.ts'
import { composeAlerts } from './alerts.ts'
import { createUpstreamWatch, type UpstreamWatchDeps } from './upstreams.ts'

export type ProblemParts = UpstreamWatchDeps & {
  readonly gate: Pick<ChangeGate, 'isOpen'>
  readonly stateDir: string
  readonly store: Store
  readonly firewall: Pick<FirewallWatch, 'problems'>
  readonly member: { readonly problems: () => readonly FoundProblem[] }
  readonly snapshots: { readonly problems: () => readonly FoundProblem[] }
  readonly leaks: () => Promise<readonly AdminLeak[]>
  readonly random: RandomBytes
  readonly log: Logger
}

export type ComposedProblems = Pick<StatusDeps, 'upstreams' | 'problems' | 'journal'> & {
  readonly problemWatch: ProblemWatch
  readonly testAlerts: TestAlerts
  /** Looks, probes and searches until the signal is aborted. Never rejects. */
  readonly run: (status: () => AdminStatus, signal: AbortSignal) => Promise<void>
}

export function composeProblems(parts: ProblemParts): ComposedProblems {
  const { store, clock, stateDir } = parts
  const log = parts.log.unit('problems')
  const journal = new ProblemJournal(store)
  const upstreams = createUpstreamWatch(parts)
  const leaks = new LeakWatch({ find: parts.leaks, clock, log })
  const onEvent = (kind: string, detail: Record<string, unknown>) =>
    noteEvent(store.ledger.db, log, { nowMs: clock.nowMs(), kind, subject: '', detail })
  const openBefore = () => unlessDamaged(() => journal.open(), new Map())
  const problemWatch = new ProblemWatch({ clock, log, onEvent, openBefore })
  const alerts = composeAlerts({
    ...parts,
    hostId: store.hostId,
    notifiedBefore: receiver =>
      unlessDamaged(() => [...journal.notified(receiver).values()], []).map(open => formerProblem(open)),
    present: () => problemWatch.reported(),
    ...{ log: parts.log.unit('alerts'), onEvent },
  })
  return {
    upstreams: upstreams.view,
    problems: () => [
      ...trialProblems(parts.gate),
      ...parts.firewall.problems().map(problem => criticalProblem(problem)),
      ...diskProblems(stateDir),
      ...parts.member.problems(),
      ...parts.snapshots.problems(),
      ...leaks.problems(),
      ...alerts.problems(),
    ],
    journal,
    problemWatch,
    testAlerts: alerts.test,
    run: async (status, signal) => {
      const list = () => status().problems
      await Promise.all([problemWatch.run(list, signal), upstreams.run(signal), leaks.run(signal), alerts.run(signal)])
    },
  }
}

function trialProblems({ isOpen }: ProblemParts['gate']): FoundProblem[] {
  if (isOpen()) return []
  const detail = 'an upgrade is on trial: no change is accepted until it is found good, or the former version is back'
  const remedy = 'wait; `systemctl status strongroom-upgrade` shows the progress'
  return [criticalProblem({ name: 'upgrade', detail, remedy })]
}
