// Goal: each thing that a relying party expects of a gateway has a line of its own in the verdict, and each line that
// is wrong or missing makes the verdict bad.

import { afterAll, describe, expect, test } from 'bun:test'
import {
  clearRig,
  configurationDigest,
  gatewayQuestion,
  newNonce,
  openRig,
  openSample,
  simulatedHost,
  simulatedOrigin,
  tlsSpkiDigest,
} from '../../scripts/rigs/gateway/attestation.ts'
import { AMD_ROOTS } from '../../src/attest/amd/roots.ts'
import type { Check } from '../../src/attest/verdict.ts'
import { present } from '../../src/base/assert.ts'
import { toHex, utf8 } from '../../src/base/bytes.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { makeReceiptKeys } from '../../src/inference/attestation/receipt-keys.ts'
import { attestationBytesMax, freshAgeMsMax, type GatewayQuestion, nonceBytes } from '../../src/verifier/gateway.ts'
import { verifyGateway } from '../../src/verifier/verify-gateway.ts'
import { gpuGateway } from '../rigs/gateway/gpu-gateway.ts'

afterAll(clearRig)
const sample = await openSample()
afterAll(() => sample[Symbol.dispose]())
const { nonce, answer } = sample
const targets = [
  'gateway',
  'inference-router',
  'inference-worker',
  'metrics-collector',
  'cluster-state-metrics',
] as const

type Receipt = { statement: string; evidence: Record<string, string> }
type Document = { nonce: string; gpuEvidence?: string; receipts: { target: string; receipt: Receipt }[] }
const document = (): Document => JSON.parse(answer)
const receiptAt = (of: Document, at: number) => present(of.receipts[at], 'a receipt')

async function judge(changes: Partial<GatewayQuestion> = {}, given: Uint8Array | Document = utf8(answer)) {
  const bytes = given instanceof Uint8Array ? given : utf8(JSON.stringify(given))
  const found = await verifyGateway(bytes, await gatewayQuestion(nonce, changes))
  const isBad = ({ outcome, required }: Check) => outcome === 'fail' || (outcome !== 'pass' && required)
  const of = (name: string) => {
    const { outcome, reason, required } = present(
      found.checks.find(check => check.name === name),
      name,
    )
    return [outcome, reason, required]
  }
  return { found, of, bad: found.checks.filter(isBad).map(({ name }) => name) }
}

test('goal: limits, written out', () => {
  expect([attestationBytesMax, nonceBytes, freshAgeMsMax]).toEqual([2_097_152, 32, 300_000])
})

