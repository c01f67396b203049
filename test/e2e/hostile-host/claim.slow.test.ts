// A host that gives an instance another claim than it shows to the owner. The guest's own code states its claim, an
// unmodified verifier judges it; the simulated platform stands for the hardware.

import { describe, expect, test } from 'bun:test'
import { type TSchema, TypeGuard } from '@sinclair/typebox'
import { operatorKey } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import {
  documentOf,
  drawnOf,
  sampleClaim,
  sampleGateway,
  sampleNetwork,
} from '../../../scripts/rigs/instances/sample-claim.ts'
import { simulatedAsOf } from '../../../scripts/rigs/launch/simulated-platform.ts'
import type { Policy } from '../../../src/attest/policy/policy.ts'
import { encodeReceipt } from '../../../src/attest/receipt/receipt.ts'
import { makeReceiptKeys } from '../../../src/attest/receipt/receipt-keys.ts'
import { reportDataOf } from '../../../src/attest/receipt/statement.ts'
import { fromHex, toBase64Url, toHex } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import type { EgressPolicy } from '../../../src/contract/http/egress-policy.ts'
import { Claim } from '../../../src/contract/vm/claim.ts'
import { claimText } from '../../../src/contract/vm/claim-document.ts'
import type { AttestedGateway, InferenceGateway } from '../../../src/contract/vm/inference-gateway.ts'
import { launchText } from '../../../src/contract/vm/launch.ts'
import { Network } from '../../../src/contract/vm/network.ts'
import { recordOf } from '../../../src/guest/claim-record.ts'
import { createEvidence } from '../../../src/guest/evidence.ts'
import { toAttestation } from '../../../src/instances/attestation.codec.ts'
import { nativeKeys } from '../../../src/linux/native-keys.ts'
import { type ExpectedGateway, gatewayKeyCheck, readClaim } from '../../../src/verifier/claim.ts'
import { type InstanceQuestion, verifyInstance } from '../../../src/verifier/instance.ts'
import { allInstancePins } from '../../../src/verifier/instance-pins.ts'
import { signedOf } from '../../../src/vm/evidence/evidence.driver.ts'
import {
  instanceQuestion,
  platformEvidence,
  sampleGatewayPolicy,
  sampleHostKey,
  sampleInstance,
  sampleLaunch,
  sampleMeasurement,
  sampleNonce,
  samplePublicKey,
} from '../../rigs/instances/instance-attestation.ts'

const owner = { ...sampleInstance, publicKey: samplePublicKey }
const simulated = { measurement: toHex(sampleMeasurement), operatorKey: toHex(operatorKey) }
const guest = createEvidence({
  paths: { receipt: '/nonexistent/receipt' },
  owner: { uid: 0, gid: 0 },
  keys: makeReceiptKeys(systemRandom, nativeKeys),
  device: Promise.resolve(null),
  imageName: 'instance',
  ordered: () => ({ loginKeys: null, egressPolicy: null, secrets: null, published: null }),
  nowMs: () => simulatedAsOf.getTime(),
  tpm: async () => null,
})

type Handed = { readonly claim: Claim; readonly network: Network | null }
const honest: Handed = { claim: sampleClaim(owner), network: sampleNetwork }

function recordWith({ claim, network }: Handed) {
  return recordOf(claim, { sshHostKey: sampleHostKey, network, key: drawnOf(claim) })
}

/** The checks that failed, where the guest was handed one thing and its owner is shown another. */
async function judge(handed: Handed, shown: Handed = handed, changes: Partial<InstanceQuestion> = {}) {
  const record = recordWith(handed)
  const made = await guest.make({ nonce: toBase64Url(sampleNonce), simulated }, record)
  if (!made.ok) throw new Error(made.message)
  const launch = launchText(sampleLaunch)
  const signed = signedOf(made.evidence)
  const evidence = await platformEvidence(reportDataOf(signed.statement), launch)
  const document = toAttestation(
    { receipt: encodeReceipt({ platform: 'simulated', ...signed, evidence }), launch },
    {
      nonce: sampleNonce,
      claimed: { ...owner, sshHostKey: sampleHostKey, claim: claimText(documentOf(shown.claim, shown.network)) },
    },
  )
  const found = await verifyInstance(document, await instanceQuestion(changes))
  const bad = found.checks.filter(
    check => check.outcome === 'fail' || (check.required && check.outcome === 'not-checked'),
  )
  const prompts = found.checks.find(check => check.name === 'prompts')
  const key = found.checks.find(check => check.name === 'gateway-key')?.reason
  return { ok: found.ok, knownHost: found.knownHost, failed: bad.map(check => check.name), prompts, key }
}

