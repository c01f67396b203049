// Goal: evidence of TDX machines on Azure passes in every form of bundle, as files too, and is refused when one part is
// of another machine, of other hardware, for another nonce, or changed. Evidence and keys of the vTPMs are genuine, and
// one machine passes with Intel's collateral. In the other tests, a SIMULATED platform signs the TDX quotes.

import { afterAll, expect, test } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { createDraw } from '../../../../scripts/rigs/draw.ts'
import { sha256 } from '../../../../src/attest/hash.ts'
import { Malformed } from '../../../../src/attest/malformed.ts'
import { type Anchor, decodeAnchor, decodePckChain, INTEL_ROOT, pckFaults } from '../../../../src/attest/tdx/chain.ts'
import { decodeQuote, INTEL_QE_VENDOR } from '../../../../src/attest/tdx/quote.ts'
import { differingFields } from '../../../../src/attest/tdx/td-report.ts'
import { decodeHclReport, runtimeAttestationKey } from '../../../../src/attest/tpm/hcl-report.ts'
import { encodeSpki } from '../../../../src/attest/tpm/key.ts'
import { isSignedByKeyOf, isSignedByPoint } from '../../../../src/attest/x509/ecdsa.ts'
import { concat, toHex, utf8 } from '../../../../src/base/bytes.ts'
import { readVtpmBundle } from '../../../../src/client/verify/vtpm/bundle.ts'
import { NO_COLLATERAL, startCollateralServer } from '../../../rigs/attest/collateral-server.ts'
import {
  base64,
  first,
  fromBase64,
  policyOf,
  second,
  secondAsOf,
  secondCollateral,
  simulateAzure,
} from '../../../rigs/attest/tdx/azure.ts'
import { filesOf, hclWith, lineOf } from '../../../rigs/attest/tdx/azure-line.ts'
import { pcsScript } from '../../../rigs/attest/tdx/pcs-script.ts'
import { withField } from '../../../rigs/launch/hcl-samples.ts'
import { expectUsageError, runHere } from '../../../rigs/program.ts'
import {
  argvOf,
  clearVtpmFiles,
  directory,
  expectFailed,
  file,
  flipped,
  type Line,
  logs,
  reasonOf,
  refuseMutations,
  verify,
} from '../../../rigs/vtpm-line.ts'

const nowMs = Date.parse('2026-01-01T00:00:00Z')
const { platform, collateral, rootPem, bundleOf } = await simulateAzure(nowMs)
const script = pcsScript(collateral)
const server = startCollateralServer(path => script[path])
afterAll(async () => {
  clearVtpmFiles()
  await server[Symbol.asyncDispose]()
})

const bundle = (document: unknown) => file('bundle.json', JSON.stringify(document))
const trust = { collateral, rootPem }
const old = lineOf(first, policyOf(first, { septVeDisable: 'any' }), trust)
const good = lineOf(second, policyOf(second), trust)
/** Intel's own root and collateral, for the second machine as it is. */
const genuineLine: Line = { ...good, collateral: secondCollateral, 'as-of': secondAsOf, 'trust-simulated-root': null }
const [oldBundle, goodBundle] = [await bundleOf(first), await bundleOf(second)]

/** The first machine's evidence as its source has it in the form before versions had numbers: lists of bytes. */
const genuine0 = JSON.parse(readFileSync(join(logs, 'paravisor-tdx-v0.json'), 'utf8'))
const version0 = { ...genuine0, td_quote: [...fromBase64(oldBundle.td_quote)] }
const attestationRs = { platform: 'az-tdx', evidence: oldBundle }
const FORMS: readonly (readonly [name: string, document: object])[] = [
  ['no certificate of SNP', { ...oldBundle, vcek: null }],
  ['version 1', oldBundle],
  ['version 0', version0],
  ['attestation-rs and kettle', attestationRs],
  ['c8s', { challenge: 'AAAA', evidence: attestationRs, csr: 'x' }],
]

