// Goal: the claim document of an instance is of exactly this instance, and prompts go where its owner expects; each
// other gateway, key, upstream or setting fails by its check, and is accepted by its own name alone.

import { describe, expect, test } from 'bun:test'
import { sampleDocument, sampleGateway, sampleKey } from '../../scripts/rigs/instances/sample-claim.ts'
import { sha256 } from '../../src/attest/hash.ts'
import type { Parsed } from '../../src/attest/malformed.ts'
import { present } from '../../src/base/assert.ts'
import { fromHex, utf8 } from '../../src/base/bytes.ts'
import { type ClaimDocument, claimText } from '../../src/contract/vm/claim-document.ts'
import type { AttestedGateway, InferenceGateway } from '../../src/contract/vm/inference-gateway.ts'
import {
  acceptedReason,
  claimCheckNames,
  claimDocumentCheck,
  type ExpectedGateway,
  expectedClaim,
  gatewayKeyCheck,
  pinnedGateway,
  promptsCheck,
  readClaim,
} from '../../src/verifier/claim.ts'

const owner = { organization: 'acme', name: 'k3v9x2ma', hostname: 'k3v9x2ma.acme.agents.example', publicKey: 'key' }
const bytes = (hex: string) => present(fromHex(hex), 'hexadecimal')
const [measurement, otherMeasurement] = ['c1'.repeat(48), 'd1'.repeat(48)]
const [operatorKey, otherKey] = ['c2'.repeat(48), 'd2'.repeat(48)]
const [workload, otherWorkload] = ['c3'.repeat(32), 'd3'.repeat(32)]
const url = 'https://inference.strongroom.internal:8442/v1'

type Inference = ClaimDocument['claim']['inference']
const good = sampleDocument(owner)
const elsewhere: InferenceGateway = { kind: 'unattested', why: 'elsewhere', ca: null }
const unreadable: Parsed<ClaimDocument> = { ok: false, reason: 'claim document: no JSON' }

function read(value: ClaimDocument): Parsed<ClaimDocument> {
  return { ok: true, value }
}
function withInference(changes: Partial<Inference>): Parsed<ClaimDocument> {
  return read({ ...good, claim: { ...good.claim, inference: { ...good.claim.inference, ...changes } } })
}
function withGateway(changes: Partial<AttestedGateway>): Parsed<ClaimDocument> {
  return withInference({ gateway: { ...sampleGateway, simulatedRoot: null, ...changes } })
}
const { workloads: _, ...anyWorkload } = sampleGateway
const anyWorkloadClaim = withInference({ gateway: { ...anyWorkload, simulatedRoot: null } })

const owned: ExpectedGateway = {
  policy: { measurements: [bytes(measurement)], idKeyDigest: bytes(operatorKey) },
  outside: [],
  unattested: 'none',
}

