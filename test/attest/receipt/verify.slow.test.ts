// Receipts: issuing, verifying, and everything that must not verify.

import { describe, expect, test } from 'bun:test'
import {
  countingRandom,
  fieldsOf,
  kinds,
  measurement,
  nonce,
  questionOf,
  sampleKeys,
  sampleReceipt,
  simulatedSource,
  statementOf,
} from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { simulatedAsOf, vekValidity } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { AMD_ROOTS } from '../../../src/attest/amd/roots.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { makeHybridKeys, signHybrid } from '../../../src/attest/receipt/hybrid-keys.ts'
import { keysDigest } from '../../../src/attest/receipt/public-keys.ts'
import { decodeReceipt, encodeReceipt, type Receipt } from '../../../src/attest/receipt/receipt.ts'
import {
  decodeStatement,
  encodeStatement,
  type StatementKind,
  statementContext,
} from '../../../src/attest/receipt/statement.ts'
import { nativeVerifiers, verifyReceipt } from '../../../src/attest/receipt/verifiers.ts'
import type { Expected, ReceiptQuestion } from '../../../src/attest/receipt/verify.ts'
import { pass, type Verdict } from '../../../src/attest/verdict.ts'

const samples = {
  workload: await sampleReceipt('workload'),
  claim: await sampleReceipt('claim'),
  'build-dispatch': await sampleReceipt('build-dispatch'),
  build: await sampleReceipt('build'),
} as const satisfies Record<StatementKind, Receipt>

/** Native where the platform has it, so that thousands of receipts take seconds. */
async function ask<Kind extends StatementKind>(kind: Kind, changes: Partial<ReceiptQuestion<Kind>> = {}) {
  return { ...(await questionOf(kind)), verifiers: nativeVerifiers, ...changes }
}

function failed(verdict: Verdict): string[] {
  return verdict.checks.filter(check => check.outcome === 'fail').map(check => check.name)
}

function outcomeOf(verdict: Verdict, name: string): string {
  return verdict.checks
    .filter(check => check.name === name)
    .map(check => check.outcome)
    .join()
}