test('goal: every form passes as one machine, and the document has quote, TCB level and runtime data', async () => {
  const documents = []
  for (const [name, document] of FORMS) {
    const { code, failed, document: found } = await verify({ ...old, evidence: bundle(document) })
    expect([name, code, failed]).toEqual([name, 0, []])
    documents.push(found)
  }
  expect(new Set(documents.map(document => JSON.stringify(document))).size).toBe(1)
  expect(documents[0]).toMatchObject({
    ...{ kind: 'vtpm:paravisor-bound', simulated: true, product: null, report: null },
    tdx: { quote: { mr_td: toHex(first.report.mrTd) }, tcb: { status: 'UpToDate' } },
    runtime_data: { 'vm-configuration': { 'secure-boot': true } },
  })
  const parts = filesOf(first, oldBundle)
  const { code, failed } = await verify({ ...old, ...parts })
  expect([code, failed]).toEqual([0, []])
  await expectUsageError(argvOf({ ...old, ...parts, 'td-quote': null }), 'required option --td-quote is missing')
  const twice = { evidence: bundle(oldBundle), 'td-quote': parts['td-quote'] }
  await expectUsageError(argvOf({ ...old, ...twice }), '--td-quote: the bundle of --evidence contains it')
})

test("goal: genuine evidence passes with Intel's own collateral, and is refused with one byte changed", async () => {
  const { genuine } = second
  const line = genuineLine
  const found = await verify({ ...line, evidence: join(logs, 'paravisor-tdx-nonce.json') })
  expect([found.code, found.failed, found.document.simulated]).toEqual([0, [], false])
  expect(reasonOf(found, 'pck-chain')).toBe("Intel's pinned root")
  expect(found.document.tdx).toMatchObject({ tcb: { status: 'UpToDate' }, platform: { fmspc: '90c06f000000' } })
  const tdQuote = fromBase64(genuine.td_quote)
  const quote = file('genuine-quote.bin', tdQuote)
  const alone = ['verify', 'tdx', quote, '--collateral', secondCollateral, '--as-of', secondAsOf, '--any-measurement']
  expect((await runHere(alone)).code).toBe(0)

  const { tpm_quote } = genuine
  const message = toHex(flipped(Buffer.from(tpm_quote.message, 'hex'), 60))
  /** Offsets of REPORTDATA, of MRENCLAVE of the quoting enclave, and in the PCK certificate. */
  const [reportData, enclave, certificate] = [48 + 520, 48 + 584 + 4 + 128 + 6 + 64, tdQuote.length - 3500]
  const quoted = (at: number) => ({ td_quote: base64(flipped(tdQuote, at)) })
  const changes: readonly (readonly [check: string, changes: object])[] = [
    ['quote-signature', quoted(reportData)],
    ['qe-report-signature', quoted(enclave)],
    ['pck-chain', quoted(certificate)],
    ['vtpm-td-report', { hcl_report: hclWith(second, 128, Uint8Array.of(0)) }],
    ['tpm-quote-signature', { tpm_quote: { ...tpm_quote, message } }],
  ]
  for (const [check, change] of changes) {
    const changed = await verify({ ...line, evidence: bundle({ ...genuine, ...change }) })
    expect([check, changed.code, changed.failed]).toEqual([check, 1, expect.arrayContaining([check])])
  }
  const signed = readFileSync(secondCollateral, 'utf8')
  for (const [check, from, to] of [
    ['tcb-info-signature', '2026-03-16T22:06:09Z', '2026-03-16T22:06:08Z'],
    ['qe-identity-signature', '2026-03-16T22:16:03Z', '2026-03-16T22:16:02Z'],
  ] as const) {
    const collateral = file('changed-collateral.json', signed.replace(from, to))
    const changed = await verify({ ...line, collateral, evidence: bundle(genuine) })
    expect([check, changed.code, changed.failed]).toEqual([check, 1, [check, 'vtpm-evidence']])
  }
  const late = await verify({ ...line, 'as-of': '2026-04-16', evidence: bundle(genuine) })
  expect([late.code, late.failed]).toEqual([1, expect.arrayContaining(['tcb-info-time', 'vtpm-evidence'])])
})