describe('the text', () => {
  /** A document of exactly `length` characters: its public key fills it. */
  const textOf = (length: number): string => {
    const outside = Array.from({ length: 64 }, (_, at) => `u${at}=${'x'.repeat(630)}`)
    const make = (publicKey: string) =>
      claimText(
        sampleDocument({ ...owner, publicKey }, { ...sampleGateway, simulatedRoot: 'r'.repeat(9_000), outside }),
      )
    return make('k'.repeat(length - make('').length))
  }

  test('goal: the canonical text of a document is read, up to 65,536 characters', () => {
    expect(readClaim(claimText(good))).toEqual(good)
    const longest = textOf(65_536)
    expect([longest.length, readClaim(longest).format]).toEqual([65_536, 'strongroom/claim/v1'])
    const longer = textOf(65_537)
    expect(longer).toHaveLength(65_537)
    expect(() => readClaim(longer)).toThrow('claim document: 65537 characters are too many')
  })

  test('goal: another spelling, another format, a field more and no JSON are refused in words', () => {
    expect(() => readClaim(`${claimText(good)}\n`)).toThrow('claim document: not in its canonical form')
    expect(() => readClaim(JSON.stringify(good, null, 1))).toThrow('claim document: not in its canonical form')
    const v2 = claimText({ ...good, format: 'strongroom/claim/v2' } as unknown as ClaimDocument)
    expect(() => readClaim(v2)).toThrow('claim document: /format')
    expect(() => readClaim(claimText({ ...good, more: 1 } as unknown as ClaimDocument))).toThrow('claim document: ')
    expect(() => readClaim('x')).toThrow('claim document is not valid JSON')
  })

  test('goal: the receipt has to have nine fields of it; where it cannot be read nothing equals them', () => {
    const equal = expectedClaim(read(good))
    const hashed = (text: string) => ({ equals: sha256(utf8(text)) })
    expect(equal).toMatchObject({
      claimDigest: hashed(claimText(good)),
      inferenceUrl: { equals: url },
      inferenceModel: { equals: 'tiny' },
      gateway: { equals: 'attested' },
      resolvers: { equals: ['192.0.2.53'] },
      egressLimitBytes: { equals: 5_368_709_120 },
      egressNames: { equals: 'any' },
      gatewayKeyDigest: { equals: sha256(utf8('s'.repeat(32))) },
    })
    expect(expectedClaim(unreadable)).toEqual({
      claimDigest: { equals: new Uint8Array(0) },
      inferenceUrl: { equals: '' },
      inferenceModel: { equals: '' },
      gateway: { equals: '' },
      gatewayDigest: { equals: new Uint8Array(0) },
      resolvers: { equals: [] },
      egressLimitBytes: { equals: -1 },
      egressNames: { equals: '' },
      gatewayKeyDigest: { equals: new Uint8Array(0) },
    } as unknown as typeof equal)
    expect(claimCheckNames.toSorted()).toEqual([
      'expected-claim-digest',
      'expected-egress-limit-bytes',
      'expected-egress-names',
      'expected-gateway',
      'expected-gateway-digest',
      'expected-gateway-key-digest',
      'expected-inference-model',
      'expected-inference-url',
      'expected-resolvers',
    ])
  })
})

describe('the document', () => {
  const name = 'claim-document'

  test('goal: it is of this instance, with a network, and the egress that the host promises is said', () => {
    expect(claimDocumentCheck(read(good), owner)).toEqual({
      name,
      outcome: 'pass',
      reason:
        'address 10.88.0.1 and fd00::2, resolvers 192.0.2.53; the host promises 5368709120 bytes of egress, to the public Internet',
      required: true,
    })
    const listed = { ...good, claim: { ...good.claim, egress: { limitBytes: 7, names: 'listed' as const } } }
    const network = { address: '10.88.0.1', gateway: '169.254.88.1', mtuBytes: 1500, resolvers: [] }
    expect(claimDocumentCheck(read({ ...listed, network }), owner).reason).toBe(
      'address 10.88.0.1, resolvers none; the host promises 7 bytes of egress, to listed names only',
    )
  })

  // Goal: each field that names the instance is compared.
  test.each(['organization', 'name', 'hostname', 'publicKey'] as const)('goal: another %s fails', field => {
    expect(claimDocumentCheck(read(good), { ...owner, [field]: 'other' })).toMatchObject({
      name,
      outcome: 'fail',
      reason: `its ${field} is another than the attestation's`,
    })
  })

  test('goal: several are named, and neither an unreadable document nor one without a network passes', () => {
    expect(claimDocumentCheck(read(good), { ...owner, organization: 'x', hostname: 'y' }).reason).toBe(
      "its organization, hostname is another than the attestation's",
    )
    expect(claimDocumentCheck(unreadable, owner)).toMatchObject({ outcome: 'fail', reason: 'claim document: no JSON' })
    expect(claimDocumentCheck(read({ ...good, network: null }), owner)).toMatchObject({
      outcome: 'fail',
      reason: expect.stringContaining('no network was configured at the claim'),
    })
  })
})