type Path = readonly string[]

/** Every leaf of a schema: what has no fields of its own. Each alternative of a union is walked. */
function leavesOf(schema: TSchema, at: Path = []): Path[] {
  if (TypeGuard.IsUnion(schema)) return schema.anyOf.flatMap(schema => leavesOf(schema, at))
  if (!TypeGuard.IsObject(schema)) return [at]
  return Object.entries(schema.properties).flatMap(([name, inner]) => leavesOf(inner, [...at, name]))
}

const policy: EgressPolicy = { default: 'refuse', allow: [{ host: 'github.com', port: 443 }] }
const unattested: InferenceGateway = { kind: 'unattested', why: 'host', ca: 'PEM' }
const gateways: readonly InferenceGateway[] = [
  { ...sampleGateway, allow: ['kept-responses'] },
  unattested,
  { kind: 'none' },
]

/** Value at a path; undefined: none. */
function valueAt(value: unknown, path: Path): unknown {
  return path.reduce<unknown>((node, name) => (node === null ? undefined : Reflect.get(Object(node), name)), value)
}

/** The same with something else there. */
function changedAt<T>(value: T, path: Path): T {
  const copy = structuredClone(value)
  const parent = valueAt(copy, path.slice(0, -1))
  const name = path.at(-1) ?? ''
  Reflect.set(Object(parent), name, otherThan(Reflect.get(Object(parent), name)))
  return copy
}

function otherThan(value: unknown): unknown {
  if (typeof value === 'number') return value + 1
  if (typeof value === 'boolean') return !value
  if (typeof value === 'string') return `${value}0`
  if (Array.isArray(value)) return [...value, 'other']
  return 'other'
}

describe('each field that a host hands to an instance', () => {
  const paths = (schema: TSchema) => [...new Set(leavesOf(schema).map(path => path.join('.')))]

  // Goal: every field of claim and network is attested, new ones included: the guest states any change, and an owner
  // who is shown another document gets no PASS.
  test.each(paths(Claim))('claim.%s', async text => {
    const path = text.split('.')
    const claims = gateways
      .map(gateway => sampleClaim(owner, gateway))
      .map(claim => ({ ...claim, egress: { ...claim.egress, policy } }))
      .filter(item => valueAt(item, path) !== undefined)
    expect(claims.length).toBeGreaterThan(0)
    for (const claim of claims) await expectCaught({ ...honest, claim: changedAt(claim, path) }, { ...honest, claim })
  })

  // Goal: the same of the network.
  test.each(paths(Network))('network.%s', async text => {
    const path = text.split('.')
    expect(valueAt(sampleNetwork, path)).toBeDefined()
    await expectCaught({ ...honest, network: changedAt(sampleNetwork, path) }, honest)
  })

  async function expectCaught(handed: Handed, shown: Handed): Promise<void> {
    const digest = (handed: Handed) => recordWith(handed).sha256
    expect(digest(handed)).not.toBe(digest(shown))
    const { ok, failed, knownHost } = await judge(handed, shown)
    expect([ok, knownHost]).toEqual([false, null])
    expect(failed).toContain('receipt/claim-document')
  }

  test('goal: the honest one passes, or nothing here proves anything', async () => {
    const { ok, failed, prompts } = await judge(honest)
    expect([ok, failed, prompts?.outcome]).toEqual([true, [], 'pass'])
    expect(prompts?.reason).toBe(
      'prompts go to https://inference.strongroom.internal:8442/v1, model tiny: inside the measured VM c1c1c1c1c1c1c1c1…, workload.json c3c3c3c3c3c3c3c3…',
    )
  })
})