test('goal: the quotes are genuine: from Intel to the TD reports of their bundles, each signature is good', async () => {
  const anchor = decodeAnchor(INTEL_ROOT)
  for (const { genuine, tdReport } of [first, second]) {
    const quote = decodeQuote(fromBase64(genuine.td_quote))
    expect(differingFields(tdReport, quote)).toEqual([])
    expect(await isSignedByPoint(quote.signedBytes, quote.signature, quote.attestationKey)).toBe(true)
    const chain = decodePckChain(quote.pckChain, anchor)
    expect(await pckFaults(chain, anchor, nowMs)).toEqual([])
    expect(await isSignedByKeyOf(chain.pck, quote.qeReportBytes, quote.qeReportSignature)).toBe(true)
    const bound = toHex(sha256(concat(quote.attestationKey, quote.qeAuthData)))
    expect(toHex(quote.qeReport.reportData)).toBe(bound.padEnd(128, '0'))
    expect(toHex(quote.header.qeVendorId)).toBe(INTEL_QE_VENDOR)
  }
  const [old0, old1, new1] = [genuine0, first.genuine, second.genuine].map(document =>
    readVtpmBundle(utf8(JSON.stringify(document)), 'azure-tdx'),
  )
  expect([old0?.version, new1?.version]).toEqual([0, 1])
  expect({ ...old0, version: 1 }).toEqual({ ...old1, version: 1 })
  // Without collateral of Intel's for the machine, nothing passes: that of the simulated platform cannot be read then.
  const bare = await verify({ ...old, evidence: bundle(first.genuine), 'trust-simulated-root': null })
  expect([bare.code, bare.failed]).toEqual([2, ['collateral-form', 'vtpm-evidence']])
  const simulated = await verify({ ...old, evidence: bundle(first.genuine) })
  expect([simulated.code, simulated.failed]).toEqual([1, ['pck-chain', 'vtpm-evidence']])
})

test('goal: a report for the nonce is required of version 2, and shown of all evidence', async () => {
  const name = 'vtpm-report-nonce'
  const resultOf = (checks: unknown) =>
    (checks as { name: string; result: string; required: boolean }[]).find(made => made.name === name)
  const asTwo = await verify({ ...good, evidence: bundle({ ...goodBundle, version: 2 }) })
  expect([asTwo.code, resultOf(asTwo.document.checks)?.result]).toEqual([0, 'PASS'])
  const asOne = await verify({ ...good, evidence: bundle(goodBundle) })
  expect([asOne.code, resultOf(asOne.document.checks)?.result]).toEqual([0, 'PASS'])
  const inFiles = await verify({ ...good, ...filesOf(second, goodBundle) })
  expect([inFiles.code, resultOf(inFiles.document.checks)?.result]).toEqual([0, 'PASS'])
  for (const evidence of [{ evidence: bundle(oldBundle) }, filesOf(first, oldBundle)]) {
    const { code, document } = await verify({ ...old, ...evidence })
    expect([code, resultOf(document.checks)]).toMatchObject([0, { result: 'NOT CHECKED', required: false }])
  }
  await expectFailed({ ...old, evidence: bundle({ ...oldBundle, version: 2 }) }, [name])
  const stale = await expectFailed(
    { ...good, nonce: '00'.repeat(24), evidence: bundle({ ...goodBundle, version: 2 }) },
    ['tpm-quote-nonce', name],
  )
  expect(stale.code).toBe(1)
})

test('goal: parts of two machines never pass together', async () => {
  const { td_quote } = goodBundle
  const other = await expectFailed({ ...old, evidence: bundle({ ...oldBundle, td_quote }) }, [
    ...['mr-td', 'vtpm-evidence'],
  ])
  expect(reasonOf(other, 'vtpm-evidence')).toBe('the TDX quote did not pass, see the lines above')
  const any: Line = { 'any-measurement': true, policy: null }
  const quoteOf = await verify({ ...good, ...any, evidence: bundle({ ...oldBundle, td_quote }) })
  expect([quoteOf.code, quoteOf.failed]).toEqual([1, ['vtpm-td-report']])
  expect(reasonOf(quoteOf, 'vtpm-td-report')).toContain(': teeTcbSvn, mrSeam, tdAttributes, mrTd, reportData')
  const { hcl_report } = oldBundle
  const reportOf = await verify({ ...good, ...any, evidence: bundle({ ...goodBundle, hcl_report }) })
  expect([reportOf.code, reportOf.failed]).toEqual([1, ['vtpm-td-report']])
  const { tpm_quote } = oldBundle
  await expectFailed(
    { ...old, ...any, ...{ policy: good.policy ?? null }, evidence: bundle({ ...goodBundle, tpm_quote }) },
    ['tpm-quote-signature'],
  )
  // A TD of the attacker's own, with the REPORTDATA of the machine: only MRTD tells it from the paravisor.
  const mrTd = new Uint8Array(48).fill(7)
  const own = { ...(await bundleOf(second, { mrTd })), hcl_report: hclWith(second, 528, mrTd) }
  await expectFailed({ ...good, evidence: bundle(own) }, ['mr-td', 'vtpm-evidence'])
  const unpinned = await verify({ ...good, policy: null, evidence: bundle(goodBundle) })
  expect([unpinned.code, unpinned.failed]).toEqual([6, ['pin-measurement']])
})