// Goal: prompts pass only to the gateway that is expected; without its name each other one fails.
describe('prompts', () => {
  const judge = (claim: Parsed<ClaimDocument>, changes: Partial<ExpectedGateway> = {}, simulated = false) => {
    const { outcome, reason, required } = promptsCheck(claim, { expected: { ...owned, ...changes }, simulated })
    return { outcome, reason, required }
  }
  const where = `prompts go to ${url}, model tiny`
  const inside = `${where}: inside the measured VM c1c1c1c1c1c1c1c1…, workload.json c3c3c3c3c3c3c3c3…`
  const none = { baseUrl: '', gateway: { kind: 'none' } } as const

  test('goal: the expected gateway passes, and the verdict says where prompts go', () => {
    expect(judge(withGateway({}))).toEqual({ outcome: 'pass', reason: inside, required: true })
    expect(judge(anyWorkloadClaim).reason).toBe(`${where}: inside the measured VM c1c1c1c1c1c1c1c1…`)
    const open = { policy: 'any' } as const
    const two = { measurements: [measurement, otherMeasurement], workloads: [workload, otherWorkload, workload] }
    expect(judge(withGateway(two), open)).toMatchObject({
      outcome: 'pass',
      reason: `${where}: inside the measured VM c1c1c1c1c1c1c1c1… or 1 more, workload.json c3c3c3c3c3c3c3c3… or 2 more`,
    })
  })

  test('goal: an unreadable document leaves them unchecked, which no verdict passes', () => {
    expect(judge(unreadable)).toEqual({
      outcome: 'not-checked',
      reason: 'the claim document cannot be read',
      required: true,
    })
  })

  test('goal: no gateway passes only without an address, and a gateway only with one', () => {
    expect(judge(withInference(none))).toMatchObject({ outcome: 'pass', reason: 'the instance has no gateway' })
    expect(judge(withInference({ ...none, baseUrl: url }))).toMatchObject({
      outcome: 'fail',
      reason: `the claim names ${url} and no gateway`,
    })
    for (const gateway of [sampleGateway, elsewhere]) {
      expect(judge(withInference({ baseUrl: '', gateway }), { policy: 'any', unattested: 'elsewhere' }, true)).toEqual({
        outcome: 'fail',
        reason: 'the claim names a gateway and no address of it',
        required: true,
      })
    }
  })

  test.each([
    ['host', 'to the process of a host'],
    ['no-worker', 'to a gateway without a worker of its own, which has no evidence'],
    ['elsewhere', 'to a gateway that the operator names'],
  ] as const)('goal: a gateway that is unattested for %s passes by exactly that name', (why, words) => {
    const claim = withInference({ gateway: { kind: 'unattested', why, ca: null } })
    const reason = `OUTSIDE, ${words}: ${where}`
    expect(judge(claim, { unattested: why })).toMatchObject({ outcome: 'pass', reason })
    for (const unattested of (['none', 'host', 'no-worker', 'elsewhere'] as const).filter(other => other !== why)) {
      expect(judge(claim, { unattested, policy: 'any' })).toMatchObject({
        outcome: 'fail',
        reason: `${reason}; nothing attests it; accept that with --unattested-gateway ${why}`,
      })
    }
    // A gateway with evidence has to show it, whatever is accepted.
    expect(judge(withGateway({ measurements: [otherMeasurement] }), { unattested: why }).outcome).toBe('fail')
  })

  const problems: readonly (readonly [string, Partial<AttestedGateway>, Partial<ExpectedGateway>, string])[] = [
    [
      'a simulated root on hardware',
      { simulatedRoot: 'PEM' },
      { policy: 'any' },
      'the gateway may prove itself by a simulated root',
    ],
    [
      'another measurement beside the expected one',
      { measurements: [measurement, otherMeasurement] },
      {},
      `the gateway may have measurement ${otherMeasurement}, which is none of those that you expect`,
    ],
    [
      'another measurement, and any key',
      { measurements: [otherMeasurement] },
      { policy: { measurements: [bytes(measurement)], idKeyDigest: 'any' } },
      `the gateway may have measurement ${otherMeasurement}, which is none of those that you expect`,
    ],
    [
      'another operator key',
      { operatorKey: otherKey },
      {},
      `the gateway's operator key is ${otherKey}, not ${operatorKey}`,
    ],
    [
      'another operator key, and any measurement',
      { operatorKey: otherKey },
      { policy: { measurements: 'any', idKeyDigest: [bytes(operatorKey), bytes('ee'.repeat(48))] } },
      `the gateway's operator key is ${otherKey}, not ${operatorKey} or ${'ee'.repeat(48)}`,
    ],
    ['any operator key', { operatorKey: null }, {}, `the gateway's operator key is any, not ${operatorKey}`],
    [
      'an upstream outside',
      { outside: ['far=https://far.example'] },
      { outside: ['far=https://other.example'] },
      'upstream far=https://far.example is OUTSIDE of the measured VM and may get prompts; accept that by --allow-outside far=https://far.example',
    ],
    [
      'another workload.json beside the expected one',
      { workloads: [workload, otherWorkload] },
      { workloads: [bytes(workload)] },
      `the gateway may have workload.json ${otherWorkload}, which is none of those that you expect`,
    ],
    [
      'a setting',
      { allow: ['no-padding'] },
      { allow: ['traces'] },
      'no-padding: packets of streams show the length of each token; accept that by --allow no-padding',
    ],
    [
      'a setting, and nothing is accepted',
      { allow: ['traces'] },
      {},
      'traces: the host gets times, finish reasons, counts and codes of each request; accept that by --allow traces',
    ],
  ]
  test.each(problems)('goal: %s fails', (_, claim, changes, problem) => {
    const found = judge(withGateway(claim), changes)
    expect([found.outcome, found.reason.slice(0, problem.length + 2)]).toEqual(['fail', `${problem}; `])
    expect(found.reason).toContain(where)
  })

  const accepted: readonly (readonly [string, Partial<AttestedGateway>, Partial<ExpectedGateway>])[] = [
    [
      'one of several measurements',
      {},
      { policy: { ...(owned.policy as object), measurements: [bytes(otherMeasurement), bytes(measurement)] } as never },
    ],
    [
      'one of several keys',
      {},
      { policy: { measurements: [bytes(measurement)], idKeyDigest: [bytes(otherKey), bytes(operatorKey)] } },
    ],
    [
      'any measurement',
      { measurements: [otherMeasurement] },
      { policy: { measurements: 'any', idKeyDigest: bytes(operatorKey) } },
    ],
    ['any key', { operatorKey: null }, { policy: { measurements: [bytes(measurement)], idKeyDigest: 'any' } }],
    ['a waived pin', { operatorKey: null, measurements: [otherMeasurement] }, { policy: 'any' }],
    ['an upstream outside, by its name', { outside: ['far=https://far.example'] }, { outside: ['far'] }],
    ['a workload.json', {}, { workloads: [bytes(otherWorkload), bytes(workload)] }],
    ['each setting', { allow: ['no-padding', 'traces'] }, { allow: ['traces', 'no-padding'] }],
  ]
  test.each(accepted)('goal: %s passes', (_, claim, changes) => {
    expect(judge(withGateway(claim), changes).outcome).toBe('pass')
  })

  test('goal: an upstream outside stands first in the words, a setting last', () => {
    const claim = withGateway({ outside: ['a', 'b=https://b.example'], allow: ['no-padding', 'traces'] })
    expect(judge(claim, { outside: ['a', 'b'], allow: ['traces', 'no-padding'] }).reason).toBe(
      `OUTSIDE upstreams may get them from there (a, b=https://b.example): ${inside}, with no-padding, traces`,
    )
  })

  test('goal: a simulated root passes only where the receipt is simulated, and a workload.json has to be named', () => {
    expect(judge(withGateway({ simulatedRoot: 'PEM' }), {}, true).outcome).toBe('pass')
    expect(judge(anyWorkloadClaim, { workloads: [bytes(workload)] })).toMatchObject({
      outcome: 'fail',
      reason: expect.stringContaining('the claim takes a gateway with any workload.json of its operator; '),
    })
  })
})

