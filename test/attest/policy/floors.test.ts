// Goal: the floors that are shipped are applied to exactly the processor that a report names, cite their bulletin, and
// are said to be old when they are.

import { describe, expect, test } from 'bun:test'
import { join } from 'node:path'
import { PRODUCTS, productOfCpuid } from '../../../src/attest/amd/product.ts'
import { decodeTcb, encodeTcb, type Tcb } from '../../../src/attest/amd/tcb.ts'
import {
  BULLETINS,
  floorAgeCheck,
  floorChecks,
  floorRows,
  floorsCompiledOn,
  floorsFreshDays,
  MICROCODE_FLOORS,
  policyWithFloors,
  SNP_FLOORS,
} from '../../../src/attest/policy/floors.ts'
import { encodePolicy, parsePolicy } from '../../../src/attest/policy/policy.ts'
import { decodeReport, type SnpReport } from '../../../src/attest/report/report.ts'

const reports = join(import.meta.dir, '../../vectors/reports')
const read = async (name: string) => decodeReport(await Bun.file(join(reports, name)).bytes())
const genoa = await read('genoa-v5.bin')
const names = (report: SnpReport | null, product: (typeof PRODUCTS)[number] | null, outcome = 'fail') =>
  floorChecks(report, product)
    .filter(check => check.outcome === outcome)
    .map(check => check.name.slice('tcb-floor-'.length))

/** `report` with this reported and launch TCB. */
function withTcb(report: SnpReport, product: (typeof PRODUCTS)[number], changes: Partial<Tcb>): SnpReport {
  const raw = encodeTcb({ ...decodeTcb(report.rawTcb.reported, product), ...changes }, product)
  return { ...report, rawTcb: { ...report.rawTcb, reported: raw, launch: raw } }
}

// Goal: real reports of old firmware fail, the one that is up to date passes.
test.each([
  ['milan-v2.bin', 'milan', ['snp', 'microcode', 'launch-snp', 'launch-microcode', 'alias-check']],
  ['milan-v3.bin', 'milan', ['snp', 'launch-snp']],
  ['milan-v3-vlek.bin', 'milan', ['snp', 'microcode', 'launch-snp']],
  ['genoa-v3.bin', 'genoa', ['snp', 'microcode', 'launch-snp', 'launch-microcode']],
  ['genoa-v5.bin', 'genoa', []],
  ['turin-v5.bin', 'turin', ['snp', 'microcode', 'launch-snp', 'launch-microcode']],
] as const)('%s', async (name, product, failed) => {
  expect(names(await read(name), product)).toEqual([...failed])
})

describe('the microcode of each processor', () => {
  // Goal: the number of its own line decides, and one below it fails with the bulletin in the reason.
  test.each(MICROCODE_FLOORS)('$name', ({ product, family, model, stepping, microcode }) => {
    expect(productOfCpuid({ family, model, stepping })).toBe(product)
    const fmc = product === 'turin' ? 1 : null
    const tcb = { fmc, bootloader: 9, tee: 0, snp: SNP_FLOORS[product].least, microcode: 0 }
    const at = (value: number) => {
      const raw = encodeTcb({ ...tcb, microcode: value }, product)
      return {
        ...genoa,
        cpuid: { family, model, stepping },
        rawTcb: { ...genoa.rawTcb, reported: raw, launch: raw },
      }
    }
    if (microcode.kind === 'not-established') {
      const open = floorChecks(at(0), product).filter(check => check.outcome === 'not-checked')
      expect(open.map(item => [item.name, item.required])).toEqual([
        ['tcb-floor-microcode', false],
        ['tcb-floor-launch-microcode', false],
      ])
      expect(open[0]?.reason).toContain('not established here')
      return
    }
    expect(names(at(microcode.least), product)).toEqual([])
    expect(names(at(microcode.least - 1), product)).toEqual(['microcode', 'launch-microcode'])
    const reason = floorChecks(at(microcode.least - 1), product).find(check => check.outcome === 'fail')?.reason
    expect(reason).toContain(`is less than ${microcode.least}, which ${microcode.bulletin} (CVE-`)
  })

  test('of a report that names no processor is the highest of its product', () => {
    // Goal: leaving the CPUID out gains nothing.
    const bare = { ...withTcb(genoa, 'genoa', { microcode: 0x55 }), cpuid: null }
    expect(names(bare, 'genoa')).toEqual(['microcode', 'launch-microcode'])
    expect(names({ ...bare, cpuid: { family: 0x19, model: 0xa0, stepping: 2 } }, 'genoa')).toEqual([])
  })
})

