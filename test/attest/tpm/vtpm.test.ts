// Links from a virtual TPM's quote to an SNP report, for the three kinds.

import { describe, expect, test } from 'bun:test'
import { simulatedAsOf, simulatedPlatform } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { AMD_ROOTS } from '../../../src/attest/amd/roots.ts'
import { sha512 } from '../../../src/attest/hash.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { HCL_FIELDS } from '../../../src/attest/report/form.ts'
import { decodeHclReport, runtimeAttestationKey } from '../../../src/attest/tpm/hcl-report.ts'
import { decodeSpki } from '../../../src/attest/tpm/key-decode.ts'
import { type ParavisorInput, verifyParavisorVtpm } from '../../../src/attest/tpm/paravisor.ts'
import { decodePublicArea } from '../../../src/attest/tpm/public-area.ts'
import { QUOTE_CHECKS } from '../../../src/attest/tpm/quote.ts'
import { type SvsmInput, verifyHostVtpm, verifySvsmVtpm } from '../../../src/attest/tpm/vtpm.ts'
import type { Verdict } from '../../../src/attest/verdict.ts'
import { type EvidenceVerdict, verifyEvidence } from '../../../src/attest/verify/evidence.ts'
import { concat, fromBase64Url, fromHex, utf8 } from '../../../src/base/bytes.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'
import {
  akAttributes,
  eccSample,
  ekAttributes,
  goodQuote,
  rsaSample,
  sampleNonce,
  samplePcrValues,
} from '../../rigs/launch/tpm-samples.ts'

const vectors = new URL('../../vectors/', import.meta.url)
const vector = (await Bun.file(new URL('tpm/paravisor-bound.json', vectors)).json()) as {
  hcl_report: string
  vcek: string
  tpm_quote: { message: string; signature: string; pcrs: string[] }
}

function bytesOf(value: Uint8Array | null): Uint8Array {
  if (value === null) throw new Error('a vector is not encoded as it should be')
  return value
}

/** `name outcome` for every check that is not good. */
function bad(verdict: Verdict): string[] {
  return verdict.checks
    .filter(check => check.required && check.outcome !== 'pass')
    .map(check => `${check.name} ${check.outcome}`)
}

/** The first that failed, the rest being not-checked, and the binding among them. */
function stopsAt(verdict: Verdict, name: string): void {
  expect(verdict.ok).toBe(false)
  const [first, ...later] = bad(verdict)
  expect(first).toBe(`${name} fail`)
  expect(later.every(text => text.endsWith(' not-checked'))).toBe(true)
  expect(later.slice(-5)).toEqual(['vtpm-binding', ...QUOTE_CHECKS].map(text => `${text} not-checked`))
}

function flipped(bytes: Uint8Array, at: number): Uint8Array {
  return bytes.map((byte, i) => (i === at ? byte ^ 1 : byte))
}

/** The vector pads its base64url; our reader takes none. */
function unpadded(text: string): Uint8Array {
  return bytesOf(fromBase64Url(text.replace(/=+$/, '')))
}

const hclBytes = unpadded(vector.hcl_report)
const vcek = unpadded(vector.vcek)

async function evidenceOf(report: Uint8Array): Promise<EvidenceVerdict> {
  const asOf = new Date('2025-06-01T00:00:00Z')
  return await verifyEvidence({ report, vek: vcek, asOf, roots: AMD_ROOTS, requireCrl: false, policy: strictPolicy() })
}

