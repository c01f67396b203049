// Goal: `strongroom verify report` takes a report in the forms of other projects, and pins as options.

import { afterAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { derBlocks } from '../../../src/attest/encoding/pem.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { fromHex } from '../../../src/base/bytes.ts'
import { attestationRs, extendedReport } from '../../rigs/attest/evidence-forms.ts'
import { checksOf, expectUsageError, programArgv, runHere, runJson, vectors } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-forms-'))
afterAll(() => rmSync(dir, { recursive: true }))

const reports = join(vectors, 'reports')
const milan = join(reports, 'milan-v3.bin')
const milanChain = join(reports, 'milan-v3.chain.pem')
/** So that no verdict here changes with the day. */
const asOf = ['--as-of', '2026-06-01T00:00:00Z']

function file(name: string, content: string): string {
  const path = join(dir, name)
  writeFileSync(path, content)
  return path
}

const genoa = new Uint8Array(readFileSync(join(reports, 'genoa-v5.bin')))
const expected: { report: string; measurement: string }[] = JSON.parse(
  readFileSync(join(reports, 'expected.json'), 'utf8'),
)

describe('a report in the forms of others, and pins as options', () => {
  const measurement = expected.find(item => item.report === 'genoa-v5.bin')?.measurement ?? ''
  const [vek, ask, ark] = derBlocks(readFileSync(join(reports, 'genoa-v5.chain.pem')), 'CERTIFICATE', 'chain') as [
    Uint8Array,
    Uint8Array,
    Uint8Array,
  ]
  const bundle = file('bundle.json', JSON.stringify(attestationRs(genoa, { vek, ask, ark })))
  const argv = (path: string, ...more: string[]) => ['verify', 'report', '--report', path, ...asOf, ...more]
  const waived = ['--any-crl', '--any-tcb']

  test('goal: a bundle needs no other file, and its verdict says that nothing else of it is looked at', async () => {
    const { code, document } = await runJson(...argv(bundle, ...waived, '--measurement', measurement))
    expect([code, checksOf(document, 'FAIL')]).toEqual([0, []])
    const form = (document.checks as { name: string; reason: string }[]).find(check => check.name === 'report-form')
    expect(form?.reason).toBe(
      'an SNP report out of evidence of attestation-rs: it and its certificates count, and nothing else',
    )
  })

  test("goal: a certificate on the command line goes before the bundle's", async () => {
    const { document } = await runJson(...argv(bundle, ...waived, '--any-measurement', '--vek', milanChain))
    expect(checksOf(document, 'FAIL')).toContain('report-signature')
  })

  test('goal: standard input is a file, too', async () => {
    const child = Bun.spawn([...programArgv, ...argv('-', ...waived, '--measurement', measurement)], {
      stdin: Buffer.from(`${Buffer.from(extendedReport(genoa, { vek, ask, ark })).toString('base64')}\n`),
      stdout: 'pipe',
    })
    expect(await child.stdout.text()).toContain('VERDICT: PASS')
    expect(await child.exited).toBe(0)
  })

  test('goal: each pin as an option is compared, counts as a pin, and contradicts no file', async () => {
    const zeros = (bytes: number) => '00'.repeat(bytes)
    for (const [option, value, failed] of [
      ['--measurement', zeros(48), 'measurement'],
      ['--host-data', 'ff'.repeat(32), 'host-data'],
      ['--id-key-digest', 'ff'.repeat(48), 'id-key-digest'],
      ['--author-key-digest', 'ff'.repeat(48), 'author-key-digest'],
      ['--chip-id', zeros(64), 'chip-id'],
      ['--vmpl', '3', 'vmpl'],
      ['--minimum-guest-svn', '4000000000', 'minimum-guest-svn'],
    ] as const) {
      const pins = option === '--measurement' ? [] : ['--measurement', measurement]
      const found = await runHere(argv(bundle, ...waived, ...pins, option, value, '--json'))
      expect([option, found.code, checksOf(JSON.parse(found.stdout), 'FAIL')]).toEqual([option, 6, [failed]])
    }
    const either = ['--measurement', zeros(48), '--measurement', measurement]
    expect((await runHere(argv(bundle, ...waived, ...either))).code).toBe(0)
    const named = file(
      'named.json',
      JSON.stringify(encodePolicy({ ...strictPolicy(), measurements: [fromHex(measurement) ?? new Uint8Array(0)] })),
    )
    await expectUsageError(
      argv(bundle, ...waived, '--policy', named, '--measurement', measurement),
      'names measurements, too',
    )
    await expectUsageError(argv(bundle, ...waived, '--measurement', '00'), 'It must be 48 bytes in hexadecimal')
  })

  test('goal: a report without a certificate asks for one, and a bundle that is none is named', async () => {
    await expectUsageError(argv(milan, '--any-measurement', ...waived), '--vek is missing')
    await expectUsageError(
      argv(file('empty.json', '{}'), '--any-measurement', ...waived),
      'without an SNP report in a place that is known',
    )
  })
})
