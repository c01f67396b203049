// Goal: files of evidence are read in the forms in which tools and services write them, and a wrong file is named for
// what it is, with the option that takes it.

import { afterAll, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { toHex } from '../../../../src/base/bytes.ts'
import { fromBase64, policyOf, second, simulateAzure } from '../../../rigs/attest/tdx/azure.ts'
import { filesOf, lineOf } from '../../../rigs/attest/tdx/azure-line.ts'
import { expectUsageError } from '../../../rigs/program.ts'
import { argvOf, clearVtpmFiles, file, logs, verify } from '../../../rigs/vtpm-line.ts'

afterAll(clearVtpmFiles)
const { collateral, rootPem, bundleOf } = await simulateAzure(Date.parse('2026-01-01T00:00:00Z'))
const good = lineOf(second, policyOf(second), { collateral, rootPem })
const goodBundle = await bundleOf(second)

test('goal: the TDX quote may be the text of the metadata service, and files that are none are named', async () => {
  const parts = filesOf(second, goodBundle)
  const answer = JSON.stringify({ quote: goodBundle.td_quote })
  for (const [name, text] of Object.entries({
    ...{
      base64url: goodBundle.td_quote,
      padded: `${goodBundle.td_quote}${'='.repeat(-goodBundle.td_quote.length & 3)}\n`,
    },
    ...{
      hex: toHex(fromBase64(goodBundle.td_quote)),
      base64: Buffer.from(goodBundle.td_quote, 'base64url').toString('base64'),
    },
  })) {
    expect([name, (await verify({ ...good, ...parts, 'td-quote': file('quote.txt', text) })).code]).toEqual([name, 0])
  }
  const json = file('answer.json', answer)
  const wrong: [string, string | Uint8Array, string][] = [
    ['td-quote', answer, 'JSON, and no quote: give the value of its member `quote`, and a whole bundle to --evidence'],
    ['td-quote', second.tdReport, 'a TD report, and no TDX quote: the quote is made from it'],
    ['td-quote', second.tdReport.subarray(0, 1024), 'a TD report, and no TDX quote'],
    ['td-quote', second.hcl, 'an HCL report, and no TDX quote'],
    ['report', second.tdReport, 'a TD report alone names no key; the HCL report around it is in NV index 0x01400001'],
    ['report', second.tdReport.subarray(0, 1024), 'a TD report alone names no key'],
    ['report', readFileSync(join(logs, '../reports/milan-v3.bin')), 'an SNP report alone names no key'],
    ['report', second.hcl.subarray(1), 'TDX report: 2599 bytes are not an HCL report'],
    [
      'report',
      fromBase64(JSON.parse(readFileSync(join(logs, 'paravisor-bound.json'), 'utf8')).hcl_report),
      'HCL report: of an SNP machine, which --kind azure-hcl verifies',
    ],
  ]
  for (const [option, bytes, words] of wrong) {
    const path = file('wrong.bin', bytes)
    await expectUsageError(argvOf({ ...good, ...parts, [option]: path }), `--${option} ${path}: ${words}`)
  }
  await expectUsageError(
    ['verify', 'tdx', json, '--collateral', json],
    `${json}: JSON, and no quote: give the quote in it`,
  )
  const asSnp = { ...parts, kind: 'azure-hcl', nonce: toHex(second.nonce), 'any-pcrs': true, 'td-quote': null } as const
  await expectUsageError(
    argvOf(asSnp),
    `--report ${parts.report}: HCL report: of a TDX machine, which --kind azure-tdx verifies`,
  )
})
