import { expect, test } from 'bun:test'
import { gatewayVmPlan } from '../../../scripts/rigs/gateway/guests.ts'
import { guest, objectsOf, plan, planV6, unspent } from '../../../scripts/rigs/guest/two-guests.ts'
import { parseEgressEntryV6 } from '../../../src/config/egress-v6.ts'
import { openNamesText } from '../../../src/vm/network/egress-names.plan.ts'
import { quotaNames, rulesetText, tapOfQuota } from '../../../src/vm/network/nft.plan.ts'
import { expectGolden } from '../../rigs/golden.ts'

test('the ruleset of two VMs, with a third one going', () => {
  // Goal: the whole text is deliberate; a change shows up as a change of the golden text.
  expectGolden('nft-two-vms.nft', rulesetText(plan({ removed: objectsOf('srtest000003') })))
})

test('the ruleset of two VMs with IPv6, beside IPv4 and alone', () => {
  // Goal: as above; without IPv6 the text above stays as it is.
  expectGolden('nft-two-vms-dual.nft', rulesetText(planV6({ ownNetworks: ['192.0.2.0/24', '2a0f:1::/64'] })))
  const allowed = ['[fd00::/8]:443', '2a0f:2::9'].flatMap(text => parseEgressEntryV6(text) ?? [])
  expectGolden('nft-two-vms-v6.nft', rulesetText(planV6({ alone: true, v6: { allowed } })))
})

test('the ruleset with the gateway in VMs', () => {
  // Goal: as above, with a gateway VM each that drains, serves and is not opened yet, an instance and a build VM.
  const vms = { 5: { opened: false } }
  expectGolden('nft-gateway.nft', rulesetText(gatewayVmPlan({ service: { address: guest(2).address }, vms })))
})

test('the ruleset where a VM publishes ports, another has unpublished them, and a third one is not opened', () => {
  // Goal: as above; strangers have shares of each VM's port in both families, and rates.
  const change = [
    { published: { limitBytes: 300, usedBytes: 200 } },
    { published: { limitBytes: 0, usedBytes: 0 } },
    { opened: false, published: { limitBytes: 300, usedBytes: 0 } },
  ]
  const { vms } = planV6()
  const all = change.map((changed, n) => ({ ...(vms[0] ?? never()), ...guest(n + 1), addressV6: null, ...changed }))
  expectGolden('nft-published.nft', rulesetText(planV6({ publicPort: 443, vms: all })))
})

test('the ruleset where instances reach the world by name alone', () => {
  // Goal: as above; what is of another list goes.
  const names = { port: 53, isStale: false }
  expectGolden('nft-names.nft', rulesetText(plan({ names })))
  expectGolden('nft-names-dual.nft', rulesetText(planV6({ names: { ...names, isStale: true } })))
})

test('the addresses that names lead to, for a time each', () => {
  // Goal: what is open already gets the new time, and what is not is opened, in one transaction.
  const [four, six] = ['names_v4 { 198.51.100.7', 'names_v6 { 2a0f:2::9'].map(text => `element inet strongroom ${text}`)
  const addresses = [
    { address: '198.51.100.7', timeoutMs: 90_000 },
    { address: '2a0f:2::9', timeoutMs: 10 },
  ]
  const added = [`add ${four} timeout 90s }`, `add ${six} timeout 1s }`]
  const text = [...added, `delete ${four} }`, `delete ${six} }`, ...added].join('\n')
  expect(openNamesText('strongroom', addresses)).toBe(`${text}\n`)
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
      network: (['fetch', 'world', 'gateway'] as const)[n % 3] ?? 'world',
    })),
  })
  expect(rulesOf(rulesetText(many))).toEqual(rulesOf(rulesetText(plan())))
  const { gatewayListen, gatewayVmService } = gatewayVmPlan()
  const served = { gatewayListen, gatewayVmService }
  expect(rulesOf(rulesetText({ ...many, ...served }))).toEqual(rulesOf(rulesetText(plan(served))))
  // Nor with upstreams.
  const upstreams = Array.from({ length: 100 }, (_, n) => ({ address: `192.0.2.${n}`, port: 443 }))
  const further = gatewayVmPlan({ service: { upstreams } })
  expect(rulesOf(rulesetText(further))).toEqual(rulesOf(rulesetText(gatewayVmPlan())))
})

test('both quotas of a VM lead to its tap, which is the name in the ledger', () => {
  // Goal: `doctor --leaks` takes neither for something that nobody owns.
  for (const name of Object.values(quotaNames('sr0123456789'))) expect(tapOfQuota(name)).toBe('sr0123456789')
})

function never(): never {
  throw new Error('the plan has VMs')
}