describe('a good one', () => {
  const common = ['evidence', 'tcb-floor', 'nonce', 'measurement', 'operator-key', 'identity', 'allowlist', 'admission']

  test('goal: passes with every line, in this order', async () => {
    const { found, bad } = await judge()
    expect([found.ok, bad, found.simulated, found.workload, found.gpus]).toEqual([true, [], true, null, []])
    expect(found.receipts.map(({ target }) => target)).toEqual([...targets])
    expect(found.checks.map(({ name }) => name)).toEqual([
      'attestation-format',
      'pin-measurement',
      'pin-allowlist',
      'pin-vmpl',
      'pin-crl',
      'pin-tcb',
      'attestation-nonce',
      'attestation-together',
      'tls-binding',
      'tcb-floor-age',
      'gateway-configuration',
      ...targets.flatMap(target => common.map(name => `${target}/${name}`)),
    ])
    expect(found.checks.filter(({ outcome }) => outcome !== 'pass')).toEqual([])
    expect(toHex(found.gateway?.tlsSpkiDigest ?? new Uint8Array(0))).toBe('09'.repeat(32))
    expect(found.keys).not.toBeNull()
  })

  test('goal: the identity of a receipt is six checks, its allowlist two', async () => {
    const { of } = await judge()
    for (const target of targets) {
      const own = target === 'gateway' ? 4 : target === 'inference-worker' ? 5 : 6
      expect([target, of(`${target}/identity`)]).toEqual([target, ['pass', `${own} checks`, true]])
      expect(of(`${target}/allowlist`)).toEqual(['pass', '2 checks', true])
    }
  })

  test('goal: an allowlist alone, or HOST_DATA, does not say which upstreams get prompts', async () => {
    const reason = `${toHex(configurationDigest)}: no configuration is expected; its upstreams are not known: name it, or say 'any'`
    const { found, bad, of } = await judge({ configurationDigest: 'required' })
    expect([found.ok, bad, of('gateway-configuration')]).toEqual([
      ...[false, ['gateway-configuration'], ['fail', reason, true]],
    ])
    const { policy: own, allowlist } = await gatewayQuestion(nonce)
    const hostData = present(allowlist === 'any' ? null : allowlist.digest, 'the allowlist')
    const policy = { ...own, hostData }
    expect((await judge({ configurationDigest: 'required', allowlist: 'any', policy })).bad).toEqual([
      'gateway-configuration',
    ])
    expect((await judge({ configurationDigest: 'any' })).found.ok).toBe(true)
  })

  test('goal: what is not expected is said, and is open by choice', async () => {
    const { found, bad, of } = await judge({
      nonce: 'any',
      tlsSpkiDigest: 'any',
      configurationDigest: 'any',
      allowlist: 'any',
    })
    expect([found.ok, bad]).toEqual([true, []])
    expect(of('tls-binding')).toEqual(['not-checked', 'there is no connection to compare with', false])
    expect(of('gateway-configuration')).toEqual([
      'not-checked',
      `${toHex(configurationDigest)}: no configuration is expected; its upstreams are not known`,
      false,
    ])
    const asked = { configurationDigest: 'required', allowlist: 'any' } as const
    expect((await judge(asked)).of('gateway-configuration')[0]).toBe('not-checked')
    expect(of('inference-router/allowlist')).toEqual([
      ...['not-checked', 'no allowlist is expected; name yours by --allowlist', false],
    ])
    const [outcome, reason, required] = of('inference-router/admission')
    expect([outcome, reason, required]).toEqual([
      'not-checked',
      expect.stringMatching(/^image [0-9a-f]{64}, command \["\/usr\/bin\/strongroom".*\]: no allowlist is expected$/),
      false,
    ])
  })
})

// Goal: each expectation fails by its own line.
describe('another', () => {
  const other = new Uint8Array(32).fill(0xaa)
  const all = (name: string) => targets.map(target => `${target}/${name}`)

  test('goal: nonce, key of the connection and configuration', async () => {
    expect((await judge({ nonce: other })).bad).toEqual(['attestation-nonce'])
    const tls = await judge({ tlsSpkiDigest: other })
    expect([tls.found.ok, tls.bad, tls.of('tls-binding')[1]]).toEqual([
      false,
      ['tls-binding'],
      `the connection's key is ${toHex(other)}, the receipt names ${toHex(tlsSpkiDigest)}`,
    ])
    const configured = await judge({ configurationDigest: other })
    expect([configured.bad, configured.of('gateway-configuration')[1]]).toEqual([
      ['gateway-configuration'],
      `the receipt names ${toHex(configurationDigest)}, not ${toHex(other)}`,
    ])
  })

  test('goal: age, root, allowlist', async () => {
    const { asOf } = await gatewayQuestion(nonce)
    expect((await judge({ asOf: asOf + 3_600_000 })).bad).toEqual(all('nonce'))
    expect((await judge({ roots: AMD_ROOTS })).bad).toEqual(all('evidence'))
    const { allowlist } = await gatewayQuestion(nonce)
    if (allowlist === 'any') throw new Error('the question has an allowlist')
    const listed = await judge({ allowlist: { ...allowlist, digest: other } })
    expect(listed.bad).toEqual(all('allowlist'))
    const none = { ...allowlist, allowlist: { ...allowlist.allowlist, workloads: [] } }
    expect((await judge({ allowlist: none })).bad).toEqual(all('admission'))
  })

  test('goal: gateway whose receipts are put among these', async () => {
    using rig = await openRig({ origin: await simulatedOrigin(), keys: makeReceiptKeys(systemRandom) })
    const { body } = await rig.get(`?nonce=${nonce}`)
    const mixed = document()
    receiptAt(mixed, 1).receipt = receiptAt(JSON.parse(body), 1).receipt
    const { found, bad, of } = await judge({}, mixed)
    // The keys are those of the gateway's own receipt.
    expect(found.keys).toEqual((await judge()).found.keys)
    expect([found.ok, bad, of('attestation-together')[1]]).toEqual([
      false,
      ['attestation-together'],
      'the receipts differ in keys, image, operator or allowlist',
    ])
  })

  test('goal: order of receipts, or one of them twice', async () => {
    const swapped = document()
    const [a, b] = [receiptAt(swapped, 1), receiptAt(swapped, 2)]
    ;[a.receipt, b.receipt] = [b.receipt, a.receipt]
    expect((await judge({}, swapped)).bad).toEqual([
      ...[
        'inference-router/identity',
        'inference-router/admission',
        'inference-worker/identity',
        'inference-worker/admission',
      ],
    ])
  })

  test('goal: nonce in the document than in its receipts', async () => {
    const named = { ...document(), nonce: newNonce() }
    const { bad } = await judge({}, named)
    expect(bad).toEqual(['attestation-nonce', ...all('nonce')])
    expect((await judge({ nonce: 'any' }, named)).bad).toEqual(all('nonce'))
  })
})

