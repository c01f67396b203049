import { expect, test } from 'bun:test'
import { quotaNames, rulesetText, tapOfQuota } from '../../src/vm/nft.plan.ts'
import { expectGolden } from '../rigs/golden.ts'
import { guest, objectsOf, plan, unspent } from '../rigs/two-guests.ts'

test('the ruleset of two VMs, with a third one going', () => {
  // Goal: the whole text is deliberate; a change shows up as a change of the golden text.
  expectGolden('nft-two-vms.nft', rulesetText(plan({ removed: objectsOf('srtest000003') })))
})

test('rules do not grow with VMs, and no name comes from a user', () => {
  // Goal: dispatch is by sets and maps; a hundred VMs have the rules of one.
  const rulesOf = (text: string) => text.split('\n').filter(line => line.startsWith('add rule'))
  const many = plan({
    vms: Array.from({ length: 100 }, (_, n) => ({
      ...guest(1),
      tap: `sr${n}`,
      ...unspent,
      opened: n % 2 === 0,
      network: n % 3 === 0 ? 'fetch' : 'world',
    })),
  })
  expect(rulesOf(rulesetText(many))).toEqual(rulesOf(rulesetText(plan())))
})

test('both quotas of a VM lead to its tap, which is the name in the ledger', () => {
  // Goal: `doctor --leaks` takes neither for something that nobody owns.
  for (const name of Object.values(quotaNames('sr0123456789'))) expect(tapOfQuota(name)).toBe('sr0123456789')
})
