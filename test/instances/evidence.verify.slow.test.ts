// Evidence of a claimed VM against every expectation, one at a time. Evidence of the simulated platform.

import { describe, expect, test } from 'bun:test'
import { operatorKey } from '../../scripts/rigs/gateway/receipt-samples.ts'
import {
  claimedOf,
  type EvidenceChange,
  evidenceOf,
  guestHostKey,
  launchDocument,
  simulatedTrust,
} from '../../scripts/rigs/guest/attested-guest.ts'
import { publicKey } from '../../scripts/rigs/instances/instances-service.ts'
import { simulatedAsOf } from '../../scripts/rigs/launch/simulated-platform.ts'
import { AMD_ROOTS } from '../../src/attest/amd/roots.ts'
import { fromHex } from '../../src/base/bytes.ts'
import { launchText } from '../../src/contract/vm/launch.ts'
import { type ClaimedAs, judgeEvidence } from '../../src/instances/evidence.verify.ts'
import type { VmEvidence } from '../../src/vm/engine.ts'
import type { HostTrust } from '../../src/vm/evidence/launch-policy.plan.ts'

const nonce = Uint8Array.from({ length: 32 }, (_, at) => at)
const claimed: ClaimedAs = claimedOf({
  organization: 'acme',
  name: 'abcd1234',
  hostname: 'abcd1234.acme.agents.test',
  publicKey,
})
const otherKey = guestHostKey.replace('HsJz', 'HsJy')

async function judge(evidence: VmEvidence, change: { trust?: Partial<HostTrust>; claimed?: Partial<ClaimedAs> } = {}) {
  const trust = { ...(await simulatedTrust()), ...change.trust }
  return judgeEvidence(evidence, {
    nonce,
    asOf: simulatedAsOf.getTime(),
    trust,
    claimed: { ...claimed, ...change.claimed },
  })
}

/** The names of the checks that failed. */
async function failedOf(...judged: Parameters<typeof judge>): Promise<string[]> {
  const judgement = await judge(...judged)
  return judgement.ok ? [] : judgement.failed.map(line => line.split(':')[0] ?? '')
}

test('the evidence of a guest that was launched and claimed as it should is good', async () => {
  // Goal: the right evidence passes, or nothing below proves anything.
  expect(await judge(await evidenceOf({ nonce, claimed }))).toEqual({ ok: true })
})

