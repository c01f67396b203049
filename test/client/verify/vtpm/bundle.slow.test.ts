// Goal: bundles of Confidential Containers and others from Azure get the verdict of their parts. Each
// changed part fails its own check, and each malformed part is an input error that names it.

import { afterAll, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createDraw } from '../../../../scripts/rigs/draw.ts'
import { derBlocks, toPem } from '../../../../src/attest/encoding/pem.ts'
import { decodeHclReport } from '../../../../src/attest/tpm/hcl-report.ts'
import { concat, fromHex, toHex, utf8 } from '../../../../src/base/bytes.ts'
import { bundleBytesMax, readVtpmBundle } from '../../../../src/client/verify/vtpm/bundle.ts'
import { reportNonceCheck } from '../../../../src/client/verify/vtpm/report-nonce.ts'
import { expectUsageError } from '../../../rigs/program.ts'
import {
  type Answer,
  argvOf,
  clearVtpmFiles,
  expectFailed,
  file,
  flipped,
  type Line,
  logs,
  refuseMutations,
  requireBytes,
  verify,
} from '../../../rigs/vtpm-line.ts'

afterAll(clearVtpmFiles)

/** Version 1, of a genuine machine. HCL report and VCEK are base64url, padded. */
const path = join(logs, 'paravisor-bound.json')
const genuine = JSON.parse(readFileSync(path, 'utf8'))
const { message, signature, pcrs } = genuine.tpm_quote as { message: string; signature: string; pcrs: string[] }
const bytesOfHex = (text: string) => requireBytes(fromHex(text))
const hcl = new Uint8Array(Buffer.from(genuine.hcl_report, 'base64url'))
const vcek = new Uint8Array(Buffer.from(genuine.vcek, 'base64url'))
const list = (bytes: Uint8Array) => [...bytes]

/** The same machine in the form before versions had numbers. */
const version0 = {
  quote: {
    message: list(bytesOfHex(message)),
    signature: list(bytesOfHex(signature)),
    pcrs: pcrs.map(value => list(bytesOfHex(value))),
  },
  report: list(hcl),
  vcek: toPem(vcek, 'CERTIFICATE'),
}

/** Version 2, of another genuine machine; its nonce has 48 bytes. */
const path2 = join(logs, 'paravisor-nonce.json')
const genuine2 = JSON.parse(readFileSync(path2, 'utf8'))

/** The same evidence as other projects write it: unpadded base64url in attestation-rs. */
const unpadded = {
  ...genuine,
  hcl_report: genuine.hcl_report.replace(/=+$/, ''),
  vcek: genuine.vcek.replace(/=+$/, ''),
}
const attestationRs = { platform: 'az-snp', evidence: unpadded }
const FORMS: readonly (readonly [string, object])[] = [
  ['no quote of TDX', { ...genuine, td_quote: null }],
  ['version 0', version0],
  ['attestation-rs and kettle', attestationRs],
  ['c8s', { challenge: 'AAAA', evidence: attestationRs, csr: 'x' }],
]

const bundle = (name: string, document: unknown) => file(name, JSON.stringify(document))
const good: Line = {
  kind: 'azure-hcl',
  evidence: path,
  nonce: toHex(utf8('challenge')),
  pcr: [`7=${pcrs[7]}`, `4=${pcrs[4]}`],
  'as-of': '2025-06-01',
  'any-measurement': true,
  'any-crl': true,
  'any-tcb': true,
}

const good2: Line = {
  ...good,
  evidence: path2,
  nonce: '982f5c6e45df0ed3f10b6f60b02f0c8390e281300f3805e2279c16168cd6ae9aa398f647caa2338748cd0fd9f5f819ef',
  pcr: [4, 7].map(at => `${at}=${genuine2.tpm_quote.pcrs[at]}`),
  'as-of': '2026-06-01',
}
const resultOf = ({ document }: Answer, name: string) =>
  (document.checks as { name: string; result: string; required: boolean }[]).find(made => made.name === name)

