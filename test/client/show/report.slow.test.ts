// Goal: `strongroom show report` prints every field of a report and never a verdict.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { decodeReport, FIELDS, type FieldName, reportSizeBytes } from '../../../src/attest/report/report.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { shownReportText } from '../../../src/client/show/report-text.ts'
import { reportDocument } from '../../../src/client/verdict/report-document.ts'
import { paintFor } from '../../../src/terminal/render.ts'
import { expectUsageError, main, runHere, vectors } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-show-'))
afterAll(() => rmSync(dir, { recursive: true }))

const reports = join(vectors, 'reports')
const path = (name: string) => join(reports, name)
const expectedReports: Record<string, unknown>[] = JSON.parse(readFileSync(path('expected.json'), 'utf8'))

async function shown(...argv: string[]) {
  const { code, stdout, stderr } = await runHere(['show', 'report', ...argv, '--json'])
  expect([argv, code, stderr]).toEqual([argv, 0, ''])
  return JSON.parse(stdout)
}

/** Bytes whose change the decoder refuses: version and signing key. */
function flipped(bytes: Uint8Array, at: number): Uint8Array | null {
  const [versionAt] = FIELDS.version
  if (at > versionAt && at < versionAt + 4) return null
  return bytes.with(at, (bytes[at] ?? 0) ^ 1)
}

// Goal: no byte of a report can change without the document and the text for people changing, so that every field of
// the layout is in both.
test.each(['milan-v2.bin', 'milan-v3.bin', 'genoa-v5.bin', 'turin-v5.bin'])('each byte of %s', name => {
  const bytes = new Uint8Array(readFileSync(path(name)))
  const product = name.startsWith('milan') ? 'milan' : name.startsWith('genoa') ? 'genoa' : 'turin'
  const both = (input: Uint8Array) => {
    const report = decodeReport(input)
    const text = shownReportText(
      { form: 'plain', container: null, report, product, kds: { reason: 'none' } },
      paintFor(false),
    )
    return [JSON.stringify(reportDocument(report, product)), text] as const
  }
  const [document, text] = both(bytes)
  const silent: FieldName[] = []
  for (const [field, [offset, sizeBytes]] of Object.entries(FIELDS)) {
    for (let at = offset; at < offset + sizeBytes; at += 1) {
      const changed = flipped(bytes, at)
      if (changed === null) continue
      const [otherDocument, otherText] = both(changed)
      if (otherDocument === document || otherText === text) silent.push(field as FieldName)
    }
  }
  expect(silent).toEqual([])
  expect(Object.values(FIELDS).reduce((sum, [, sizeBytes]) => sum + sizeBytes, 0)).toBe(reportSizeBytes)
})

// Goal: fields of genuine reports are those that another decoder found.
test.each(expectedReports.map(item => [String(item.report), item] as const))('%s', async (name, expected) => {
  const product = String(expected.product)
  const { report, verified } = await shown(path(name), ...(name.includes('-v2') ? ['--product', product] : []))
  const tcb = (found: { snp: number; microcode: number; bootloader: number; tee: number }) => ({
    bl: found.bootloader,
    tee: found.tee,
    snp: found.snp,
    ucode: found.microcode,
  })
  expect([verified, report.measurement, report.report_data]).toEqual([
    false,
    expected.measurement,
    expected.report_data,
  ])
  expect(report).toMatchObject({ vmpl: expected.vmpl, host_data: expected.host_data, version: expected.report_version })
  expect(expected.reported_tcb).toMatchObject(tcb(report.tcb.reported))
  expect(expected.launch_tcb).toMatchObject(tcb(report.tcb.launch))
  expect(report.signer).toBe(String(expected.signer).toLowerCase())
  expect(report.signature.r).toBe(toHex(readFileSync(path(name)).subarray(0x2a0, 0x2e8)))
})

// Goal: a forged report is shown as well, and both forms say first that nothing was verified.
test('nothing is verified', async () => {
  const forged = join(dir, 'forged.bin')
  writeFileSync(forged, new Uint8Array(readFileSync(path('milan-v3.bin'))).fill(0xab, 0x90, 0xc0))
  const { code, stdout } = await runHere(['show', 'report', forged])
  expect(code).toBe(0)
  expect(stdout).toStartWith('NOT VERIFIED: ')
  expect(stdout).toContain(`measurement:        ${'ab'.repeat(48)}\n`)
  expect(stdout).not.toContain('PASS')
  const document = await shown(forged)
  expect([Object.keys(document)[0], document.verified, 'ok' in document]).toEqual(['verified', false, false])
})

// Goal: Turin's TCB has its FMC and its address the 8 bytes of its chip; a VLEK says where its certificate is from.
test('products and signers', async () => {
  const turin = await shown(path('turin-v5.bin'))
  expect(turin.report.tcb.reported).toEqual({
    value: '0x4700000002000100',
    fmc: 0,
    bootloader: 1,
    tee: 0,
    snp: 2,
    microcode: 71,
  })
  expect(turin.kds).toEqual({
    vcek: 'https://kdsintf.amd.com/vcek/v1/Turin/3b42092f69c656d3?fmcSPL=0&blSPL=1&teeSPL=0&snpSPL=2&ucodeSPL=71',
    chain: 'https://kdsintf.amd.com/vcek/v1/Turin/cert_chain',
    crl: 'https://kdsintf.amd.com/vcek/v1/Turin/crl',
    reason: null,
  })
  const vlek = await shown(path('milan-v3-vlek.bin'))
  expect(vlek.kds).toMatchObject({ vcek: null, reason: expect.stringContaining('name it by --vek') })
  const text = (await runHere(['show', 'report', path('turin-v5.bin')])).stdout
  expect(text).toContain('TCB        value               fmc  bootloader  tee  snp  microcode\n')
  expect(text).toContain('platform info:      0x67: smt, tsme, ecc, aliasCheck, iommuWriteSafe\n')
  expect(text).toContain('product:            turin, by CPUID family 1ah model 2h stepping 1h\n')
})

// Goal: a version 2 report is shown without a product too, with TCBs as numbers and without addresses.
test('no product', async () => {
  const { product, kds, report } = await shown(path('milan-v2.bin'))
  expect([product, kds.vcek, kds.crl]).toEqual([null, null, null])
  expect(report.tcb.reported).toEqual({ value: '0x7308000000000003' })
  const { stdout } = await runHere(['show', 'report', path('milan-v2.bin')])
  expect(stdout).toContain('name the product by --product')
})

// Goal: Azure's form and standard input are read; anything else is refused with exit code 2.
test('forms', async () => {
  expect((await shown(path('wrong-chip.hcl.bin'), '--product', 'milan')).form).toBe('azure-hcl')
  const child = Bun.spawn([process.execPath, main, 'show', 'report', '-', '--json'], {
    stdin: Bun.file(path('milan-v3.bin')),
    stdout: 'pipe',
  })
  expect(JSON.parse(await child.stdout.text())).toEqual(await shown(path('milan-v3.bin')))
  await expectUsageError(['show', 'report', path('milan-v3.chain.pem')], 'neither a report of 1184 nor an HCL report')
  await expectUsageError(['show', 'report', '/dev/zero'], 'more than 1048576 bytes')
  await expectUsageError(['show', 'report'], "missing required argument 'file'")
})
