// Goal: quotes of real platforms verify to Intel's root. They are not in this repository: STRONGROOM_TDX_VECTORS names
// a directory with samples of Phala-Network/dcap-qvl and their collateral. v4.quote, v4.collateral.json: TD report 1.0,
// up to date. v5.quote, v5.collateral.json: TD report 1.5, of a platform below every TCB level.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { QuoteVerifier } from '@phala/dcap-qvl'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { strictTdxPolicy } from '../../../src/attest/tdx/encode-policy.ts'
import { decodeQuote } from '../../../src/attest/tdx/quote.ts'
import { type TdxVerdict, verifyTdxQuote } from '../../../src/attest/tdx/verify.ts'
import { fromUtf8, toHex, utf8 } from '../../../src/base/bytes.ts'
import { simulateTdx } from '../../rigs/attest/tdx/simulated.ts'
import { checksOf, runHere } from '../../rigs/program.ts'

const directory = process.env.STRONGROOM_TDX_VECTORS ?? ''
const skipped = skipUnless(directory !== '', 'STRONGROOM_TDX_VECTORS names no directory with quotes of real platforms')

type Vector = { readonly quote: Uint8Array; readonly collateral: Uint8Array; readonly asOfMs: number }

/** A time at which its collateral was in force. */
const times = { v4: '2025-06-20', v5: '2026-02-20' } as const
const pathOf = (file: string) => join(directory, file)

function vector(name: keyof typeof times): Vector {
  const bytes = (end: string) => new Uint8Array(readFileSync(pathOf(`${name}.${end}`)))
  return { quote: bytes('quote'), collateral: bytes('collateral.json'), asOfMs: Date.parse(times[name]) }
}

const policy = strictTdxPolicy()
const ask = async ({ quote, collateral, asOfMs }: Vector) => await verifyTdxQuote(quote, collateral, { asOfMs, policy })

function failed({ checks }: TdxVerdict): string[] {
  return checks.filter(({ outcome }) => outcome === 'fail').map(({ name }) => name)
}

test.skipIf(skipped)('goal: both quotes read as a hexadecimal dump shows', () => {
  const v4 = decodeQuote(vector('v4').quote)
  const v5 = decodeQuote(vector('v5').quote)
  expect([v4.version, v4.report.version, v5.version, v5.report.version]).toEqual([4, '1.0', 5, '1.5'])
  expect([v4, v5].map(({ report }) => toHex(report.teeTcbSvn))).toEqual([
    '06010300000000000000000000000000',
    '07010300000000000000000000000000',
  ])
  expect(toHex(v4.report.mrTd).slice(0, 16)).toBe('91eb2b44d141d4ec')
  expect(toHex(v5.report.added?.teeTcbSvn2 ?? new Uint8Array())).toBe('0d010300000000000000000000000000')
  expect([v4.report.tdAttributes, v5.report.tdAttributes]).toEqual([1n << 28n, 1n << 28n])
  expect([v4.report.xfam, v5.report.xfam]).toEqual([0x602e7n, 0x618e7n])
  expect(v4.qeReport.isvProdId).toBe(2)
})

test.skipIf(skipped)('goal: a platform that was up to date is', async () => {
  const verdict = await ask(vector('v4'))
  expect([verdict.ok, failed(verdict)]).toEqual([true, []])
  expect(verdict.level).toMatchObject({ status: 'UpToDate', advisories: [] })
  expect(toHex(verdict.pck?.fmspc ?? new Uint8Array())).toBe('b0c06f000000')
  expect(new Date(verdict.untilMs ?? 0).toISOString()).toBe('2025-07-19T10:00:35.000Z')
})

test.skipIf(skipped)('goal: signatures that hold do not make up for a TCB below every level', async () => {
  const verdict = await ask(vector('v5'))
  expect([verdict.ok, failed(verdict), verdict.level]).toEqual([false, ['tcb-level'], null])
})

