// Egress limits in the admin interface: raised once, on record with their event before the firewall has them, and
// never lowered.

import { expect, test } from 'bun:test'
import { Fault } from '../../src/base/fault.ts'
import { egressLimitBytesMax } from '../../src/contract/admin/egress.ts'
import { egressLimitBytes } from '../../src/contract/http/instance.ts'
import { instances } from '../../src/store/directory/instance.table.ts'
import { recordEgress } from '../../src/store/ledger/egress.query.ts'
import { dismissVm } from '../../src/store/ledger/vm.query.ts'
import { egressAdmin, nowMs, vmId } from '../rigs/instances/egress-admin.ts'

const gib = 1024 ** 3

test('goal: a limit is raised once however often that is said, with who, from what, to what and why in the journal', async () => {
  const { store, firewall, raise, run, limit, events } = egressAdmin()
  run()
  recordEgress(store.ledger.db, [
    { vmId, usedBytes: egressLimitBytes, rescueBytes: 0, observedAtMs: nowMs, blockedAtMs: nowMs },
  ])
  const asked = { to_bytes: 20 * gib, reason: 'ticket 7' }
  for (let time = 0; time < 3; time += 1) expect(await raise(asked)).toMatchObject({ status: 200, limit: 20 * gib })
  // The repeated ones go to the firewall too: the first may not have reached it.
  expect([firewall.applied, limit()]).toEqual([3, 20 * gib])
  const common = { slug: 'acme', name: 'abcd2345', operator: 'alice', usedBytes: egressLimitBytes }
  const first = { ...common, reason: 'ticket 7', fromBytes: egressLimitBytes, toBytes: 20 * gib }
  expect(events()).toEqual([['instance.egress_raised', first]])
  expect(await raise({ by_bytes: gib })).toMatchObject({ status: 200, limit: 21 * gib })
  expect(events()[0]?.[1]).toEqual({ ...common, reason: null, fromBytes: 20 * gib, toBytes: 21 * gib })
})

test('goal: what cannot be is refused with the field that is wrong, and changes nothing', async () => {
  const { store, firewall, raise, run, limit, events } = egressAdmin()
  // Not launched yet.
  expect(await raise({ to_bytes: 9 * gib })).toMatchObject({ status: 409, code: 'conflict', param: 'instance' })
  run()
  const table = [
    [{}, 400, 'invalid_request', 'to_bytes'],
    [{ to_bytes: 9 * gib, by_bytes: 1 }, 400, 'invalid_request', 'to_bytes'],
    [{ to_bytes: egressLimitBytes - 1 }, 409, 'conflict', 'to_bytes'],
    [{ to_bytes: 1 }, 409, 'conflict', 'to_bytes'],
    [{ by_bytes: egressLimitBytesMax }, 400, 'invalid_request', 'by_bytes'],
  ] as const
  for (const [body, status, code, param] of table) expect(await raise(body)).toMatchObject({ status, code, param })
  for (const body of [
    ...[{ to_bytes: egressLimitBytesMax + 1 }, { to_bytes: 0 }, { by_bytes: -1 }, { by_bytes: 1.5 }, { to_bytes: '9' }],
    ...[
      { by_bytes: 1, operator: '' },
      { by_bytes: 1, reason: 'x'.repeat(501) },
      { by_bytes: 1, more: 1 },
    ],
  ])
    expect(await raise(body)).toMatchObject({ status: 400, code: 'invalid_request' })
  expect(await raise({ by_bytes: 1 }, 'acme/nothing1')).toMatchObject({ status: 404, code: 'not_found' })
  store.directory.db.update(instances).set({ desired: 'absent' }).run()
  expect(await raise({ by_bytes: 1 })).toMatchObject({ status: 409, param: 'instance' })
  store.directory.db.update(instances).set({ desired: 'present' }).run()
  dismissVm(store.ledger.db, vmId)
  expect(await raise({ by_bytes: 1 })).toMatchObject({ status: 409, param: 'instance' })
  store.directory.db.update(instances).set({ vmId: null }).run()
  expect(await raise({ by_bytes: 1 })).toMatchObject({ status: 409, param: 'instance' })
  expect([firewall.applied, limit(), events()]).toEqual([0, null, []])
})

test('goal: a firewall that fails is told as that, the limit stays on record, and said again it is applied', async () => {
  const { firewall, raise, run, limit, events } = egressAdmin()
  run()
  firewall.failure = new Fault('host.command_failed', 'nft: no')
  const refused = await raise({ to_bytes: 9 * gib })
  expect(refused).toMatchObject({ status: 500, code: 'host.command_failed' })
  expect(refused.message).toContain('the limit is on record')
  expect([limit(), events().length]).toEqual([9 * gib, 1])
  firewall.failure = null
  expect(await raise({ to_bytes: 9 * gib })).toMatchObject({ status: 200, limit: 9 * gib })
  expect([firewall.applied, events().length]).toEqual([2, 1])
})
