// Goal: the floors that are shipped are applied to exactly the processor that a report names, cite their bulletin, and
// are said to be old when they are.

import { describe, expect, test } from 'bun:test'
import { join } from 'node:path'
import { PRODUCTS, productOfCpuid } from '../../../src/attest/amd/product.ts'
import { decodeTcb, type Tcb } from '../../../src/attest/amd/tcb.ts'
import { encodeTcb } from '../../../src/attest/amd/tcb-encode.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { floorRows, policyWithFloors } from '../../../src/attest/policy/floor-policy.ts'
import {
  BULLETINS,
  FLOOR_PARTS,
  type Floor,
  type FloorPart,
  type FloorWaivers,
  floorAgeCheck,
  floorChecks,
  floorsCompiledOn,
  floorsFreshDays,
  MICROCODE_FLOORS,
  SNP_FLOORS,
} from '../../../src/attest/policy/floors.ts'
import { parsePolicy } from '../../../src/attest/policy/policy.ts'
import { decodeReport, type SnpReport } from '../../../src/attest/report/report.ts'
import { verdict } from '../../../src/attest/verdict.ts'

const reports = join(import.meta.dir, '../../vectors/reports')
const read = async (name: string) => decodeReport(await Bun.file(join(reports, name)).bytes())
const genoa = await read('genoa-v5.bin')
const names = (report: SnpReport | null, product: (typeof PRODUCTS)[number] | null, outcome = 'fail') =>
  floorChecks(report, product)
    .filter(check => check.outcome === outcome)
    .map(check => check.name.slice('tcb-floor-'.length))

function highest(floors: readonly Floor[]): number {
  return Math.max(...floors.map(({ least }) => least))
}

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
  ['turin-v5.bin', 'turin', ['snp', 'launch-snp']],
] as const)('%s', async (name, product, failed) => {
  expect(names(await read(name), product)).toEqual([...failed])
})

test('goal: the numbers themselves, written out: one that is lowered fails', () => {
  const shown = (floors: readonly Floor[]) =>
    floors.map(({ hand, least, bulletin }) => `${hand} 0x${least.toString(16)} ${bulletin}`).join(', ')
  expect(Object.entries(SNP_FLOORS).map(([product, floors]) => `${product}: ${shown(floors)}`)).toEqual([
    'milan: first 0x1b AMD-SB-3023, second 0x1d AMD-SB-3030',
    'genoa: first 0x1b AMD-SB-3023',
    'turin: first 0x4 AMD-SB-3023',
  ])
  const rows = MICROCODE_FLOORS.map(
    ({ name, product, family, model, stepping, microcode }) =>
      `${name}: ${product} ${family.toString(16)} ${model.toString(16)} ${stepping}: ${shown(microcode)}`,
  )
  expect(rows).toEqual([
    'Milan: milan 19 1 1: first 0xdb AMD-SB-3019',
    'Milan-X: milan 19 1 2: first 0x44 AMD-SB-3019',
    'Genoa: genoa 19 11 1: first 0x54 AMD-SB-3019, second 0x56 AMD-SB-3027',
    'Genoa-X: genoa 19 11 2: first 0x4f AMD-SB-3019, second 0x51 AMD-SB-3027',
    'Bergamo and Siena: genoa 19 a0 2: first 0x19 AMD-SB-3019',
    'Turin: turin 1a 2 1: first 0x47 AMD-SB-3019, second 0x51 AMD-SB-3027',
    'Turin Dense: turin 1a 11 0: first 0x47 AMD-SB-3019',
  ])
  expect(Object.entries(BULLETINS).map(([id, { cve, published }]) => `${id} ${cve} ${published}`)).toEqual([
    'AMD-SB-3015 CVE-2024-21944 2024-12-10',
    'AMD-SB-3019 CVE-2024-56161 2025-02-03',
    'AMD-SB-3020 CVE-2025-0033 2025-10',
    'AMD-SB-3023 CVE-2025-48514 2026-02',
    'AMD-SB-3027 CVE-2025-29943 2026-01',
    'AMD-SB-3030 CVE-2025-61971 2026-05-12',
  ])
})