describe('vtpm:paravisor-bound', () => {
  const hcl = decodeHclReport(hclBytes)

  async function input(changes: Partial<ParavisorInput> = {}): Promise<ParavisorInput> {
    return {
      evidence: await evidenceOf(hcl.report),
      runtimeData: hcl.runtimeData,
      measurement: 'any',
      quote: bytesOf(fromHex(vector.tpm_quote.message)),
      signature: { scheme: 'RSASSA', hash: 'SHA-256', signature: bytesOf(fromHex(vector.tpm_quote.signature)) },
      nonce: utf8('challenge'),
      pcrs: { 'SHA-256': new Map(vector.tpm_quote.pcrs.map((hex, at) => [at, bytesOf(fromHex(hex))])) },
      ...changes,
    }
  }

  test('real evidence verifies, step by step', async () => {
    // Goal: AMD vouches for the report, the report for the runtime data, these for the key, the key for the quote; and
    // the kind is named.
    const verdict = await verifyParavisorVtpm(await input())
    expect(bad(verdict)).toEqual([])
    expect(verdict).toMatchObject({ ok: true, kind: 'vtpm:paravisor-bound' })
    expect(verdict.checks.map(check => check.name)).toEqual([
      'vtpm-evidence',
      'vtpm-vmpl',
      'vtpm-measurement',
      'vtpm-report-data',
      'vtpm-attestation-key',
      'vtpm-binding',
      ...QUOTE_CHECKS,
    ])
    expect(verdict.checks.find(check => check.name === 'vtpm-binding')?.reason).toBe('vtpm:paravisor-bound')
  })

  test('each part tampered with', async () => {
    // Goal: every link of the chain breaks on its own, and nothing after it is taken for checked.
    const good = await input()
    const { report } = good.evidence
    if (report === null) throw new Error('the vector has a report')
    const run = async (changes: Partial<ParavisorInput>) => await verifyParavisorVtpm({ ...good, ...changes })
    stopsAt(await run({ evidence: await evidenceOf(flipped(hcl.report, 0x2a1)) }), 'vtpm-evidence')
    stopsAt(await run({ evidence: await evidenceOf(flipped(hcl.report, 0x50)) }), 'vtpm-evidence')
    stopsAt(await run({ evidence: await evidenceOf(new Uint8Array(7)) }), 'vtpm-evidence')
    for (const vmpl of [1, 2, 3, 0xffffffff])
      stopsAt(await run({ evidence: { ...good.evidence, report: { ...report, vmpl } } }), 'vtpm-vmpl')
    stopsAt(await run({ measurement: flipped(report.measurement, 0) }), 'vtpm-measurement')
    expect((await run({ measurement: report.measurement })).ok).toBe(true)
    for (const at of [0, 500, hcl.runtimeData.length - 1])
      stopsAt(await run({ runtimeData: flipped(hcl.runtimeData, at) }), 'vtpm-report-data')
    stopsAt(await run({ runtimeData: concat(hcl.runtimeData, Uint8Array.of(0)) }), 'vtpm-report-data')
    const padded = { ...report, reportData: flipped(report.reportData, 63) }
    stopsAt(await run({ evidence: { ...good.evidence, report: padded } }), 'vtpm-report-data')
    expect(bad(await run({ nonce: utf8('challengf') }))).toEqual(['tpm-quote-nonce fail'])
    expect(bad(await run({ quote: flipped(good.quote, 60) }))).toContain('tpm-quote-signature fail')
    expect(bad(await run({ pcrs: {} }))).toEqual(['tpm-quote-pcrs fail'])
  })

  test('runtime data that the report covers but that name no key', async () => {
    // Goal: a key has to be named HCLAkPub, once, and be a key.
    const good = await input()
    const jwk = JSON.parse(new TextDecoder().decode(hcl.runtimeData)).keys[0]
    const data = (value: unknown) => utf8(JSON.stringify(value))
    const cases = [
      utf8('no JSON'),
      Uint8Array.of(0xff),
      data(null),
      data({}),
      data({ keys: {} }),
      data({ keys: [] }),
      data({ keys: [null] }),
      data({ keys: [{ ...jwk, kid: 'HCLEkPub' }] }),
      data({ keys: [jwk, jwk] }),
      data({ keys: [{ ...jwk, kty: 'oct' }] }),
      data({ keys: [{ ...jwk, n: 'AQAB' }] }),
      // JSON.parse would take the last of two, another reader the first.
      utf8(`{"keys":[],"keys":[${JSON.stringify(jwk)}]}`),
      utf8(`{"keys":[${JSON.stringify(jwk).replace('"kid"', '"kid":"other","kid"')}]}`),
    ]
    for (const runtimeData of cases) {
      expect(() => runtimeAttestationKey(runtimeData)).toThrow(Malformed)
      const { report } = good.evidence
      const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', new Uint8Array(runtimeData)))
      const covered = {
        ...good.evidence,
        report: report && { ...report, reportData: concat(hash, new Uint8Array(32)) },
      }
      stopsAt(await verifyParavisorVtpm({ ...good, evidence: covered, runtimeData }), 'vtpm-attestation-key')
    }
    expect(runtimeAttestationKey(data({ keys: [{ kid: 'other' }, jwk] })).type).toBe('rsa')
  })

  test('a report of another machine', async () => {
    // Goal: a well-formed HCL report whose SNP report another chip signed reads, and does not verify.
    const wrong = new Uint8Array(await Bun.file(new URL('reports/wrong-chip.hcl.bin', vectors)).arrayBuffer())
    const { report, runtimeData } = decodeHclReport(wrong)
    const vek = await Bun.file(new URL('reports/wrong-chip.certs.pem', vectors)).text()
    const asOf = new Date('2023-06-01T00:00:00Z')
    const question = {
      report,
      vek,
      asOf,
      roots: AMD_ROOTS,
      requireCrl: false,
      policy: 'any',
      product: 'milan',
    } as const
    const evidence = await verifyEvidence(question)
    stopsAt(await verifyParavisorVtpm(await input({ evidence, runtimeData })), 'vtpm-evidence')
  })

  test('the layout of an HCL report', () => {
    // Goal: fields stand one after the other without a gap; wrong values and lengths, and anything after the data, are
    // refused.
    let next: number = 0
    for (const [offset, size] of Object.values(HCL_FIELDS)) {
      expect<number>(offset).toBe(next)
      next = offset + size
    }
    expect(hcl.report).toHaveLength(1184)
    for (const name of ['magic', 'version', 'dataSize', 'dataVersion', 'reportType', 'hashType', 'claimsSize'] as const)
      expect(() => decodeHclReport(flipped(hclBytes, HCL_FIELDS[name][0]))).toThrow(Malformed)
    expect(() => decodeHclReport(hclBytes.slice(0, 2000))).toThrow(Malformed)
    expect(() => decodeHclReport(hclBytes.slice(0, 100))).toThrow(Malformed)
    expect(() => decodeHclReport(new Uint8Array(70_000))).toThrow(Malformed)
    expect(() => decodeHclReport(concat(hclBytes, Uint8Array.of(1)))).toThrow('trailing bytes')
  })

  test('hostile bytes', async () => {
    // Goal: the codecs throw Malformed and nothing else.
    await fuzz({ samples: [hclBytes, hcl.runtimeData], count: 1500 }, bytes => {
      for (const decode of [decodeHclReport, runtimeAttestationKey]) {
        try {
          decode(bytes)
        } catch (error) {
          if (!(error instanceof Malformed)) throw error
        }
      }
    })
  })
})