describe('wrong evidence', () => {
  // Goal: each thing that is expected is compared, and its check is named.
  const cases: [string, EvidenceChange, string][] = [
    ['another nonce', { fields: { nonce: new Uint8Array(32) } }, 'statement-nonce'],
    ['another organization', { fields: { organization: 'globex' } }, 'expected-organization'],
    ['another name', { fields: { name: 'zzzz9999' } }, 'expected-name'],
    ['another hostname', { fields: { hostname: 'abcd1234.acme.agents.example' } }, 'expected-hostname'],
    ['another host key', { fields: { sshHostKeyDigest: new Uint8Array(32) } }, 'expected-ssh-host-key-digest'],
    ['another claim', { fields: { claimDigest: new Uint8Array(32) } }, 'expected-claim-digest'],
    ['another address for prompts', { fields: { inferenceUrl: 'https://evil/v1' } }, 'expected-inference-url'],
    ['no address for prompts', { fields: { inferenceUrl: null } }, 'expected-inference-url'],
    ['another model', { fields: { inferenceModel: 'other' } }, 'expected-inference-model'],
    ['another kind of gateway', { fields: { gateway: 'host' } }, 'expected-gateway'],
    ['another gateway', { fields: { gatewayDigest: new Uint8Array(32) } }, 'expected-gateway-digest'],
    ['other resolvers', { fields: { resolvers: ['198.51.100.53'] } }, 'expected-resolvers'],
    ['another limit of egress', { fields: { egressLimitBytes: 1 } }, 'expected-egress-limit-bytes'],
    ['other names of egress', { fields: { egressNames: 'listed' } }, 'expected-egress-names'],
    ["another customer's key", { fields: { publicKeyDigest: new Uint8Array(32) } }, 'expected-public-key-digest'],
    [
      'another image',
      { fields: { image: { name: 'staging', measurement: fromHex(launchDocument.measurement) ?? nonce } } },
      'expected-image-name',
    ],
    ['another host data', { report: { hostData: new Uint8Array(32) } }, 'host-data'],
    [
      'another launch document',
      { launch: launchText({ ...launchDocument, vcpus: 3 }), report: { hostData: new Uint8Array(32).fill(1) } },
      'host-data',
    ],
    [
      'a guest that may be debugged',
      { report: { report: { idKeyDigest: operatorKey, policy: 0xb0000n } } },
      'guest-policy-debug',
    ],
    [
      'a guest that may be migrated',
      { report: { report: { idKeyDigest: operatorKey, policy: 0x70000n } } },
      'guest-policy-migrate',
    ],
    [
      'a guest policy without SMT',
      { report: { report: { idKeyDigest: operatorKey, policy: 0x20000n } } },
      'guest-policy-smt',
    ],
    ['VMPL 1', { report: { report: { idKeyDigest: operatorKey, vmpl: 1 } } }, 'vmpl'],
  ]
  for (const [what, change, name] of cases) {
    // Goal: this one difference is found, by the check that is named for it.
    test(`${what} fails`, async () => {
      expect(await failedOf(await evidenceOf({ nonce, claimed }, change))).toContain(name)
    })
  }

  test('a launch that this host did not make fails, though its report is honest about it', async () => {
    // Goal: the measurement is that of the launch on record; what the guest states of itself is not enough.
    const launch = launchText({ ...launchDocument, measurement: '00'.repeat(48) })
    expect(await failedOf(await evidenceOf({ nonce, claimed }, { launch }))).toContain('measurement')
  })

  test('a document that asks for debug is not obeyed', async () => {
    // Goal: what this host has on record cannot make a VM good that the host may read.
    const launch = launchText({ ...launchDocument, policy: '0xb0000' })
    const change = { launch, report: { report: { idKeyDigest: operatorKey, policy: 0xb0000n } } }
    expect(await failedOf(await evidenceOf({ nonce, claimed }, change))).toEqual(['evidence', 'guest-policy-debug'])
  })

  test('evidence for another claim fails for this one', async () => {
    // Goal: expectations come from the claim; a recorded receipt of another instance, organization or key is refused.
    const evidence = await evidenceOf({ nonce, claimed })
    expect(await failedOf(evidence, { claimed: { organization: 'globex' } })).toEqual(['expected-organization'])
    expect(await failedOf(evidence, { claimed: { name: 'zzzz9999' } })).toEqual(['expected-name'])
    expect(await failedOf(evidence, { claimed: { sshHostKey: otherKey } })).toEqual(['expected-ssh-host-key-digest'])
    expect(await failedOf(evidence, { claimed: { publicKey: otherKey } })).toEqual(['expected-public-key-digest'])
  })

  test("another operator's key, and roots that are not this platform's, fail", async () => {
    // Goal: whose VM it is and what vouches for it are not taken from the evidence.
    const evidence = await evidenceOf({ nonce, claimed })
    expect(await failedOf(evidence, { trust: { operatorKeys: [new Uint8Array(48)] } })).toEqual(['operator-key'])
    expect(await failedOf(evidence, { trust: { operatorKeys: [] } })).toEqual(['operator-key'])
    expect(await failedOf(evidence, { trust: { roots: AMD_ROOTS } })).toContain('evidence')
    // A simulation is not taken for hardware, whatever the roots say.
    expect(await failedOf(evidence, { trust: { simulated: false } })).toEqual(['simulated'])
  })

  test('a VM is held to the operator key of its own launch, and to no other that this host has had', async () => {
    // Goal: VMs outlive a change of the operator key; a report by one key is no evidence of a launch by another.
    const other = new Uint8Array(48).fill(9)
    const trust = { operatorKeys: [other, operatorKey] }
    expect(await failedOf(await evidenceOf({ nonce, claimed }), { trust })).toEqual([])
    const launchedWithOther = await evidenceOf({ nonce, claimed }, { launchedWith: other })
    expect(await failedOf(launchedWithOther, { trust })).toContain('id-key-digest')
    expect(await failedOf(launchedWithOther, { trust })).toContain('expected-operator-key')
  })

  test('a launch document that is not in its canonical form, or none, fails', async () => {
    // Goal: HOST_DATA is the digest of one text; whatever else is read as the same document is refused.
    const evidence = await evidenceOf({ nonce, claimed })
    for (const launch of [
      `${evidence.launch} `,
      evidence.launch.replace('"vcpus":2', '"vcpus":0'),
      '{}',
      '',
      '{"a":1,"a":1}',
    ]) {
      const judgement = await judge({ ...evidence, launch })
      expect([launch, judgement.ok]).toEqual([launch, false])
    }
  })

  test('a key that is no key line fails; nothing throws', async () => {
    // Goal: what cannot be read is not good, and is no crash.
    const evidence = await evidenceOf({ nonce, claimed })
    expect((await judge(evidence, { claimed: { sshHostKey: 'ssh-ed25519' } })).ok).toBe(false)
    const broken = { ...evidence, receipt: { ...evidence.receipt, statement: 'AA' } }
    expect((await judge(broken)).ok).toBe(false)
  })
})