test('goal: RTMRs that a paravisor would leave at zero are refused, unless the policy names them', async () => {
  const zeros = '00'.repeat(48)
  for (const [at, name] of (['rtmr0', 'rtmr1', 'rtmr2', 'rtmr3'] as const).entries()) {
    expect(toHex(second.report[name])).toBe(zeros)
    const value = new Uint8Array(48).fill(1)
    const evidence = bundle({
      ...(await bundleOf(second, { [name]: value })),
      hcl_report: hclWith(second, 720 + 48 * at, value),
    })
    const found = await expectFailed({ ...good, evidence }, ['vtpm-rtmrs'])
    expect([found.code, reasonOf(found, 'vtpm-rtmrs')]).toEqual([1, expect.stringContaining(`: ${name} is not zero`)])
    const any = await verify({ ...good, evidence, policy: null, 'any-measurement': true })
    expect([any.code, any.failed]).toEqual([1, ['vtpm-rtmrs']])
    const naming = (hex: string) => {
      const document = { ...JSON.parse(policyOf(second)), [name]: [hex] }
      return { ...good, evidence, policy: file(`rtmr-${hex.slice(0, 2)}.json`, JSON.stringify(document)) }
    }
    expect((await verify(naming(toHex(value)))).code).toBe(0)
    expect((await verify(naming(zeros))).failed).toEqual([name, 'vtpm-evidence'])
  }
})

test('goal: a changed TD report, runtime data, or REPORTDATA fails its own check', async () => {
  const rtmr = hclWith(second, 720, Uint8Array.of(1))
  const changed = await expectFailed({ ...good, evidence: bundle({ ...goodBundle, hcl_report: rtmr }) }, [
    'vtpm-td-report',
  ])
  expect(reasonOf(changed, 'vtpm-td-report')).toEndWith(': rtmr0')
  const type = hclWith(second, 0, Uint8Array.of(0x80))
  await expectFailed({ ...good, evidence: bundle({ ...goodBundle, hcl_report: type }) }, ['vtpm-td-report'])
  const behind = hclWith(second, 1100, Uint8Array.of(1))
  await expectFailed({ ...good, evidence: bundle({ ...goodBundle, hcl_report: behind }) }, ['vtpm-td-report'])
  const claims = base64(flipped(second.hcl, second.hcl.indexOf(0x7d, 0x4d4) - 2))
  await expectFailed({ ...good, evidence: bundle({ ...goodBundle, hcl_report: claims }) }, ['vtpm-report-data'])
  // REPORTDATA that has more than the digest, in the quote and in the TD report.
  const reportData = second.report.reportData.with(63, 1)
  const longer = { ...(await bundleOf(second, { reportData })), hcl_report: hclWith(second, 128, reportData) }
  await expectFailed({ ...good, evidence: bundle(longer) }, ['vtpm-report-data'])
  const { message } = second.genuine.tpm_quote
  const tampered = { ...goodBundle.tpm_quote, message: toHex(flipped(Buffer.from(message, 'hex'), 60)) }
  const unsigned = await verify({ ...good, evidence: bundle({ ...goodBundle, tpm_quote: tampered }) })
  expect([unsigned.code, unsigned.failed]).toEqual([1, expect.arrayContaining(['tpm-quote-signature'])])
})

test('goal: REPORTDATA that the policy names, and a key given with --ak, must be those of the machine', async () => {
  const evidence = bundle(goodBundle)
  const withData = (reportData: Uint8Array) =>
    file('data.json', JSON.stringify({ ...JSON.parse(policyOf(second)), reportData: toHex(reportData) }))
  expect((await verify({ ...good, evidence, policy: withData(second.report.reportData) })).code).toBe(0)
  const other = await verify({ ...good, evidence, policy: withData(first.report.reportData) })
  expect([other.code, other.failed]).toEqual([1, ['report-data', 'vtpm-evidence']])
  // Open in the policy, it is compared with the runtime data alone, and no line asks for it.
  expect(reasonOf(await verify({ ...good, evidence }), 'report-data')).toBeUndefined()
  const [own, stranger] = [second, first].map(({ runtimeData }) => encodeSpki(runtimeAttestationKey(runtimeData)))
  expect((await verify({ ...good, evidence, ak: file('own.der', own ?? '') })).code).toBe(0)
  await expectFailed({ ...good, evidence, ak: file('stranger.der', stranger ?? '') }, ['vtpm-given-key'])
})

