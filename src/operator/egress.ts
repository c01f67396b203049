// Egress limits of instances in the admin interface. Effects: the store; the firewall through a function.
//
// The limit is stored in this host's ledger with its event first. A daemon that ends in between applies it to the
// firewall at its next start.

import { Type } from '@sinclair/typebox'
import { Elysia } from 'elysia'
import { Fault, wrapFault } from '../base/fault.ts'
import { AdminInstance, InstanceReference } from '../contract/admin/admin.ts'
import { AdminEgressRaise, egressLimitBytesMax } from '../contract/admin/egress.ts'
import { egressLimitBytes } from '../contract/http/instance.ts'
import type { LedgerDb } from '../store/db.ts'
import { egressOf, raiseEgressLimit } from '../store/ledger/egress.query.ts'
import { appendEvent } from '../store/ledger/event.query.ts'
import { vmById } from '../store/ledger/vm.query.ts'
import type { AdminDeps, ReadBody } from './deps.ts'
import { type InstancesDeps, instanceByReference, instanceView, type OwnedInstance } from './instances.ts'

type EgressDeps = InstancesDeps & Pick<AdminDeps, 'clock' | 'applyEgressLimits'>

export function egressRoutes(deps: EgressDeps, readBody: ReadBody) {
  return new Elysia({ normalize: false }).post(
    '/instance/egress-limit',
    ({ query, body }) => raise(deps, query.ref, body),
    {
      query: Type.Object({ ref: InstanceReference }),
      body: AdminEgressRaise,
      parse: readBody,
      response: AdminInstance,
    },
  )
}

/**
 * Raises a limit. Faults: not_found, invalid_request, conflict, host.* (the limit is stored, but not in the firewall
 * yet).
 */
async function raise(deps: EgressDeps, reference: string, asked: AdminEgressRaise): Promise<AdminInstance> {
  const { store, clock } = deps
  const owned = instanceByReference(store.directory.db, reference)
  const nowMs = clock.nowMs()
  store.ledger.transact(tx => raiseOnRecord(tx, owned, { asked, nowMs }))
  try {
    await deps.applyEgressLimits()
  } catch (error) {
    throw wrapFault(error, 'the limit is on record, and every sample tries again to bring it into the firewall')
  }
  return instanceView(deps, instanceByReference(store.directory.db, owned.instance.id))
}

/**
 * Stores the limit with its event. A limit that is already in force changes nothing. Faults: invalid_request, conflict.
 */
function raiseOnRecord(
  tx: LedgerDb,
  { instance, organization }: OwnedInstance,
  { asked, nowMs }: { asked: AdminEgressRaise; nowMs: number },
): void {
  const { vmId } = instance
  const vm = vmId === null ? null : vmById(tx, vmId)
  if (vmId === null || vm?.state !== 'running' || vm.desired !== 'running' || instance.desired !== 'present') {
    const message = `instance ${instance.name} is ${instance.status}: an egress limit is raised only while its VM runs`
    throw new Fault('conflict', message, { param: 'instance' })
  }
  const limitBytes = vm.egressLimitBytes ?? egressLimitBytes
  const usedBytes = egressOf(tx, vmId)?.usedBytes ?? 0
  const { toBytes, param } = wantedLimit(asked, limitBytes)
  if (toBytes > egressLimitBytesMax) {
    throw new Fault('invalid_request', `a limit is at most ${egressLimitBytesMax} bytes, not ${toBytes}`, { param })
  }
  if (toBytes < limitBytes) {
    const message = `the limit is ${limitBytes} bytes now, of which ${usedBytes} are used, and is only raised; ${toBytes} is less`
    throw new Fault('conflict', message, { param })
  }
  if (toBytes === limitBytes) return
  raiseEgressLimit(tx, { vmId, limitBytes: toBytes })
  const { reason, operator } = asked
  appendEvent(tx, {
    nowMs,
    kind: 'instance.egress_raised',
    subject: instance.id,
    detail: {
      slug: organization.slug,
      name: instance.name,
      operator,
      reason,
      fromBytes: limitBytes,
      toBytes,
      usedBytes,
    },
  })
}

/** Returns the requested limit. Throws Fault invalid_request. */
function wantedLimit({ to_bytes: to, by_bytes: by }: AdminEgressRaise, limitBytes: number) {
  if (to !== null && by === null) return { toBytes: to, param: 'to_bytes' }
  if (by !== null && to === null) return { toBytes: limitBytes + by, param: 'by_bytes' }
  const message = 'say either the new limit (to_bytes) or how much more (by_bytes), not both; the other is null'
  throw new Fault('invalid_request', message, { param: 'to_bytes' })
}
