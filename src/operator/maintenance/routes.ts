// Maintenance of this host in the admin interface. Effects: the mode, and an event of this host's journal.

import { Elysia } from 'elysia'
import { type Clock, iso } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { AdminStatus } from '../../contract/admin/admin.ts'
import { AdminMaintenance, AdminMaintenanceBegin } from '../../contract/admin/maintenance.ts'
import type { Store } from '../../store/db.ts'
import { noteEvent } from '../../store/ledger/event.query.ts'
import type { MaintenanceMode } from './mode.ts'

type MaintenanceDeps = {
  readonly maintenance: Pick<MaintenanceMode, 'view' | 'begin' | 'end'>
  readonly store: Pick<Store, 'ledger'>
  readonly clock: Pick<Clock, 'nowMs'>
  readonly log: Pick<Logger, 'error'>
  readonly status: () => Pick<AdminStatus, 'fleet'>
}

type ReadBody = (context: { readonly request: Request; readonly route: string }) => Promise<unknown>

export function maintenanceRoutes(deps: MaintenanceDeps, readBody: ReadBody) {
  const { maintenance } = deps
  const note = (kind: string, detail: Record<string, unknown>) =>
    noteEvent(deps.store.ledger.db, deps.log, { nowMs: deps.clock.nowMs(), kind, subject: '', detail })
  const response = AdminMaintenance
  return new Elysia({ normalize: false })
    .get('/maintenance', () => ({ maintenance: maintenance.view() }), { response })
    .post(
      '/maintenance/begin',
      ({ body }) => {
        const begun = maintenance.begin(checked(deps, body))
        note('maintenance.begun', begun)
        return { maintenance: begun }
      },
      { body: AdminMaintenanceBegin, parse: readBody, response },
    )
    .post(
      '/maintenance/end',
      () => {
        if (maintenance.end()) note('maintenance.ended', {})
        return { maintenance: null }
      },
      { response },
    )
}

/** Returns the notice with its end in full. Faults: conflict (a fleet drains its hosts), invalid_request (`until`). */
function checked({ status, clock }: MaintenanceDeps, asked: AdminMaintenanceBegin): AdminMaintenanceBegin {
  const { fleet } = status()
  if (fleet !== null) {
    const message = `this host is in a fleet, which places what is new on its other hosts: use \`strongroom fleet drain ${fleet.name}\``
    throw new Fault('conflict', message)
  }
  if (asked.until === null) return asked
  const untilMs = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?Z$/.test(asked.until)
    ? Date.parse(asked.until)
    : Number.NaN
  const refuse = (problem: string) => new Fault('invalid_request', `until: ${problem}`, { param: 'until' })
  if (Number.isNaN(untilMs)) throw refuse('not a time in UTC like 2026-11-30T23:00Z')
  if (untilMs <= clock.nowMs()) throw refuse('this time has passed; give a later one, or none')
  return { ...asked, until: iso(untilMs) }
}