describe('the microcode of each processor', () => {
  // Goal: the number of its own line decides, and one below it fails with the bulletin in the reason.
  test.each(MICROCODE_FLOORS)('$name', ({ product, family, model, stepping, microcode }) => {
    expect(productOfCpuid({ family, model, stepping })).toBe(product)
    const fmc = product === 'turin' ? 1 : null
    const tcb = { fmc, bootloader: 9, tee: 0, snp: highest(SNP_FLOORS[product]), microcode: 0 }
    const at = (value: number) => {
      const raw = encodeTcb({ ...tcb, microcode: value }, product)
      return {
        ...genoa,
        cpuid: { family, model, stepping },
        rawTcb: { ...genoa.rawTcb, reported: raw, launch: raw },
      }
    }
    const [required, advised] = microcode
    if (required === undefined) throw new Error('a processor without a floor')
    expect([required.hand, advised?.hand ?? 'second']).toEqual(['first', 'second'])
    expect(names(at(highest(microcode)), product, 'not-checked')).toEqual([])
    expect(names(at(required.least), product)).toEqual([])
    expect(names(at(required.least - 1), product)).toEqual(['microcode', 'launch-microcode'])
    const reason = floorChecks(at(required.least - 1), product).find(check => check.outcome === 'fail')?.reason
    expect(reason).toContain(`is less than ${required.least}, which ${required.bulletin} (CVE-`)
    if (advised === undefined) return
    // Goal: a number of second hand is said, with its source and date, and fails nothing.
    const said = floorChecks(at(advised.least - 1), product).filter(check => check.outcome === 'not-checked')
    expect(said.map(({ name, required }) => [name, required])).toEqual([
      ['tcb-floor-microcode', false],
      ['tcb-floor-launch-microcode', false],
    ])
    expect(said[0]?.reason).toContain(`by second hand (${advised.source}; read on ${advised.readOn})`)
  })

  // Goal: no number is made up for a processor of which none was read.
  test('of a processor that is not in the table is not established', () => {
    const strange = { ...genoa, cpuid: { family: 0x19, model: 0x11, stepping: 9 } }
    const open = floorChecks(strange, 'genoa').filter(check => check.outcome === 'not-checked')
    expect(open.map(item => [item.name, item.required])).toEqual([
      ['tcb-floor-microcode', false],
      ['tcb-floor-launch-microcode', false],
    ])
    expect(open[0]?.reason).toContain('not established here')
  })

  test('of a report that names no processor is the highest of its product', () => {
    // Goal: leaving the CPUID out gains nothing.
    const bare = { ...withTcb(genoa, 'genoa', { microcode: 0x53 }), cpuid: null }
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

test('goal: a part is waived by its name alone, is compared all the same, and its reason stands in the verdict', () => {
  const low = withTcb({ ...genoa, platformInfo: 0n }, 'genoa', { snp: 0, microcode: 0 })
  expect(names(low, 'genoa')).toEqual([...FLOOR_PARTS])
  for (const part of FLOOR_PARTS) {
    const waivers = { [part]: 'the host is updated in December' }
    const checks = floorChecks(low, 'genoa', waivers)
    const failed = checks.filter(check => check.outcome === 'fail').map(check => check.name.slice('tcb-floor-'.length))
    expect(failed).toEqual(FLOOR_PARTS.filter(other => other !== part))
    const waived = checks.find(check => check.name === `tcb-floor-${part}`)
    expect(waived).toMatchObject({ outcome: 'not-checked', required: false })
    expect(waived?.reason).toStartWith('waived (the host is updated in December): ')
    expect(floorChecks(genoa, 'genoa', waivers)).toEqual(floorChecks(genoa, 'genoa'))
    expect(floorChecks(null, 'genoa', waivers).every(check => check.required)).toBe(true)
  }
  const all = Object.fromEntries(FLOOR_PARTS.map(part => [part, 'x'])) as Record<FloorPart, string>
  expect(verdict(floorChecks(low, 'genoa', all)).ok).toBe(true)
})

test('goal: a real Milan report passes with the parts waived that its firmware lacks, and with no other', async () => {
  const report = await read('milan-v3.bin')
  const ok = (waivers: FloorWaivers) => verdict(floorChecks(report, 'milan', waivers)).ok
  expect(ok({ snp: 'old host', 'launch-snp': 'old host' })).toBe(true)
  expect(ok({ snp: 'old host' })).toBe(false)
  expect(ok({ microcode: 'old host', 'launch-microcode': 'old host', 'alias-check': 'old host' })).toBe(false)
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
    expect([floor.least > 0 && floor.least < 256, floor.source.length > 10]).toEqual([true, true])
    expect(floor.readOn).toMatch(/^2026-\d\d-\d\d$/)
    expect(floor.readOn <= floorsCompiledOn).toBe(true)
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
    expect(minimums).toMatchObject({ milan: { snp: 0x1b }, genoa: { snp: 0x1b }, turin: { snp: 4 } })
  }
})