test.skipIf(skipped)('goal: time, collateral of another platform and a simulated root are each refused', async () => {
  const v4 = vector('v4')
  const late = await ask({ ...v4, asOfMs: Date.parse('2025-07-21') })
  expect(failed(late)).toContain('tcb-info-time')
  expect(late.ok).toBe(false)
  const other = await ask({ ...vector('v5'), quote: v4.quote })
  expect(failed(other)).toContain('tcb-info-platform')
  const { root } = await simulateTdx(v4.asOfMs)
  const simulated = await verifyTdxQuote(v4.quote, v4.collateral, { asOfMs: v4.asOfMs, policy, root })
  expect([simulated.ok, failed(simulated)]).toEqual([false, ['collateral-form']])
})

test.skipIf(skipped)('goal: nothing that Intel signed about the platform can change', async () => {
  const { collateral, ...rest } = vector('v4')
  const text = fromUtf8(collateral)
  for (const [from, to] of [
    ['\\"tcbEvaluationDataNumber\\":17', '\\"tcbEvaluationDataNumber\\":18'],
    ['\\"isvsvn\\":3}', '\\"isvsvn\\":0}'],
    ['UpToDate', 'OutOfDate'],
  ] as const) {
    expect(text).toContain(from)
    const verdict = await ask({ ...rest, collateral: utf8(text.replace(from, to)) })
    expect(failed(verdict).filter(name => name.endsWith('-signature'))).not.toEqual([])
  }
})

test.skipIf(skipped)('goal: no byte up to the certificates can change', async () => {
  const v4 = vector('v4')
  const certificates = Buffer.from(v4.quote).indexOf('-----BEGIN')
  expect(certificates).toBe(1258)
  const accepted: number[] = []
  for (let at = 0; at < certificates; at += 1) {
    const quote = v4.quote.with(at, (v4.quote[at] ?? 0) ^ (1 << (at & 7)))
    if ((await ask({ ...v4, quote })).ok) accepted.push(at)
  }
  expect(accepted).toEqual([])
})

test.skipIf(skipped)('goal: @phala/dcap-qvl says the same of both', async () => {
  const theirs = ({ quote, collateral, asOfMs }: Vector) =>
    QuoteVerifier.newProd().verify(Buffer.from(quote), JSON.parse(fromUtf8(collateral)), asOfMs / 1000)
  const { status, advisory_ids } = theirs(vector('v4'))
  const { ok, level } = await ask(vector('v4'))
  expect([ok, level]).toMatchObject([true, { status, advisories: advisory_ids }])
  expect(() => theirs(vector('v5'))).toThrow()
})

test.skipIf(skipped)("goal: verify tdx passes the one under Intel's pinned root, and refuses the other", async () => {
  const argvOf = (name: keyof typeof times) => {
    const collateral = pathOf(`${name}.collateral.json`)
    const quote = pathOf(`${name}.quote`)
    return ['verify', 'tdx', quote, '--collateral', collateral, '--any-measurement', '--as-of', times[name]]
  }
  const people = await runHere(argvOf('v4'))
  expect(people.stdout).toContain('VERDICT: PASS')
  expect(people.stdout).toContain("root: Intel's pinned root")
  expect(people.stdout).not.toContain('SIMULATED')
  const v4 = await runHere([...argvOf('v4'), '--json'])
  expect([v4.code, JSON.parse(v4.stdout)]).toMatchObject([0, { ok: true, simulated: false }])
  const urls = await runHere(['verify', 'tdx', pathOf('v4.quote'), '--print-collateral-urls'])
  expect([urls.code, urls.stdout]).toEqual([0, expect.stringContaining('/tcb?fmspc=b0c06f000000')])
  const v5 = await runHere([...argvOf('v5'), '--json'])
  expect([v5.code, checksOf(JSON.parse(v5.stdout), 'FAIL')]).toEqual([1, ['tcb-level']])
})