describe('a good receipt', () => {
  test.each(kinds)('%s verifies, as text and as parsed JSON', async kind => {
    // Goal: what a VM issues is accepted by one who asks for exactly that, with every check made or skipped by choice.
    for (const verifiers of [{}, { verifiers: nativeVerifiers }]) {
      const question = { ...(await questionOf(kind)), ...verifiers }
      for (const json of [samples[kind], JSON.stringify(samples[kind]), JSON.stringify(samples[kind], null, 2)]) {
        const verdict = await verifyReceipt(json, question)
        expect(failed(verdict)).toEqual([])
        expect(verdict).toMatchObject({ ok: true, simulated: true, statement: fieldsOf[kind] })
        expect(verdict.checks.filter(check => check.required && check.outcome !== 'pass')).toEqual([])
      }
    }
  })

  test('the checks stand in their order', async () => {
    // Goal: format, statement, keys, signatures, evidence, report data, nonce, platform, measurement, then what the
    // kind adds.
    const { checks } = await verifyReceipt(samples.workload, await ask('workload'))
    const names = checks.map(check => check.name)
    const outer = names.filter(
      (_, at) => at <= names.indexOf('evidence') || at >= names.indexOf('statement-report-data'),
    )
    expect(outer).toEqual([
      'receipt-format',
      'statement-format',
      'keys-digest',
      'signature-ed25519',
      'signature-mldsa65',
      'receipt-chain',
      'evidence',
      'statement-report-data',
      'statement-nonce',
      'statement-age',
      'platform',
      'statement-measurement',
      'statement-operator-key',
      'tpm',
      'statement-kind',
      'expected-image-name',
      'expected-operator-key',
      'expected-target',
      'expected-workload',
      'expected-image-digest',
      'expected-command',
      'expected-allowlist-digest',
      'expected-tls-spki-digest',
      'expected-configuration-digest',
      'expected-gpu-evidence-digest',
      'host-data-allowlist',
    ])
    expect(new Set(names).size).toBe(names.length)
    // An unreadable receipt has checks with the same names.
    const unread = await verifyReceipt('{}', await ask('workload'))
    expect(unread.checks.map(check => check.name)).toEqual(outer)
    expect(unread.checks.map(check => check.outcome)).toEqual([
      'fail',
      ...outer.slice(1).map(() => 'not-checked' as const),
    ])
  })

  test('every field but the settled ones has its expectation', async () => {
    // Goal: an expectation that is not met fails by its name, one that is 'any' is skipped, one that is missing makes
    // the verdict bad.
    for (const kind of kinds) {
      const question = await ask(kind)
      for (const [field, expected] of Object.entries(question.expected)) {
        const name = `expected-${field.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}`
        const { equals } = expected as { equals: unknown }
        const other = equals instanceof Uint8Array ? new Uint8Array(equals.length) : Array.isArray(equals) ? ['x'] : 'x'
        const verify = (value: unknown) =>
          verifyReceipt(samples[kind], {
            ...question,
            expected: { ...question.expected, [field]: value } as Expected<typeof kind>,
          } as ReceiptQuestion)
        expect(failed(await verify({ equals: other }))).toEqual([name])
        if (Array.isArray(equals)) {
          const reversed = equals.length > 1 ? [equals.toReversed()] : []
          for (const near of [[...equals, 'more'], equals.slice(0, -1), ...reversed])
            expect(failed(await verify({ equals: near }))).toEqual([name])
        }
        const skipped = await verify('any')
        expect([skipped.ok, outcomeOf(skipped, name)]).toEqual([true, 'not-checked'])
        const missing = await verify(undefined)
        expect([missing.ok, outcomeOf(missing, name)]).toEqual([false, 'not-checked'])
      }
    }
  })
})