test('goal: a TD in debug mode, a TCB out of date and old collateral are refused', async () => {
  const tdAttributes = second.report.tdAttributes | 1n
  const debug = { ...(await bundleOf(second, { tdAttributes })), hcl_report: hclWith(second, 512, Uint8Array.of(1)) }
  await expectFailed({ ...good, evidence: bundle(debug) }, ['td-attributes-debug', 'vtpm-evidence'])
  const late = await verify({ ...good, evidence: bundle(goodBundle), 'as-of': '2026-03-01' })
  expect([late.code, late.failed]).toEqual([1, expect.arrayContaining(['tcb-info-time', 'vtpm-evidence'])])
  expect(reasonOf(late, 'tcb-info-time')).toEndWith(
    '; get it again (--fetch), or verify for the time at which you saved it (--as-of)',
  )
  const minimum = file('minimum.json', policyOf(second).replace('2024-03-13', '2025-03-13'))
  const since = await verify({ ...good, evidence: bundle(goodBundle), policy: minimum })
  expect([since.code, since.failed]).toEqual([1, ['tcb-date', 'vtpm-evidence']])
  const strict = await verify({ ...old, policy: file('strict.json', policyOf(first)), evidence: bundle(oldBundle) })
  expect(strict.failed).toEqual(['td-attributes-sept-ve-disable', 'vtpm-evidence'])
})

test('goal: evidence of SNP is not taken for that of TDX, nor the reverse, however it is labelled', async () => {
  const snp = JSON.parse(readFileSync(join(logs, 'paravisor-bound.json'), 'utf8'))
  const { vcek: _, ...rest } = snp
  const { td_quote } = goodBundle
  const wrong: [object, string][] = [
    [snp, 'evidence: of an SNP machine, which --kind azure-hcl verifies'],
    [{ platform: 'az-tdx', evidence: snp }, 'evidence: of an SNP machine'],
    [{ platform: 'az-snp', evidence: goodBundle }, '"az-snp", which is for --kind azure-hcl: not "az-tdx"'],
    [{ platform: 'tdx', evidence: goodBundle }, 'evidence.platform: "tdx": not "az-tdx"'],
    [rest, 'evidence.td_quote: missing or not bytes in base64'],
    [{ ...rest, td_quote }, 'HCL report: of an SNP machine, which --kind azure-hcl verifies'],
    [{ ...goodBundle, vcek: snp.vcek }, 'evidence: of an SNP machine'],
    [
      { ...goodBundle, hcl_report: base64(withField(second.hcl, 0x4c8, 2)) },
      'HCL report: of an SNP machine, which --kind azure-hcl verifies',
    ],
    [{ ...goodBundle, td_quote: base64(utf8('{"td": 1}')) }, 'TDX quote header: truncated'],
    [{ ...goodBundle, td_quote: snp.hcl_report }, 'TDX quote: version 17224 is not 4 or 5'],
    [{ ...goodBundle, version: 3 }, 'evidence.version: 3 is neither 1 nor 2'],
    [{ ...version0, td_quote }, 'evidence.td_quote: missing or not a list of bytes'],
    [{ ...version0, version: 1 }, 'evidence.tpm_quote.pcrs[0]: missing or not bytes in hexadecimal'],
  ]
  for (const [document, words] of wrong) await expectUsageError(argvOf({ ...good, evidence: bundle(document) }), words)
  const asSnp: Line = { ...good, kind: 'azure-hcl', policy: null, collateral: null, 'trust-simulated-root': null }
  const snpLine: Line = { ...asSnp, evidence: bundle(goodBundle) }
  await expectUsageError(argvOf(snpLine), 'evidence: of a TDX machine, which --kind azure-tdx verifies')
  const { td_quote: __, ...bare } = goodBundle
  await expectUsageError(
    argvOf({ ...asSnp, evidence: bundle({ ...bare, vcek: snp.vcek }) }),
    'HCL report: of a TDX machine, which --kind azure-tdx verifies',
  )
  // An SNP report in an HCL report that says it is of TDX.
  const relabelled = base64(withField(fromBase64(snp.hcl_report), 0x4c8, 4))
  const mixed = bundle({ ...goodBundle, hcl_report: relabelled })
  await expectFailed({ ...good, evidence: mixed }, ['vtpm-td-report'])
  for (const [name, value] of [
    ['vek', 'x'],
    ['crl', 'x'],
    ['any-crl', true],
    ['any-tcb', true],
    ['chip-id', '00'.repeat(64)],
  ] as const) {
    const words = `--${name} does not apply to a vTPM of kind azure-tdx`
    await expectUsageError(argvOf({ ...good, evidence: bundle(goodBundle), [name]: value }), words)
  }
  for (const [name, value] of [
    ['collateral', 'x'],
    ['fetch', true],
    ['td-quote', 'x'],
  ] as const) {
    const line = { ...asSnp, evidence: bundle(snp), [name]: value }
    await expectUsageError(argvOf(line), `--${name} does not apply to a vTPM of kind azure-hcl`)
  }
})