test('goal: from version 2 on the report, too, must be for the nonce; of older evidence the verdict shows whether it is', async () => {
  const name = 'vtpm-report-nonce'
  for (const document of [genuine2, { platform: 'az-snp', evidence: genuine2 }]) {
    const second = await verify({ ...good2, evidence: bundle('v2.json', document) })
    expect([second.code, second.failed, resultOf(second, name)?.result]).toEqual([0, [], 'PASS'])
  }
  // User data of zeros, which the report of version 1 covers, are no nonce.
  await expectFailed({ ...good, evidence: bundle('as-v2.json', { ...genuine, version: 2 }) }, [name])
  const first = await verify(good)
  expect(resultOf(first, name)).toMatchObject({ result: 'NOT CHECKED', required: false })
  // The number is not signed: with an older one, a report for another nonce is accepted, and the verdict says so.
  const relabelled = await verify({ ...good2, evidence: bundle('as-v1.json', { ...genuine2, version: 1 }) })
  expect([relabelled.code, resultOf(relabelled, name)?.result]).toEqual([0, 'PASS'])
  expect(resultOf(first, name)).toMatchObject({ reason: expect.stringContaining('the report is not for this nonce') })
})

test('goal: user data that are another nonce, longer, shorter or no bytes are not the nonce', () => {
  const nonce = Uint8Array.from({ length: 48 }, (_, at) => at + 1)
  const hex = toHex(nonce)
  const read2 = readVtpmBundle(readFileSync(path2), 'azure-hcl')
  const zeros = '00'.repeat(16)
  const outcome = (userData: unknown, asked: Uint8Array = nonce, version: 0 | 1 | 2 | null = read2.version) => {
    const runtimeData = utf8(JSON.stringify(userData === undefined ? {} : { 'user-data': userData }))
    return reportNonceCheck(version, { runtimeData, nonce: asked }).outcome
  }
  expect([outcome(hex + zeros), outcome(hex.toUpperCase() + zeros)]).toEqual(['pass', 'pass'])
  expect(outcome(hex + zeros, concat(nonce, new Uint8Array(16)))).toBe('pass')
  const wrong = [hex, hex + zeros.slice(2), `${hex}${zeros}00`, `${hex}${zeros.slice(2)}01`, '', 'xy', 7, undefined]
  expect(wrong.map(userData => outcome(userData))).toEqual(wrong.map(() => 'fail'))
  for (const version of [0, 1, null] as const) {
    expect(wrong.map(userData => outcome(userData, nonce, version))).toEqual(wrong.map(() => 'not-checked'))
    expect(outcome(hex + zeros, nonce, version)).toBe('pass')
  }
  expect(outcome(hex + zeros, nonce.subarray(0, 47))).toBe('fail')
  expect(outcome(hex + zeros, new Uint8Array(66))).toBe('fail')
  expect(reportNonceCheck(read2.version, { runtimeData: utf8('[]'), nonce }).outcome).toBe('fail')
})

test('goal: every form passes as one machine', async () => {
  const first = await verify(good)
  expect([first.code, first.failed]).toEqual([0, []])
  expect(first.document).toMatchObject({ simulated: false, kind: 'vtpm:paravisor-bound', product: 'milan' })
  for (const [name, document] of FORMS) {
    const other = await verify({ ...good, evidence: bundle('form.json', document) })
    expect([name, other.code, other.failed]).toEqual([name, 0, []])
    expect([name, other.document]).toEqual([name, first.document])
  }
})

test('goal: a --vek stands in for the certificate, and is needed without one', async () => {
  const { vcek: _, ...rest } = genuine
  const evidence = bundle('no-vcek.json', rest)
  await expectUsageError(argvOf({ ...good, evidence }), 'required option --vek is missing')
  expect((await verify({ ...good, evidence, vek: file('vcek.der', vcek) })).code).toBe(0)
})

test('goal: a changed part fails its own check', async () => {
  const changed = async (name: string, change: object) => bundle(name, { ...genuine, ...change })
  const quoteWith = (change: object) => ({ tpm_quote: { ...genuine.tpm_quote, ...change } })
  const flippedHex = (text: string, at: number) => toHex(flipped(bytesOfHex(text), at))
  const signed = await changed('s.json', quoteWith({ signature: flippedHex(signature, 9) }))
  await expectFailed({ ...good, evidence: signed }, ['tpm-quote-signature'])
  const other = pcrs.with(0, '07'.repeat(32))
  await expectFailed({ ...good, evidence: await changed('p.json', quoteWith({ pcrs: other })) }, ['tpm-quote-pcrs'])
  await expectFailed({ ...good, nonce: '00' }, ['tpm-quote-nonce'])
  const report = Buffer.from(flipped(hcl, 32 + 0x90)).toString('base64url')
  const forged = await verify({ ...good, evidence: await changed('r.json', { hcl_report: report }) })
  expect([forged.code, forged.failed]).toEqual([1, expect.arrayContaining(['report-signature'])])
})

