// Goal: what answers of published ports have used is kept while the VM lives, whatever its owner orders.

import { expect, test } from 'bun:test'
import { openStore } from '../../../../src/store/db.ts'
import { PublishedAllowances } from '../../../../src/vm/network/published/allowances.ts'

test('goal: neither an order nor a restart renews an allowance, and VMs that are gone are forgotten', () => {
  const { ledger } = openStore(':memory:')
  const open = () => new PublishedAllowances(ledger)
  const first = open()
  expect([first.set('vm1', 0), first.of('vm1')]).toEqual([false, undefined])
  expect([first.set('vm1', 500), first.set('vm1', 500), first.set('vm2', 10)]).toEqual([true, false, true])
  first.noteUsed('vm1', 400)
  first.noteUsed('vm1', 300)
  first.noteUsed('vm3', 300)
  first.store(new Set(['vm1', 'vm2']))
  expect(open().of('vm1')).toEqual({ limitBytes: 500, usedBytes: 400 })
  // Unpublished and published again.
  first.set('vm1', 0)
  first.set('vm1', 600)
  expect(open().of('vm1')).toEqual({ limitBytes: 600, usedBytes: 400 })
  first.store(new Set(['vm1']))
  expect([open().of('vm1')?.usedBytes, open().of('vm2'), open().of('vm3')]).toEqual([400, undefined, undefined])
})