// Goal: what cannot be read leaves nothing good behind.
describe('what cannot be read', () => {
  test('goal: a receipt', async () => {
    for (const at of [0, 3]) {
      const cut = document()
      receiptAt(cut, at).receipt.statement = 'AAAA'
      const { found, bad, of } = await judge({}, cut)
      const target = targets[at]
      expect([found.ok, of('attestation-together')]).toEqual([false, ['not-checked', 'a receipt cannot be read', true]])
      expect(bad).toContain(`${target}/evidence`)
      expect(of(`${target}/admission`)).toEqual(['not-checked', 'the receipt cannot be read', true])
      // Image digest and command are the admission's, which says so itself.
      expect(`${of(`${target}/evidence`)[1]}`).not.toMatch(/expected-(?:image-digest|command)/)
      const unread = ['not-checked', "the gateway's receipt cannot be read", true]
      expect([of('tls-binding')[0], of('gateway-configuration')[0]]).toEqual(
        at === 0 ? ['not-checked', 'not-checked'] : ['pass', 'pass'],
      )
      if (at === 0) expect([of('tls-binding'), of('gateway-configuration')]).toEqual([unread, unread])
    }
  })

  test('goal: the document, which still has each pin', async () => {
    const filled = (bytes: number) => utf8(answer + ' '.repeat(bytes - utf8(answer).length))
    const longest = await judge({}, filled(2_097_152))
    expect([longest.found.ok, longest.bad]).toEqual([true, []])
    for (const [bytes, words] of [
      [filled(2_097_153), '2097153 bytes are too many'],
      [utf8('['.repeat(9) + ']'.repeat(9)), 'nested deeper than 8 levels'],
      [utf8('x'), 'not valid JSON'],
      [utf8('{}'), '/'],
      [utf8(JSON.stringify({ ...document(), receipts: document().receipts.slice(1) })), '/receipts'],
    ] as const) {
      const { found, bad, of } = await judge({ policy: (await gatewayQuestion(nonce)).policy }, bytes)
      expect([words, bad]).toEqual([words, ['attestation-format']])
      expect(of('attestation-format')[1]).toEqual(expect.stringContaining(words))
      expect(found).toMatchObject({
        ...{ ok: false, simulated: false, receipts: [], keys: null, gateway: null, workload: null, gpus: [] },
      })
      expect(found.checks.map(({ name }) => name)).toEqual([
        ...['attestation-format', 'pin-measurement', 'pin-allowlist', 'pin-vmpl', 'pin-crl', 'pin-tcb'],
      ])
    }
    expect((await judge({}, utf8('['.repeat(8) + ']'.repeat(8)))).of('attestation-format')[1]).not.toContain('nested')
  })
})