describe('what must not verify', () => {
  test.each(kinds)('%s with any byte of its statement flipped', async kind => {
    // Goal: no bit of a statement can change unseen, and no damage to it is more than a failed verdict.
    const question = await ask(kind)
    const receipt = decodeReceipt(samples[kind])
    for (let at = 0; at < receipt.statement.length; at += 1) {
      const statement = receipt.statement.map((byte, i) => (i === at ? byte ^ (1 << (at % 8)) : byte))
      const verdict = await verifyReceipt(encodeReceipt({ ...receipt, statement }), question)
      expect([at, verdict.ok]).toEqual([at, false])
      const seen = failed(verdict)
      const isUnread = seen.length === 1 && seen[0] === 'statement-format'
      const isUnsigned = ['signature-ed25519', 'signature-mldsa65', 'statement-report-data'].every(n =>
        seen.includes(n),
      )
      expect([at, isUnread || isUnsigned]).toEqual([at, true])
    }
  })

  test.each(kinds)('%s with any field changed', async kind => {
    // Goal: a changed field breaks both signatures and REPORT_DATA; signed anew by its own keys it still breaks
    // REPORT_DATA, by others' the keys too.
    const question = { ...(await ask(kind)), nonce: 'any', ageMsMax: 'any' } as ReceiptQuestion
    const receipt = decodeReceipt(samples[kind])
    const statement = decodeStatement(receipt.statement)
    const stranger = makeHybridKeys(countingRandom(99))
    const changeable = Object.entries(statement).filter(([name]) => !['format', 'kind', 'scope'].includes(name))
    for (const [name, value] of changeable) {
      const changed = encodeStatement({ ...statement, [name]: another(value) })
      const unsigned = await verifyReceipt(encodeReceipt({ ...receipt, statement: changed }), question)
      expect(failed(unsigned)).toEqual(
        expect.arrayContaining(['signature-ed25519', 'signature-mldsa65', 'statement-report-data']),
      )
      const options = { context: statementContext, random: countingRandom(1) }
      const resigned = {
        ...receipt,
        statement: changed,
        signatures: signHybrid(sampleKeys().secretKeys, changed, options),
      }
      const verdict = await verifyReceipt(encodeReceipt(resigned), question)
      expect(verdict.ok).toBe(false)
      expect(failed(verdict)).toContain('statement-report-data')
      expect(failed(verdict)).not.toContain('signature-ed25519')
    }
    const taken = encodeStatement({ ...statement, keysDigest: keysDigest(stranger.publicKeys) })
    const options = { context: statementContext, random: countingRandom(1) }
    const signatures = signHybrid(stranger.secretKeys, taken, options)
    const stolen = { ...receipt, statement: taken, keys: stranger.publicKeys, signatures }
    expect(failed(await verifyReceipt(encodeReceipt(stolen), question))).toEqual(['statement-report-data'])
  })

  test('keys and signatures that are not the statement’s', async () => {
    // Goal: each of the four keys is bound by the statement, and each half of the signature counts.
    const question = await ask('claim')
    const receipt = decodeReceipt(samples.claim)
    const stranger = makeHybridKeys(countingRandom(99))
    const withKeys = (keys: object) => encodeReceipt({ ...receipt, keys: { ...receipt.keys, ...keys } })
    const { publicKeys } = stranger
    const cases = [
      [withKeys({ x25519: publicKeys.x25519 }), ['keys-digest']],
      [withKeys({ mlkem768: publicKeys.mlkem768 }), ['keys-digest']],
      [withKeys({ ed25519: publicKeys.ed25519 }), ['keys-digest', 'signature-ed25519']],
      [withKeys({ mldsa65: publicKeys.mldsa65 }), ['keys-digest', 'signature-mldsa65']],
      [withKeys({ ed25519: receipt.keys.x25519, x25519: receipt.keys.ed25519 }), ['keys-digest', 'signature-ed25519']],
      [changed({ signatures: { ed25519: new Uint8Array(64) } }), ['signature-ed25519']],
      [changed({ signatures: { mldsa65: new Uint8Array(3309) } }), ['signature-mldsa65']],
    ] as const
    for (const [json, names] of cases) expect(failed(await verifyReceipt(json, question))).toEqual([...names])

    function changed({ signatures }: { signatures: object }): Receipt {
      return encodeReceipt({ ...receipt, signatures: { ...receipt.signatures, ...signatures } })
    }
  })

  test('a receipt of one kind for another', async () => {
    // Goal: no receipt is taken for one of another kind, nor its statement given out as such.
    for (const kind of kinds) {
      for (const other of kinds.filter(item => item !== kind)) {
        const verdict = await verifyReceipt(samples[kind], await ask(other, { nonce: fieldsOf[kind].nonce }))
        expect([verdict.ok, verdict.statement]).toEqual([false, null])
        expect(failed(verdict)).toEqual(['statement-kind'])
      }
    }
  })

  test('parts of two receipts', async () => {
    // Goal: evidence, statement, keys and signatures of different receipts never fit together.
    const receipt = decodeReceipt(samples.build)
    const later = decodeReceipt(await sampleReceipt('build', { nowMs: simulatedAsOf.getTime() - 1 }))
    const question = await ask('build')
    const mixed = (part: object) => verifyReceipt(encodeReceipt({ ...receipt, ...part }), question)
    expect(failed(await mixed({ evidence: later.evidence }))).toEqual(['statement-report-data'])
    expect(failed(await mixed({ signatures: later.signatures }))).toEqual(['signature-ed25519', 'signature-mldsa65'])
    expect(failed(await mixed({ statement: later.statement }))).toEqual([
      'signature-ed25519',
      'signature-mldsa65',
      'statement-report-data',
    ])
    expect(failed(await mixed({}))).toEqual([])
  })

  test('another nonce, another time', async () => {
    // Goal: replays fail by the nonce; old, future and expired evidence fails by the caller's clock.
    const at = async (changes: object) => failed(await verifyReceipt(samples.workload, await ask('workload', changes)))
    expect(await at({ nonce: nonce.map(byte => byte ^ 1) })).toEqual(['statement-nonce'])
    expect(await at({ nonce: nonce.slice(0, 31) })).toEqual(['statement-nonce'])
    expect(await at({ nonce: new Uint8Array(0) })).toEqual(['statement-nonce'])
    const ms = simulatedAsOf.getTime()
    expect(await at({ asOf: ms + 60_001 })).toEqual(['statement-age'])
    expect(await at({ asOf: ms + 60_000 })).toEqual([])
    expect(await at({ asOf: ms - 60_001 })).toEqual(['statement-age'])
    expect(await at({ asOf: ms - 60_000 })).toEqual([])
    expect(await at({ asOf: Number.NaN })).toContain('statement-age')
    // With a nonce of the verifier's own the statement is fresh, and its time shows only how clocks differ: as far back
    // as forth.
    const fresh = { ageMsMax: 300_000 }
    expect(await at({ ...fresh, asOf: ms - 61_000 })).toEqual([])
    expect(await at({ ...fresh, asOf: ms - 300_001 })).toEqual(['statement-age'])
    expect(await at({ ...fresh, asOf: ms - 61_000, nonce: 'any' })).toEqual(['statement-age'])
    const behind = await verifyReceipt(samples.workload, await ask('workload', { ...fresh, asOf: ms - 61_000 }))
    expect(behind.checks.find(check => check.name === 'statement-age')?.reason).toContain('61000 ms after the time of')
    const expired = { asOf: vekValidity.notAfter.getTime() + 1000, ageMsMax: 'any' }
    expect(await at(expired)).toEqual(expect.arrayContaining(['evidence', 'chain-validity']))
    expect(await at({ asOf: vekValidity.notBefore.getTime() - 1000, ageMsMax: 'any' })).toContain('chain-validity')
  })

  test('simulated evidence for one who trusts AMD alone', async () => {
    // Goal: the simulator never passes for hardware, whatever the receipt calls itself.
    for (const platform of ['simulated', 'snp'] as const) {
      const receipt = { ...samples.claim, platform }
      const amd = await verifyReceipt(receipt, await ask('claim', { roots: AMD_ROOTS }))
      expect(amd.ok).toBe(false)
      expect(failed(amd)).toContain('chain-root')
      const nobody = await verifyReceipt(receipt, await ask('claim', { roots: [] }))
      expect(nobody.ok).toBe(false)
    }
    // Even a relying party that trusts the simulation hears of the lie.
    const lying = await verifyReceipt({ ...samples.claim, platform: 'snp' }, await ask('claim'))
    expect([lying.ok, lying.simulated]).toEqual([false, true])
    expect(failed(lying)).toEqual(['platform'])
  })

  test('evidence that is not good', async () => {
    // Goal: the policy, the chain, the CRL and the report's own signature all count.
    const receipt = decodeReceipt(samples.workload)
    const { evidence } = receipt
    const withEvidence = async (part: object, changes: object = {}) => {
      const json = encodeReceipt({ ...receipt, evidence: { ...evidence, ...part } })
      return failed(await verifyReceipt(json, await ask('workload', changes)))
    }
    expect(await withEvidence({})).toEqual([])
    const flippedReport = evidence.report.map((byte, at) => (at === 0x2a5 ? byte ^ 1 : byte))
    expect(await withEvidence({ report: flippedReport })).toEqual(['evidence', 'report-signature'])
    expect(await withEvidence({ report: new Uint8Array(1184) })).toContain('report-format')
    expect(await withEvidence({ vek: evidence.chain[0] })).toContain('vek-certificate')
    expect(await withEvidence({ chain: [evidence.vek, evidence.chain[1]] })).toContain('evidence')
    expect(await withEvidence({ vek: Uint8Array.of(0x30) })).toContain('vek-certificate')
    // The root is known to the verifier: without it, damaged or out of place, the receipt is still not what it was.
    const [intermediate, ark] = evidence.chain
    const damaged = ark.map((byte, at) => (at === 1 ? byte ^ 1 : byte))
    for (const other of [damaged, evidence.vek])
      expect(await withEvidence({ chain: [intermediate, other] })).toEqual([
        'evidence',
        'chain-certificates',
        'platform',
      ])
    expect(await withEvidence({ chain: [ark, intermediate] })).toEqual(['receipt-chain'])
    const withoutCrl = await verifyReceipt(
      encodeReceipt({ ...receipt, evidence: { ...evidence, crl: undefined } }),
      await ask('workload'),
    )
    expect([withoutCrl.ok, outcomeOf(withoutCrl, 'chain-revocation')]).toEqual([false, 'not-checked'])
    const others = { ...strictPolicy(), measurements: [new Uint8Array(48)] }
    expect(await withEvidence({}, { policy: others })).toEqual(['evidence', 'measurement'])
  })

  test('a report that says something else than the statement', async () => {
    // Goal: measurement, operator key and allowlist are those that the hardware reports; issuing refuses what would
    // fail.
    const issue = (wanted: object) => sampleReceipt('workload', { evidenceSource: simulatedSource(wanted) })
    await expect(issue({ measurement: new Uint8Array(48).fill(1) })).rejects.toThrow('another measurement')
    await expect(issue({ report: {} })).rejects.toThrow('another operator key')
    const replayed = simulatedSource()
    const stale = await replayed(new Uint8Array(64))
    await expect(sampleReceipt('workload', { evidenceSource: async () => stale })).rejects.toThrow('over other data')
    const open = await issue({ hostData: new Uint8Array(32) })
    expect(failed(await verifyReceipt(open, await ask('workload')))).toEqual(['host-data-allowlist'])
    const receipt = decodeReceipt(samples.claim)
    for (const [name, changes] of [
      ['statement-measurement', { image: { name: 'inference', measurement: new Uint8Array(48) } }],
      ['statement-operator-key', { operatorKey: new Uint8Array(48) }],
    ] as const) {
      const statement = encodeStatement(statementOf('claim', changes))
      const verdict = await verifyReceipt(encodeReceipt({ ...receipt, statement }), await ask('claim'))
      expect(failed(verdict)).toContain(name)
    }
    expect(measurement).not.toEqual(new Uint8Array(48))
  })

  test('TPM evidence by the caller’s verifier', async () => {
    // Goal: its checks become part of the verdict; none, a bad one and one that throws are all bad.
    const run = async (tpm: ReceiptQuestion['tpm']) => verifyReceipt(samples.claim, await ask('claim', { tpm }))
    const good = await run(async (bytes, context) => [pass('quote', `${bytes} ${context.statement.kind}`)])
    expect([good.ok, good.checks.find(check => check.name === 'quote')?.reason]).toEqual([true, 'null claim'])
    expect(failed(await run(async () => []))).toEqual(['tpm'])
    expect(failed(await run(async () => Promise.reject(new Error('broken'))))).toEqual(['tpm'])
    const tpm = Uint8Array.of(1, 2, 3)
    const source = simulatedSource()
    const receipt = await sampleReceipt('claim', { evidenceSource: async data => ({ ...(await source(data)), tpm }) })
    let seen: unknown
    await verifyReceipt(
      receipt,
      await ask('claim', {
        tpm: async bytes => {
          seen = bytes
          return []
        },
      }),
    )
    expect(seen).toEqual(tpm)
  })
})

/** A value of the same type and length, but another. */
function another(value: unknown): unknown {
  // Evidence of GPUs, where there was none.
  if (value === null) return new Uint8Array(32)
  if (value instanceof Uint8Array) return value.map((byte, at) => (at === 0 ? byte ^ 0x80 : byte))
  if (typeof value === 'number') return value + 1
  if (typeof value === 'string') return `${value.slice(0, -1)}~`
  if (Array.isArray(value)) return [...value, 'more']
  return { name: 'other', measurement }
}