test('goal: a guest that old firmware launched fails, though the firmware was updated since', () => {
  const old = encodeTcb({ ...decodeTcb(genoa.rawTcb.launch, 'genoa'), snp: 26 }, 'genoa')
  expect(names({ ...genoa, rawTcb: { ...genoa.rawTcb, launch: old } }, 'genoa')).toEqual(['launch-snp'])
})

test('goal: firmware that has not looked for memory aliases fails', () => {
  const bare = { ...genoa, platformInfo: genoa.platformInfo & ~0x20n }
  expect(names(bare, 'genoa')).toEqual(['alias-check'])
})

test('goal: a TCB of another layout, no report and no product are never good', () => {
  const odd = { ...genoa, rawTcb: { ...genoa.rawTcb, reported: genoa.rawTcb.reported | (1n << 24n) } }
  expect(names(odd, 'genoa')).toEqual(['snp', 'microcode'])
  const all = ['snp', 'microcode', 'launch-snp', 'launch-microcode', 'alias-check']
  for (const [report, product] of [[null, 'genoa'] as const, [genoa, null] as const]) {
    const checks = floorChecks(report, product)
    expect([names(report, product, 'not-checked'), checks.every(check => check.required)]).toEqual([all, true])
  }
})

test('goal: floors older than their time are said to be so, by the time of verification', () => {
  const at = (days: number) => floorAgeCheck(Date.parse(floorsCompiledOn) + days * 86_400_000)
  expect([at(-400).outcome, at(0).outcome, at(floorsFreshDays).outcome]).toEqual(['pass', 'pass', 'pass'])
  expect(at(floorsFreshDays + 1)).toEqual({
    name: 'tcb-floor-age',
    outcome: 'not-checked',
    required: false,
    reason: "the TCB floors that this verifier ships are 181 days old; look for a newer release or AMD's bulletins",
  })
})

test('goal: every number has a bulletin with a date and a source, and every product has rows', () => {
  for (const { product, floor } of floorRows()) {
    expect(PRODUCTS).toContain(product)
    if (floor.kind === 'not-established') expect(floor.note).toStartWith('not established here: ')
    else expect([floor.least > 0 && floor.least < 256, floor.source.length > 10]).toEqual([true, true])
  }
  for (const [id, { cve, published }] of Object.entries(BULLETINS)) {
    expect(id).toMatch(/^AMD-SB-\d{4}$/)
    expect(cve).toMatch(/^CVE-\d{4}-\d+$/)
    expect(published).toMatch(/^202[4-6]-\d\d(-\d\d)?$/)
    expect(published <= floorsCompiledOn).toBe(true)
  }
})

test('goal: the policy with floors is a policy, and asks for the alias check and the SNP firmware', () => {
  const policy = parsePolicy(JSON.parse(JSON.stringify(encodePolicy(policyWithFloors()))))
  expect(policy).toEqual(policyWithFloors())
  expect(policy.platformInfo.aliasCheck).toBe('required')
  for (const minimums of [policy.minimumTcb, policy.minimumLaunchTcb]) {
    expect(minimums).toMatchObject({ milan: { snp: 0x1d }, genoa: { snp: 0x1b }, turin: { snp: 4 } })
  }
})