describe('a host that says truly where it sends the prompts', () => {
  const asked: ExpectedGateway = { policy: sampleGatewayPolicy, outside: [], unattested: 'none' }
  const withGateway = (gateway: InferenceGateway, more: Partial<Claim['inference']> = {}): Handed => {
    const claim = sampleClaim(owner, gateway)
    return { ...honest, claim: { ...claim, inference: { ...claim.inference, ...more } } }
  }
  const attested = (changes: Partial<AttestedGateway>) => withGateway({ ...sampleGateway, ...changes })
  const other = 'dd'.repeat(48)

  // Goal: every way out of the gateway that the owner expects fails, by the name `prompts`, and in words.
  test.each<readonly [string, Handed, string]>([
    ['a gateway of another image', attested({ measurements: [other] }), 'none of those that you expect'],
    ['another image beside it', attested({ measurements: ['c1'.repeat(48), other] }), 'none of those that you expect'],
    ["a stranger's gateway", attested({ operatorKey: other }), `operator key is ${other}`],
    ['an upstream outside', attested({ outside: ['cloud'] }), 'accept that by --allow-outside cloud'],
    ['labels for the host', attested({ allow: ['usage-labels'] }), 'accept that by --allow usage-labels'],
    ['streams without padding', attested({ allow: ['no-padding'] }), 'accept that by --allow no-padding'],
    ['content that is kept', attested({ allow: ['kept-responses'] }), 'accept that by --allow kept-responses'],
    ['the host itself', withGateway(unattested), 'accept that with --unattested-gateway host'],
    [
      'a gateway without a worker',
      withGateway({ kind: 'unattested', why: 'no-worker', ca: null }),
      'accept that with --unattested-gateway no-worker',
    ],
    [
      'somewhere else',
      withGateway({ kind: 'unattested', why: 'elsewhere', ca: null }, { baseUrl: 'https://evil.example/v1' }),
      'OUTSIDE, to a gateway that the operator names: prompts go to https://evil.example/v1',
    ],
    ['an address and no gateway', withGateway({ kind: 'none' }), 'and no gateway'],
    ['a gateway and no address', withGateway(sampleGateway, { baseUrl: '' }), 'no address'],
  ])('%s', async (_, handed, reason) => {
    const { ok, failed, prompts } = await judge(handed, handed, { gateway: asked })
    expect([ok, failed]).toEqual([false, ['prompts']])
    expect(prompts?.reason).toContain(reason)
    // Waiving the pin waives neither an unattested gateway, nor an upstream outside, nor what is named.
    const pins = { ...allInstancePins, gateway: 'any' as const }
    expect((await judge(handed, handed, { gateway: asked, pins })).failed).toEqual(['prompts'])
  })

  test('goal: what the owner accepts by its name passes, and nothing else does by that name', async () => {
    const onHost = withGateway(unattested)
    const accepted = await judge(onHost, onHost, { gateway: { ...asked, unattested: 'host' } })
    expect([accepted.ok, accepted.prompts?.outcome]).toEqual([true, 'pass'])
    expect(accepted.prompts?.reason).toStartWith('OUTSIDE, to the process of a host: prompts go to ')
    const wrong = await judge(onHost, onHost, { gateway: { ...asked, unattested: 'no-worker' } })
    expect(wrong.failed).toEqual(['prompts'])
    const cloud = attested({ outside: ['cloud', 'far'] })
    const some = await judge(cloud, cloud, { gateway: { ...asked, outside: ['cloud'] } })
    expect(some.failed).toEqual(['prompts'])
    const all = await judge(cloud, cloud, { gateway: { ...asked, outside: ['far', 'cloud', 'more'] } })
    const words = 'OUTSIDE upstreams may get them from there (cloud, far): prompts go to '
    expect([all.ok, all.prompts?.reason.startsWith(words)]).toEqual([true, true])
  })

  test('goal: without a policy for the gateway there is no PASS; the waiver accepts any gateway that is measured', async () => {
    const gateway = { ...asked, policy: 'any' as const }
    expect((await judge(honest, honest, { gateway })).failed).toEqual(['pin-gateway'])
    const pins = { ...allInstancePins, gateway: 'any' as const }
    expect((await judge(honest, honest, { gateway, pins })).ok).toBe(true)
    const onHost = withGateway(unattested)
    expect((await judge(onHost, onHost, { gateway, pins })).failed).toEqual(['prompts'])
    for (const policy of [
      { ...sampleGatewayPolicy, idKeyDigest: 'any' as const },
      { ...sampleGatewayPolicy, idKeyDigest: new Uint8Array(48) },
      { ...sampleGatewayPolicy, measurements: 'any' as const },
    ]) {
      expect((await judge(honest, honest, { gateway: { ...asked, policy } })).failed).toContain('pin-gateway')
    }
  })

  test('goal: workload.json of the claim is compared with those that the owner names; they stand for a key', async () => {
    const [own, strange] = [new Uint8Array(32).fill(0xc3), new Uint8Array(32).fill(1)]
    const judged = (workloads: readonly Uint8Array[], handed = honest, policy: Policy = sampleGatewayPolicy) =>
      judge(handed, handed, { gateway: { ...asked, policy, workloads } })
    expect((await judged([strange, own])).ok).toBe(true)
    const other = await judged([strange])
    expect(other.failed).toEqual(['prompts'])
    expect(other.prompts?.reason).toContain(`may have workload.json ${'c3'.repeat(32)}, which is none of those`)
    const { workloads: _, ...unpinned } = sampleGateway
    const any = await judged([own], withGateway(unpinned))
    expect(any.prompts?.reason).toStartWith('the claim takes a gateway with any workload.json of its operator')
    // Without a key in the policy the workload says whose gateway it is.
    const byWorkload = { ...sampleGatewayPolicy, idKeyDigest: 'any' as const }
    const keyless = attested({ operatorKey: null })
    expect((await judged([own], keyless, byWorkload)).ok).toBe(true)
    expect((await judged([own], keyless)).prompts?.reason).toStartWith("the gateway's operator key is any, not ")
  })

  test('goal: what is allowed by name passes', async () => {
    const labels = attested({ allow: ['usage-labels'] })
    const found = await judge(labels, labels, { gateway: { ...asked, allow: ['usage-labels'] } })
    expect([found.ok, found.prompts?.reason.endsWith(', with usage-labels')]).toEqual([true, true])
  })

  test('goal: an owner reads who chose the gateway key', async () => {
    const keyOf = async (claim: Claim['inference']) => {
      const handed = { ...honest, claim: { ...honest.claim, inference: claim } }
      return (await judge(handed)).key
    }
    const { inference } = honest.claim
    const digest = new Bun.CryptoHasher('sha256').update('s'.repeat(32)).digest('hex')
    expect(await keyOf(inference)).toBe(`drawn inside the VM: 0a1b2c3d, SHA-256 of its secret ${digest}`)
    // A document of the former release, by its own text.
    const { key: _, ...rest } = documentOf(honest.claim).claim.inference
    const former = { ...documentOf(honest.claim) }
    const document = { ...former, claim: { ...former.claim, inference: { ...rest, keySha256: 'ab'.repeat(32) } } }
    const read = { ok: true, value: readClaim(claimText(document)) } as const
    const chosen = `the host chose the key (SHA-256 ${'ab'.repeat(32)}), and so can send requests as this instance`
    expect(gatewayKeyCheck(read, asked)).toMatchObject({
      outcome: 'fail',
      reason: `${chosen}; create another instance, or accept that by --allow host-key`,
    })
    expect(gatewayKeyCheck(read, { ...asked, allow: ['usage-labels'] }).outcome).toBe('fail')
    expect(gatewayKeyCheck(read, { ...asked, allow: ['host-key'] })).toMatchObject({
      outcome: 'pass',
      reason: `${chosen}; accepted by name`,
    })
  })

  test('goal: a gateway for which the VM drew no key passes by name alone, or with a gateway that is accepted', async () => {
    const none = withGateway(sampleGateway, { drawsKey: false })
    const found = await judge(none, none)
    expect([found.ok, found.failed, found.key]).toEqual([
      false,
      ['gateway-key'],
      'the VM drew no key, so requests come to the gateway without one, or with one that was brought into the VM; ' +
        'create another instance, or accept that by --allow host-key',
    ])
    const allowed = await judge(none, none, { gateway: { ...asked, allow: ['host-key'] } })
    expect([allowed.ok, allowed.key]).toEqual([true, expect.stringContaining('; accepted by name')])
    const elsewhere = withGateway({ ...unattested, why: 'elsewhere' }, { drawsKey: false })
    expect((await judge(elsewhere)).failed).toEqual(['gateway-key', 'prompts'])
    const accepted = await judge(elsewhere, elsewhere, { gateway: { ...asked, unattested: 'elsewhere' } })
    expect([accepted.ok, accepted.key]).toEqual([
      true,
      expect.stringContaining('; accepted with the gateway: to a gateway that the operator names'),
    ])
    const other = await judge(elsewhere, elsewhere, { gateway: { ...asked, unattested: 'host' } })
    expect(other.failed).toEqual(['gateway-key', 'prompts'])
  })

  test('goal: an instance without a gateway needs nothing named', async () => {
    const none = withGateway({ kind: 'none' }, { baseUrl: '', address: null, drawsKey: false })
    const { ok, prompts } = await judge(none, none, { gateway: { ...asked, policy: 'any' } })
    expect([ok, prompts?.reason]).toEqual([true, 'the instance has no gateway'])
  })

  test('goal: a guest without a network in force, which a host could half set before the claim, does not pass', async () => {
    const bare = { ...honest, network: null }
    expect((await judge(bare)).failed).toEqual(['claim-document'])
  })

  test('goal: several measurements pass where the policy has them all', async () => {
    const both = attested({ measurements: ['c1'.repeat(48), other] })
    const policy = {
      ...sampleGatewayPolicy,
      measurements: [fromHex('c1'.repeat(48)), fromHex(other)].flatMap(bytes => bytes ?? []),
    }
    expect((await judge(both, both, { gateway: { ...asked, policy } })).ok).toBe(true)
  })
})