const ek = await rsaSample('RSASSA', 'SHA-256')
const ak = await eccSample('P-256', 'SHA-256')

describe('vtpm:svsm-vmpl0', () => {
  const manifest = ek.publicArea(ekAttributes)
  const attestationKey = ak.publicArea(akAttributes)
  const reportNonce = new Uint8Array(64).fill(0x42)
  const measurement = new Uint8Array(48).fill(9)
  const secret = new Uint8Array(32).fill(0x33)

  async function evidence(of: { reportData?: Uint8Array; report?: { vmpl: number } } = {}): Promise<EvidenceVerdict> {
    const platform = await simulatedPlatform('genoa')
    const { root } = platform.authority
    const report = await platform.report({ reportData: sha512(concat(reportNonce, manifest)), measurement, ...of })
    const vek = { vek: platform.vcek, chain: [root.ask, root.ark], roots: [root] }
    return await verifyEvidence({ report, ...vek, asOf: simulatedAsOf, requireCrl: false, policy: 'any' })
  }

  const activation = {
    endorsementKey: manifest,
    attestationKeyName: decodePublicArea(attestationKey).name,
    secret,
    activated: secret.slice(),
  }

  async function run(changes: Partial<SvsmInput> = {}) {
    const quote = changes.quote ?? goodQuote('SHA-256', 'SHA-256')
    return await verifySvsmVtpm({
      evidence: await evidence(),
      reportNonce,
      manifest,
      measurement,
      attestationKey,
      activation,
      quote,
      signature: await ak.sign(quote),
      nonce: sampleNonce,
      pcrs: samplePcrValues('SHA-256'),
      ...changes,
    })
  }

  test('evidence verifies in the order of the design', async () => {
    // Goal: VMPL, measurement, report data, endorsement key, attestation key, quote: all good, and the kind is named.
    const verdict = await run()
    expect(bad(verdict)).toEqual([])
    expect(verdict).toMatchObject({ ok: true, kind: 'vtpm:svsm-vmpl0' })
    expect(verdict.checks.map(check => check.name)).toEqual([
      'vtpm-evidence',
      'vtpm-vmpl',
      'vtpm-measurement',
      'vtpm-report-data',
      'vtpm-endorsement-key',
      'vtpm-attestation-key',
      'vtpm-binding',
      ...QUOTE_CHECKS,
    ])
  })

  test('each part tampered with', async () => {
    // Goal: every link breaks on its own; a guest above VMPL 0 cannot stand in for the SVSM.
    stopsAt(await run({ evidence: { ...(await evidence()), ok: false } }), 'vtpm-evidence')
    stopsAt(await run({ evidence: await evidence({ report: { vmpl: 2 } }) }), 'vtpm-vmpl')
    stopsAt(await run({ measurement: new Uint8Array(48) }), 'vtpm-measurement')
    stopsAt(await run({ measurement: measurement.slice(1) }), 'vtpm-measurement')
    stopsAt(await run({ reportNonce: flipped(reportNonce, 63) }), 'vtpm-report-data')
    stopsAt(await run({ manifest: flipped(manifest, 100) }), 'vtpm-report-data')
    stopsAt(await run({ evidence: await evidence({ reportData: new Uint8Array(64) }) }), 'vtpm-report-data')
    // A nonce of another length could lend its bytes to the manifest.
    const short = { reportNonce: reportNonce.slice(0, 63), manifest: concat(reportNonce.slice(63), manifest) }
    stopsAt(await run(short), 'vtpm-report-data')
    for (const other of [attestationKey, new Uint8Array(0), ek.publicArea(akAttributes)]) {
      const bound = await evidence({ reportData: sha512(concat(reportNonce, other)) })
      stopsAt(await run({ evidence: bound, manifest: other }), 'vtpm-endorsement-key')
    }
    stopsAt(await run({ attestationKey: new Uint8Array(3) }), 'vtpm-attestation-key')
    const unrestricted = ak.publicArea(akAttributes.filter(attribute => attribute !== 'restricted'))
    const activated = { ...activation, attestationKeyName: decodePublicArea(unrestricted).name }
    stopsAt(await run({ attestationKey: unrestricted, activation: activated }), 'vtpm-attestation-key')
    expect(bad(await run({ nonce: new Uint8Array(32) }))).toEqual(['tpm-quote-nonce fail'])
    expect(bad(await run({ pcrs: samplePcrValues('SHA-384') }))).toEqual(['tpm-quote-pcrs fail'])
    expect(bad(await run({ signature: await ek.sign(goodQuote('SHA-256', 'SHA-256')) }))).toEqual([
      'tpm-quote-signature fail',
    ])
  })

  test('an attestation key that nothing ties to the endorsement key', async () => {
    // Goal: without an activated credential for these two keys the verdict is not good, however good the quote is.
    const without = await run({ activation: null })
    expect(without.ok).toBe(false)
    expect(bad(without)[0]).toBe('vtpm-attestation-key not-checked')
    expect(bad(without)).toHaveLength(6)
    const changes = [
      { activated: flipped(secret, 0) },
      { activated: secret.slice(1) },
      { secret: new Uint8Array(0), activated: new Uint8Array(0) },
      { secret: new Uint8Array(15), activated: new Uint8Array(15) },
      { endorsementKey: flipped(manifest, 60) },
      { attestationKeyName: flipped(activation.attestationKeyName, 5) },
    ]
    for (const change of changes)
      stopsAt(await run({ activation: { ...activation, ...change } }), 'vtpm-attestation-key')
    const failed = await run({ activation: { failed: 'TPM_RC 0x1df' } })
    stopsAt(failed, 'vtpm-attestation-key')
    expect(failed.checks.find(check => check.outcome === 'fail')?.reason).toBe(
      'no credential is activated: TPM_RC 0x1df',
    )
  })
})

describe('vtpm:host-untrusted', () => {
  test('a good quote of the host’s TPM is not good', async () => {
    // Goal: the quote's checks run and pass, the kind is named, and the verdict is bad all the same.
    const key = await eccSample('P-256', 'SHA-256')
    const quote = goodQuote('SHA-256', 'SHA-256')
    const input = { quote, signature: await key.sign(quote), nonce: sampleNonce, pcrs: samplePcrValues('SHA-256') }
    const verdict = await verifyHostVtpm({ ...input, ak: decodeSpki(key.spki) })
    expect(verdict).toMatchObject({ ok: false, kind: 'vtpm:host-untrusted' })
    expect(bad(verdict)).toEqual(['vtpm-binding fail'])
    expect(verdict.checks[0]?.reason).toContain('vtpm:host-untrusted')
    const wrong = await verifyHostVtpm({ ...input, nonce: utf8('x'), ak: decodeSpki(key.spki) })
    expect(bad(wrong)).toEqual(['vtpm-binding fail', 'tpm-quote-nonce fail'])
  })
})