// Goal: workload.json supplies what the caller leaves open, and nothing that it named.
describe('with a workload.json', () => {
  const other = new Uint8Array(32).fill(0xaa)

  test('goal: allowlist and configuration are those of the document, unless others are expected', async () => {
    const gateway = await gpuGateway([], null)
    using rig = await openRig(gateway)
    const own = newNonce()
    const body = utf8((await rig.get(`?nonce=${own}`)).body)
    const workload = utf8(gateway.workload)
    const { nonce: sent, policy, allowlist } = await gatewayQuestion(own)
    if (allowlist === 'any') throw new Error('the question has an allowlist')
    const base = { nonce: sent, workload, configurationDigest: 'any', allowlist: 'any' } as const
    const exposures = { allow: ['kept-responses', 'usage-labels', 'no-padding', 'traces'] } as const
    const ask = async (changes: Partial<GatewayQuestion> = {}) =>
      await judge({ ...base, ...exposures, ...changes }, body)
    const digest = new Bun.CryptoHasher('sha256').update(workload).digest('hex')
    const { bad, of, found } = await ask()
    expect([bad, found.ok, found.workload?.format]).toEqual([[], true, 'strongroom/workload/v1'])
    expect(of('gateway-configuration')).toEqual(['pass', digest, true])
    for (const target of targets) {
      expect([of(`${target}/allowlist`)[0], of(`${target}/admission`)[0]]).toEqual(['pass', 'pass'])
    }
    expect((await ask({ configurationDigest: other })).bad).toEqual(['gateway-configuration'])
    const listed = await ask({ allowlist: { ...allowlist, digest: other } })
    expect(listed.bad).toEqual(targets.map(target => `${target}/allowlist`))
    const hosted = await ask({ policy: { ...policy, hostData: other } })
    expect(hosted.bad).toEqual(targets.flatMap(target => [`${target}/evidence`, `${target}/allowlist`]))
  })

  test('goal: evidence of GPUs is compared with the receipt of the worker', async () => {
    const claimed = { ...document(), gpuEvidence: 'AAAA' }
    const named = await judge({}, claimed)
    expect([named.found.ok, named.of('gpu-binding')]).toEqual([
      false,
      ['fail', "the worker's receipt names no evidence of GPUs", true],
    ])
    receiptAt(claimed, 2).receipt.statement = 'AAAA'
    expect((await judge({}, claimed)).of('gpu-binding')).toEqual([
      ...['not-checked', "the worker's receipt cannot be read", true],
    ])
  })
})

test('goal: evidence without a revocation list fails each receipt, unless the pin is waived', async () => {
  const bare = document()
  for (const { receipt } of bare.receipts) delete receipt.evidence.crl
  const evidence = targets.map(target => `${target}/evidence`)
  expect((await judge({}, bare)).bad).toEqual(evidence)
  const { pins } = await gatewayQuestion(nonce)
  expect((await judge({ pins: { ...pins, crl: 'any' } }, bare)).bad).toEqual([])
})

test('goal: the age of the floors is looked at unless they are waived, and a workload.json is bound by HOST_DATA', async () => {
  const { pins } = await gatewayQuestion(nonce)
  const waived = await judge({ pins: { ...pins, tcb: 'any' } })
  expect([waived.found.ok, waived.found.checks.filter(({ name }) => name.includes('floor'))]).toEqual([true, []])
  // The rig's HOST_DATA is its allowlist's digest.
  const { bad } = await judge({ workload: utf8('{}') })
  expect(bad).toEqual(['workload', ...targets.map(target => `${target}/allowlist`)])
  expect((await simulatedHost()).operatorKey).toHaveLength(48)
})