test('goal: collateral comes from the service, and is kept; without any, nothing is judged', async () => {
  const line = { ...good, evidence: bundle(goodBundle), collateral: null }
  await expectUsageError(argvOf(line), 'required option --collateral is missing')
  await expectUsageError(argvOf({ ...line, 'pcs-url': server.url }), '--pcs-url goes with --fetch')
  const fetched = { ...line, fetch: true, 'pcs-url': server.url } as const
  const found = await verify(fetched)
  expect([found.code, found.failed, server.requests.length]).toEqual([0, [], 4])
  await expectUsageError(argvOf({ ...fetched, cache: join(directory('base'), 'none', 'x') }), 'none can be made')
  const cache = join(directory('made'), 'cache')
  const kept = join(cache, 'tdx-collateral-b0c06f000000-platform.json')
  const saved = await runHere(argvOf({ ...fetched, cache }))
  expect([saved.code, saved.stderr, server.requests.length]).toEqual([0, `saved ${kept}\n`, 8])
  expect(readdirSync(cache)).toEqual([basename(kept)])
  for (const [words, answer] of NO_COLLATERAL) {
    server.instead = answer
    const { code, stderr } = await runHere(argvOf(fetched))
    expect([words, code, stderr]).toEqual([words, 3, expect.stringContaining(words)])
  }
  // A stranger's chain names any platform: it is not genuine, and nothing is requested.
  server.requests = []
  const forger = await simulateAzure(nowMs)
  const evidence = file('forged.json', JSON.stringify(await forger.bundleOf(second)))
  await expectFailed({ ...fetched, evidence }, ['pck-chain', 'vtpm-evidence'])
  expect(server.requests).toEqual([])
  // The kept file does without the service; --verbose has a line for each check.
  const { code, stdout } = await runHere([...argvOf({ ...fetched, cache }), '--verbose'])
  expect([code, stdout]).toEqual([0, expect.stringContaining('vtpm-td-report')])
})

test('goal: no random change of a bundle is accepted', async () => {
  const wholes = [
    ...FORMS.map(([, document]) => ({ bytes: utf8(JSON.stringify(document)), line: old })),
    { bytes: utf8(JSON.stringify({ ...goodBundle, version: 2 })), line: good },
  ]
  const partsWith = (anchor: Anchor) => (bytes: Uint8Array) => {
    const { report, tdQuote, version: _, ...rest } = readVtpmBundle(bytes, 'azure-tdx')
    if (tdQuote === null) throw new Malformed('no quote')
    const { report: tdReport, runtimeData } = decodeHclReport(report, 'TDX')
    const { pckChain, ...quote } = decodeQuote(tdQuote)
    const { pck, authority } = decodePckChain(pckChain, anchor)
    const chain = [pck, authority].map(({ der }) => toHex(der))
    return { ...rest, runtimeData, quote, chain, differing: differingFields(tdReport, { pckChain, ...quote }) }
  }
  await refuseMutations(wholes, partsWith(decodeAnchor(platform.root)), createDraw(51))
  const genuine = { bytes: utf8(JSON.stringify(second.genuine)), line: genuineLine }
  await refuseMutations([genuine], partsWith(decodeAnchor(INTEL_ROOT)), createDraw(52))
})