test('goal: what is missing or malformed is named', async () => {
  const quote = genuine.tpm_quote
  const wrong: [string, unknown, string][] = [
    ['v3', { ...genuine, version: 3 }, 'evidence.version: 3 is neither 1 nor 2'],
    ['text', { ...genuine, version: '1' }, 'evidence.version: "1" is neither 1 nor 2'],
    ['v2-lists', { ...version0, version: 2 }, 'evidence.tpm_quote: missing or not an object'],
    ['platform', { platform: 'gcp-snp', evidence: genuine }, 'evidence.platform: "gcp-snp": not "az-snp"'],
    ['az-tdx', { platform: 'az-tdx', evidence: {} }, 'evidence.platform: "az-tdx", which is for --kind azure-tdx'],
    ['outside', { ...genuine, platform: 'az-snp' }, 'evidence.evidence: missing or not an object'],
    ['deep', { evidence: { evidence: genuine } }, 'evidence.quote: missing or not an object'],
    ['list', [], 'evidence: missing or not an object'],
    ['none', {}, 'evidence.quote: missing or not an object'],
    ['tdx', { ...genuine, td_quote: '' }, 'evidence: of a TDX machine, which --kind azure-tdx verifies'],
    ['hex', { ...genuine, tpm_quote: { ...quote, message: 'xy' } }, 'tpm_quote.message: missing or not bytes in hex'],
    ['pcrs', { ...genuine, tpm_quote: { ...quote, pcrs: [] } }, 'tpm_quote.pcrs: not a list of 1 to 24 values'],
    ['pcr', { ...genuine, tpm_quote: { ...quote, pcrs: ['00'] } }, 'tpm_quote.pcrs[0]: 1 bytes, not 32'],
    ['hcl', { ...genuine, hcl_report: '*' }, 'evidence.hcl_report: missing or not bytes in base64'],
    ['vcek', { ...genuine, vcek: 7 }, 'evidence.vcek: missing or not bytes in base64'],
    ['bytes', { ...version0, report: [256] }, 'evidence.report: missing or not a list of bytes'],
    ['short', { ...genuine, tpm_quote: { ...quote, pcrs: pcrs.slice(1) } }, 'pcrs: PCR values: 736 bytes'],
    ['plain', { ...genuine, hcl_report: Buffer.alloc(1184).toString('base64url') }, 'an SNP report alone names no key'],
  ]
  for (const [name, document, words] of wrong) {
    await expectUsageError(argvOf({ ...good, evidence: bundle(`${name}.json`, document) }), words)
  }
  await expectUsageError(argvOf({ ...good, evidence: file('big.json', ' '.repeat(bundleBytesMax + 1)) }), 'big.json')
  const doubled = file('twice.json', readFileSync(path, 'utf8').replace('{', '{"vcek": "",'))
  await expectUsageError(argvOf({ ...good, evidence: doubled }), 'twice.json')
  await expectUsageError(argvOf({ ...good, quote: path }), '--quote: the bundle of --evidence contains it')
  const host: Line = { kind: 'host', evidence: path, nonce: '00', ak: path, 'any-pcrs': true }
  await expectUsageError(argvOf(host), '--evidence does not apply to a vTPM of kind host')
  await expectUsageError(argvOf({ ...good, evidence: null }), 'required option --quote is missing')
})

test('goal: random changes of the bytes end as Malformed, in the same parts, or in a verdict that refuses them', async () => {
  const documents = [genuine, ...FORMS.map(([, document]) => document)]
  const wholes = [
    ...documents.map(document => ({ bytes: utf8(JSON.stringify(document)), line: good })),
    { bytes: utf8(JSON.stringify(genuine2)), line: good2 },
  ]
  const partsOf = (bytes: Uint8Array) => {
    const { report, vek, version: _, ...rest } = readVtpmBundle(bytes, 'azure-hcl')
    const { report: snp, runtimeData } = decodeHclReport(report)
    const [der] = vek === null ? [] : derBlocks(vek, 'CERTIFICATE', 'vcek')
    return { ...rest, snp, runtimeData, der }
  }
  await refuseMutations(wholes, partsOf, createDraw(50))
})
