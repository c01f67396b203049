// Goal: a quote is over a TD report if every field that the quote repeats is in it, and each that differs is named. The
// offsets are those of Intel's TDREPORT_STRUCT: REPORTMACSTRUCT at 0, TEE_TCB_INFO at 256, TDINFO_STRUCT at 512.

import { expect, test } from 'bun:test'
import { Malformed } from '../../../src/attest/malformed.ts'
import { decodeQuote, type TdReport } from '../../../src/attest/tdx/quote.ts'
import { differingFields } from '../../../src/attest/tdx/td-report.ts'
import { decodeHclReport } from '../../../src/attest/tpm/hcl-report.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { first, fromBase64, second } from '../../rigs/attest/tdx/azure.ts'
import { SIMULATED_PCK, SIMULATED_REPORT, simulateQuote, simulateTdx } from '../../rigs/attest/tdx/simulated.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'

const platform = await simulateTdx(Date.parse('2026-01-01'))
const pck = await platform.pck(SIMULATED_PCK)
const added = { teeTcbSvn2: new Uint8Array(16).fill(20), mrServiceTd: new Uint8Array(48).fill(21) }
const report15: TdReport = { ...SIMULATED_REPORT, version: '1.5', added, mrOwner: new Uint8Array(48).fill(22) }
const report10: TdReport = { ...report15, version: '1.0', added: null }
const quoteOf = async (version: 4 | 5, report: TdReport) =>
  decodeQuote(await simulateQuote(platform, { version, report, pck }))

const OFFSETS: readonly (readonly [name: keyof TdReport | 'teeTcbSvn2' | 'mrServiceTd', at: number])[] = [
  ...([
    ['teeTcbSvn', 264],
    ['mrSeam', 280],
    ['mrSignerSeam', 328],
    ['seamAttributes', 376],
  ] as const),
  ...([
    ['tdAttributes', 512],
    ['xfam', 520],
    ['mrTd', 528],
    ['mrConfigId', 576],
    ['mrOwner', 624],
  ] as const),
  ...([
    ['mrOwnerConfig', 672],
    ['rtmr0', 720],
    ['rtmr1', 768],
    ['rtmr2', 816],
    ['rtmr3', 864],
  ] as const),
  ...([
    ['reportData', 128],
    ['teeTcbSvn2', 384],
    ['mrServiceTd', 912],
  ] as const),
]

function bytesOf(value: unknown): Uint8Array {
  if (value instanceof Uint8Array) return value
  const bytes = new Uint8Array(8)
  new DataView(bytes.buffer).setBigUint64(0, value as bigint, true)
  return bytes
}

function tdReport(): Uint8Array {
  const bytes = new Uint8Array(1184)
  bytes[0] = 0x81
  for (const [name, at] of OFFSETS) bytes.set(bytesOf({ ...report15, ...added }[name as keyof TdReport]), at)
  return bytes
}

test('goal: fields that differ are named, in either version of the quote', async () => {
  const quotes = [await quoteOf(4, report10), await quoteOf(5, report10), await quoteOf(5, report15)] as const
  for (const quote of quotes) {
    expect(differingFields(tdReport(), quote)).toEqual([])
    for (const [name, at] of OFFSETS) {
      const isQuoted = quote.report.added !== null || (name !== 'teeTcbSvn2' && name !== 'mrServiceTd')
      const changed = tdReport()
      changed[at] = (changed[at] ?? 0) ^ 0x80
      expect([name, differingFields(changed, quote)]).toEqual([name, isQuoted ? [name] : []])
    }
  }
})

test('goal: other types, and bytes behind the report, are refused', async () => {
  const quote = await quoteOf(4, report10)
  expect(() => differingFields(tdReport().with(0, 0), quote)).toThrow('TD report: type 0x0 is not 0x81')
  expect(() => differingFields(tdReport().with(1, 1), quote)).toThrow('TD report: type 0x181 is not 0x81')
  for (const [at, value] of [
    [2, 2],
    [3, 1],
  ] as const) {
    expect(() => differingFields(tdReport().with(at, value), quote)).toThrow('is not 0x81, TDX')
  }
  expect(differingFields(tdReport().with(2, 1), quote)).toEqual([])
  expect(() => differingFields(tdReport().with(1024, 1), quote)).toThrow('bytes after its end that are not zero')
  expect(() => differingFields(tdReport().subarray(0, 1023), quote)).toThrow('TD report: truncated')
})

test('goal: hostile HCL reports of TDX machines end as Malformed, or are compared with a quote', async () => {
  const quote = decodeQuote(fromBase64(first.genuine.td_quote))
  const counts = { malformed: 0, same: 0, other: 0 }
  await fuzz({ samples: [first.hcl, second.hcl], count: 10_000 }, bytes => {
    try {
      const { report, runtimeData } = decodeHclReport(bytes, 'TDX')
      const isSame = differingFields(report, quote).length === 0
      // The fields of the quote are then those of the first machine, with all other bytes changed.
      if (isSame) expect(toHex(report.subarray(512, 912))).toBe(toHex(first.tdReport.subarray(512, 912)))
      expect(runtimeData.length).toBeGreaterThan(0)
      counts[isSame ? 'same' : 'other'] += 1
    } catch (error) {
      if (!(error instanceof Malformed)) throw error
      counts.malformed += 1
    }
  })
  expect(Math.min(...Object.values(counts))).toBeGreaterThan(20)
})
