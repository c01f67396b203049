// Goal: a saved report is verified in either of its forms, and one in neither form fails.

import { expect, test } from 'bun:test'
import { join } from 'node:path'
import { defaultPolicy } from '../../src/verifier/default-policy.ts'
import type { ReportPins } from '../../src/verifier/pins.ts'
import { verifySavedReport } from '../../src/verifier/report.ts'
import { hclReportAs } from '../rigs/launch/hcl-samples.ts'

const reports = join(import.meta.dir, '../vectors/reports')
const bytes = async (name: string) => await Bun.file(join(reports, name)).bytes()
const asOf = new Date('2026-06-01T00:00:00Z')
const unpinned: ReportPins = { measurement: 'any', vmpl: 'any', crl: 'any', tcb: 'any' }
const verify = async (report: Uint8Array, vek: string) =>
  await verifySavedReport({
    report,
    vek: await bytes(vek),
    asOf,
    policy: defaultPolicy(unpinned),
    pins: unpinned,
  })

test('goal: a plain report is verified as it is', async () => {
  const found = await verify(await bytes('milan-v3.bin'), 'milan-v3.chain.pem')
  expect([found.ok, found.product, found.checks[0]]).toEqual([
    true,
    'milan',
    { name: 'report-form', outcome: 'pass', reason: 'an SNP report', required: true },
  ])
})

test('goal: a report inside an Azure HCL report is found and verified', async () => {
  const found = await verify(await bytes('wrong-chip.hcl.bin'), 'milan-v3.chain.pem')
  expect(found.checks[0]).toMatchObject({ outcome: 'pass', reason: 'an SNP report inside an Azure HCL report' })
  expect(found.report).not.toBeNull()
  // It is of another chip than the certificate.
  expect(found.ok).toBe(false)
})

test('goal: the claims of an Azure HCL report are compared with its report data: a flipped bit fails, in every version of the form', async () => {
  const real = await bytes('wrong-chip.hcl.bin')
  const claims = async (report: Uint8Array) => {
    const { checks } = await verify(report, 'milan-v3.chain.pem')
    expect(checks[0]).toMatchObject({ name: 'report-form', outcome: 'pass' })
    return checks.filter(check => check.name === 'hcl-claims').map(check => check.outcome)
  }
  for (const version of [
    { header: 1, data: 1 },
    { header: 2, data: 1 },
    { header: 2, data: 2 },
  ]) {
    const report = hclReportAs(real, version)
    expect(await claims(report)).toEqual(['pass'])
    const at = report.length - 100
    expect(await claims(report.map((byte, i) => (i === at ? byte ^ 1 : byte)))).toEqual(['fail'])
  }
  expect(await claims(await bytes('milan-v3.bin'))).toEqual([])
})

test('goal: bytes in neither form fail, with every check still there', async () => {
  const whole = await bytes('milan-v3.bin')
  const good = await verify(whole, 'milan-v3.chain.pem')
  for (const wrong of [whole.subarray(1), new Uint8Array(0), new Uint8Array(4096)]) {
    const found = await verify(wrong, 'milan-v3.chain.pem')
    expect([found.ok, found.checks[0]?.outcome, found.report]).toEqual([false, 'fail', null])
    expect(found.checks.map(check => check.name).slice(0, 3)).toEqual(good.checks.map(check => check.name).slice(0, 3))
  }
})

test('goal: without a policy debug guests and migration agents are refused, and every VMPL but 0 unless that is waived', () => {
  const { guestPolicy, vmpls, measurements } = defaultPolicy({ vmpl: 'required' })
  expect([guestPolicy.debug, guestPolicy.migrate, guestPolicy.unknown]).toEqual(['forbidden', 'forbidden', 'forbidden'])
  expect([vmpls, measurements]).toEqual([[0], 'any'])
  expect(defaultPolicy(unpinned).vmpls).toBe('any')
})

test('goal: a pin that is not said at all is required, in JavaScript too', async () => {
  const found = await verifySavedReport({
    report: await bytes('milan-v3.bin'),
    vek: await bytes('milan-v3.chain.pem'),
    asOf,
    policy: { ...defaultPolicy(unpinned) },
    pins: {} as ReportPins,
  })
  const bad = found.checks.filter(
    check => check.outcome === 'fail' || (check.outcome === 'not-checked' && check.required),
  )
  const floors = ['tcb-floor-snp', 'tcb-floor-launch-snp']
  expect([found.ok, bad.map(check => check.name)]).toEqual([
    false,
    ['pin-measurement', 'pin-vmpl', 'chain-revocation', ...floors],
  ])
})

test('goal: a report of version 2 has the product that the signed VCEK names, and the name of another is refused', async () => {
  const evidence = {
    report: await bytes('milan-v2.bin'),
    vek: await bytes('milan-v2.vcek.der'),
    asOf,
    policy: defaultPolicy(unpinned),
    pins: unpinned,
  }
  const found = await verifySavedReport(evidence)
  expect([found.ok, found.product]).toEqual([true, 'milan'])
  expect(found.checks.find(check => check.name === 'report-product')?.reason).toBe(
    'milan, by the certificate that signed the report',
  )
  const sourced = found.checks.filter(({ reason }) => reason.includes('by the certificate that signed the report'))
  expect(sourced.map(({ name }) => name)).toEqual(['report-product'])
  expect((await verifySavedReport({ ...evidence, product: 'genoa' })).ok).toBe(false)
  // A certificate that AMD's root does not vouch for names nothing.
  for (const vek of ['bad-vcek-legacy.der', 'genoa-v3.chain.pem']) {
    expect((await verifySavedReport({ ...evidence, vek: await bytes(vek) })).ok).toBe(false)
  }
  const broken = await verifySavedReport({ ...evidence, vek: await bytes('bad-vcek-legacy.der') })
  expect([broken.product, broken.checks.find(check => check.name === 'report-product')?.outcome]).toEqual([
    null,
    'fail',
  ])
})

test('goal: a certificate table that cannot be read fails; a good one is shown by its GUIDs', async () => {
  const saved = {
    report: await bytes('milan-v3.bin'),
    vek: await bytes('milan-v3.chain.pem'),
    asOf,
    policy: defaultPolicy(unpinned),
    pins: unpinned,
  }
  const tableOf = async (certificateTable: Uint8Array | undefined) => {
    const { ok, checks } = await verifySavedReport({ ...saved, certificateTable })
    return [ok, checks.filter(({ name }) => name === 'certificate-table').map(({ outcome }) => outcome)]
  }
  expect(await tableOf(undefined)).toEqual([true, []])
  // An entry of zeros ends a table (GHCB specification, section 4.1.8.1).
  expect(await tableOf(new Uint8Array(24))).toEqual([true, ['pass']])
  expect(await tableOf(new Uint8Array(7))).toEqual([false, ['fail']])
})

test('goal: the floors and their age are looked at unless they are waived', async () => {
  const named = async (pins: ReportPins) => {
    const found = await verifySavedReport({
      report: await bytes('milan-v3.bin'),
      vek: await bytes('milan-v3.chain.pem'),
      asOf,
      policy: defaultPolicy(unpinned),
      pins,
    })
    return found.checks.map(({ name }) => name).filter(name => name.includes('floor'))
  }
  expect(await named(unpinned)).toEqual([])
  expect(await named({ ...unpinned, tcb: 'required' })).toEqual(
    expect.arrayContaining(['tcb-floor-snp', 'tcb-floor-microcode', 'tcb-floor-launch-snp', 'tcb-floor-alias-check']),
  )
})