// Goal: a host that has the gateway key can send requests as the instance, so that fails unless it is accepted.
describe('the gateway key', () => {
  const judge = (claim: Parsed<ClaimDocument>, changes: Partial<ExpectedGateway> = {}) => {
    const { name, ...found } = gatewayKeyCheck(claim, { ...owned, ...changes })
    expect(name).toBe('gateway-key')
    return found
  }
  const { key: _key, ...bare } = good.claim.inference
  const older = (changes: Partial<Inference>) =>
    read({ ...good, claim: { ...good.claim, inference: { ...bare, ...changes } } })
  const chosen = 'e1'.repeat(32)
  const byHost = `the host chose the key (SHA-256 ${chosen}), and so can send requests as this instance`
  const notDrawn =
    'the VM drew no key, so requests come to the gateway without one, or with one that was brought into the VM'
  const remedy = 'create another instance, or accept that by --allow host-key'

  test('goal: a key that the VM drew passes', () => {
    expect(judge(read(good))).toEqual({
      outcome: 'pass',
      reason: `drawn inside the VM: 0a1b2c3d, SHA-256 of its secret ${sampleKey.secretSha256}`,
      required: true,
    })
  })

  test('goal: an unreadable document leaves it unchecked, which no verdict passes', () => {
    expect(judge(unreadable)).toEqual({
      outcome: 'not-checked',
      reason: 'the claim document cannot be read',
      required: true,
    })
  })

  test('goal: an instance without gateway and key passes; one with a key of the host does not', () => {
    const none = { kind: 'none' } as const
    for (const claim of [withInference({ gateway: none, key: null }), older({ gateway: none, keySha256: null })]) {
      expect(judge(claim)).toMatchObject({ outcome: 'pass', reason: 'the instance has no gateway and no key' })
    }
    expect(judge(older({ gateway: none, keySha256: chosen }))).toMatchObject({
      outcome: 'fail',
      reason: `${byHost}; ${remedy}`,
    })
  })

  test('goal: a key that the host chose, and none at all, fail, and pass by name alone', () => {
    for (const [claim, found] of [
      [older({ keySha256: chosen }), byHost],
      [withInference({ key: null }), notDrawn],
      [older({}), notDrawn],
    ] as const) {
      expect(judge(claim)).toEqual({ outcome: 'fail', reason: `${found}; ${remedy}`, required: true })
      expect(judge(claim, { allow: ['traces'] }).outcome).toBe('fail')
      expect(judge(claim, { unattested: 'host' }).outcome).toBe('fail')
      expect(judge(claim, { allow: ['traces', 'host-key'] })).toEqual({
        outcome: 'pass',
        reason: `${found}; accepted by name`,
        required: true,
      })
    }
  })

  test('goal: where nothing vouches for the gateway, and that is accepted, its key is too', () => {
    const claim = withInference({ gateway: elsewhere, key: null })
    expect(judge(claim, { unattested: 'elsewhere' })).toMatchObject({
      outcome: 'pass',
      reason: `${notDrawn}; accepted with the gateway: to a gateway that the operator names`,
    })
    expect(judge(claim, { unattested: 'host' }).outcome).toBe('fail')
  })
})

