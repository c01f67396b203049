// Goal: the quote of a paravisor's vTPM hangs on the TDX quote link by link, and each link that breaks stops all behind
// it; the parts are those of a genuine machine.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type TdxParavisorInput, verifyTdxParavisorVtpm } from '../../../src/attest/tdx/paravisor.ts'
import { decodeQuote, type TdxQuote } from '../../../src/attest/tdx/quote.ts'
import { differingFields } from '../../../src/attest/tdx/td-report.ts'
import { decodeHclReport } from '../../../src/attest/tpm/hcl-report.ts'
import { QUOTE_CHECKS } from '../../../src/attest/tpm/quote.ts'
import { concat, equalConstantTime, utf8 } from '../../../src/base/bytes.ts'
import { first, fromBase64, second } from '../../rigs/attest/tdx/azure.ts'
import { flipped } from '../../rigs/vtpm-line.ts'

const bytesOf = (hex: string) => new Uint8Array(Buffer.from(hex, 'hex'))
const { tpm_quote, td_quote } = second.genuine
const quote = decodeQuote(fromBase64(td_quote))
const good: TdxParavisorInput = {
  evidence: { ok: true, quote },
  tdReport: second.tdReport,
  runtimeData: second.runtimeData,
  quote: bytesOf(tpm_quote.message),
  signature: { scheme: 'RSASSA', hash: 'SHA-256', signature: bytesOf(tpm_quote.signature) },
  nonce: second.nonce,
  pcrs: { 'SHA-256': new Map(tpm_quote.pcrs.map((hex, at) => [at, bytesOf(hex)])) },
}
const LINKS = ['vtpm-evidence', 'vtpm-td-report', 'vtpm-report-data', 'vtpm-attestation-key', 'vtpm-binding']
const ALL = [...LINKS, ...QUOTE_CHECKS]

/** Names and outcomes of the checks of the good parts with these changes. */
async function judged(changes: Partial<TdxParavisorInput>) {
  const { ok, checks } = await verifyTdxParavisorVtpm({ ...good, ...changes })
  return { ok, outcomes: checks.map(({ name, outcome }) => `${name} ${outcome}`) }
}

/** The quote with other report data, and the TD report with the same. */
function withReportData(reportData: Uint8Array): Partial<TdxParavisorInput> {
  const tdReport = second.tdReport.slice()
  tdReport.set(reportData, 128)
  const signedBytes = quote.signedBytes.slice()
  signedBytes.set(reportData, signedBytes.length - 64)
  const changed: TdxQuote = { ...quote, signedBytes, report: { ...quote.report, reportData } }
  return { tdReport, evidence: { ok: true, quote: changed } }
}

test('goal: every link of genuine parts is good, and the kind is named', async () => {
  expect(await judged({})).toEqual({ ok: true, outcomes: ALL.map(name => `${name} pass`) })
  expect((await verifyTdxParavisorVtpm(good)).kind).toBe('vtpm:paravisor-bound')
})

test('goal: each link breaks by itself, and nothing behind it is taken for checked', async () => {
  const cases: readonly (readonly [link: string, changes: Partial<TdxParavisorInput>])[] = [
    ['vtpm-evidence', { evidence: { ok: false, quote } }],
    ['vtpm-evidence', { evidence: { ok: true, quote: null } }],
    ['vtpm-td-report', { tdReport: first.tdReport }],
    ['vtpm-td-report', { tdReport: flipped(second.tdReport, 528) }],
    ['vtpm-td-report', { tdReport: second.tdReport.subarray(0, 1000) }],
    ['vtpm-report-data', { runtimeData: first.runtimeData }],
    ['vtpm-report-data', { runtimeData: concat(second.runtimeData, utf8(' ')) }],
    ['vtpm-report-data', withReportData(flipped(quote.report.reportData, 63))],
    ['vtpm-attestation-key', { ...withReportData(hashOf(utf8('{"keys":[]}'))), runtimeData: utf8('{"keys":[]}') }],
  ]
  for (const [link, changes] of cases) {
    const at = ALL.indexOf(link)
    const outcomes = ALL.map((name, place) => `${name} ${place < at ? 'pass' : place === at ? 'fail' : 'not-checked'}`)
    expect(await judged(changes)).toEqual({ ok: false, outcomes })
  }
})

test('goal: the quote of the vTPM is verified with the key that the runtime data name', async () => {
  const other = first.genuine.tpm_quote
  const signature = { ...good.signature, signature: bytesOf(other.signature) } as TdxParavisorInput['signature']
  const pcrs = { 'SHA-256': new Map(other.pcrs.map((hex, at) => [at, bytesOf(hex)])) }
  const stranger = await judged({ quote: bytesOf(other.message), signature, pcrs, nonce: first.nonce })
  expect([stranger.ok, stranger.outcomes]).toEqual([false, expect.arrayContaining(['tpm-quote-signature fail'])])
  expect((await judged({ nonce: first.nonce })).outcomes).toContain('tpm-quote-nonce fail')
  expect((await judged({ pcrs: {} })).outcomes).toContain('tpm-quote-pcrs fail')
})

// Goal: the help lists every byte of the HCL report that a change leaves unnoticed, and no other.
test('bytes that nothing verifies', () => {
  const { hcl } = second
  const passes = (bytes: Uint8Array) => {
    try {
      const { report, runtimeData } = decodeHclReport(bytes, 'TDX')
      return differingFields(report, quote).length === 0 && equalConstantTime(runtimeData, second.runtimeData)
    } catch {
      return false
    }
  }
  expect([passes(hcl), quote.report.added]).toEqual([true, null])
  const open = [...hcl.keys()].filter(at => [1, 2, 3, 8, 128].some(bits => passes(hcl.with(at, (hcl[at] ?? 0) ^ bits))))
  const help = readFileSync(join(import.meta.dir, '../../../src/cli/help/verify.md'), 'utf8')
  const table = help.slice(help.indexOf('| bytes '), help.indexOf('For `svsm`, only'))
  const listed = [...table.matchAll(/^\| (\d[\d-]*) +\|/gm)].map(([, cell = '']) => cell)
  const bytes = listed.flatMap(range => {
    const [from = 0, to = from] = range.split('-').map(Number)
    return Array.from({ length: to - from + 1 }, (_, at) => from + at)
  })
  expect(bytes).toEqual(open)
})

function hashOf(runtimeData: Uint8Array): Uint8Array {
  return concat(new Uint8Array(new Bun.CryptoHasher('sha256').update(runtimeData).digest()), new Uint8Array(32))
}