describe('the pin', () => {
  const anyKey = { measurements: [bytes(measurement)], idKeyDigest: 'any' } as const

  test('goal: a gateway is pinned by its measurements with its key or its workload.json, and by nothing less', () => {
    const of = (changes: Partial<ExpectedGateway>) => pinnedGateway(read(good), { ...owned, ...changes })
    expect(of({})).toBe(`1 measurement of the gateway, operator key ${operatorKey}`)
    const two = { measurements: [bytes(measurement), bytes(otherMeasurement)], idKeyDigest: bytes(operatorKey) }
    expect(of({ policy: two, workloads: [bytes(workload)] })).toBe(
      `2 measurements of the gateway, operator key ${operatorKey}, 1 workload.json`,
    )
    expect(of({ policy: anyKey, workloads: [bytes(workload), bytes(otherWorkload)] })).toBe(
      '1 measurement of the gateway, 2 workload.json',
    )
    expect(of({ policy: anyKey })).toBeNull()
    expect(of({ policy: 'any', workloads: [bytes(workload)] })).toBeNull()
    expect(of({ policy: { measurements: 'any', idKeyDigest: bytes(operatorKey) } })).toBeNull()
    // Every guest without an ID block has zeros.
    expect(of({ policy: { ...anyKey, idKeyDigest: new Uint8Array(48) } })).toBeNull()
  })

  test('goal: an instance without a gateway needs none; an unreadable claim does', () => {
    const none = withInference({ baseUrl: '', gateway: { kind: 'none' } })
    expect(pinnedGateway(none, { ...owned, policy: 'any' })).toBe('the instance has no gateway')
    expect(pinnedGateway(unreadable, { ...owned, policy: 'any' })).toBeNull()
  })

  test('goal: only the very reason of the claim is accepted', () => {
    const claim = withInference({ gateway: elsewhere })
    const reason = (found: Parsed<ClaimDocument>, unattested: ExpectedGateway['unattested']) =>
      acceptedReason(found, { ...owned, unattested })
    expect([reason(claim, 'elsewhere'), reason(claim, 'host'), reason(claim, 'none')]).toEqual([
      'elsewhere',
      null,
      null,
    ])
    expect([reason(read(good), 'elsewhere'), reason(unreadable, 'elsewhere')]).toEqual([null, null])
  })
})
