// Goal: upper bounds, and what committed firmware and mitigation vectors have to be, hold at their edges.

import { expect, test } from 'bun:test'
import { decodeTcb, tcbComponentsOf } from '../../../src/attest/amd/tcb.ts'
import { encodeTcb } from '../../../src/attest/amd/tcb-encode.ts'
import { appraise } from '../../../src/attest/policy/appraise.ts'
import type { Policy } from '../../../src/attest/policy/policy.ts'
import { identifyReport } from '../../../src/attest/report/identify.ts'
import { decodeReport, type SnpReport } from '../../../src/attest/report/report.ts'
import { laxPolicy } from '../../rigs/attest/exact-policy.ts'
import { readReport } from '../../rigs/attest/report-vectors.ts'

const old = decodeReport(await readReport('milan-v2.bin'))
const milan = decodeReport(await readReport('milan-v3.bin'))
const genoa = decodeReport(await readReport('genoa-v5.bin'))

/** Checks that do not pass. Version 2 names no product; its own is Milan. */
function failed(report: SnpReport, policy: Partial<Policy>): string[] {
  const identity = identifyReport(report, report.cpuid === null ? 'milan' : null)
  if (identity.kind !== 'known') throw new Error(identity.reason)
  return appraise(identity, { ...laxPolicy, ...policy })
    .filter(({ outcome }) => outcome === 'fail')
    .map(({ name }) => name)
}

const BOUNDS = [
  ['maximumTcb', 'maximum-tcb', 'reported', 1],
  ['maximumLaunchTcb', 'maximum-launch-tcb', 'launch', 1],
  ['minimumCurrentTcb', 'minimum-current-tcb', 'current', -1],
  ['maximumCurrentTcb', 'maximum-current-tcb', 'current', 1],
  ['minimumCommittedTcb', 'minimum-committed-tcb', 'committed', -1],
  ['maximumCommittedTcb', 'maximum-committed-tcb', 'committed', 1],
] as const

// Goal: each component of each TCB counts for itself, an equal one passes, and a bound of another product is none.
test.each(BOUNDS)('%s', (field, name, kind, step) => {
  const tcb = { ...decodeTcb(genoa.rawTcb[kind], 'genoa'), bootloader: 9, tee: 9 }
  const limit = { bootloader: 9, tee: 9, snp: tcb.snp, microcode: tcb.microcode }
  const policy = { [field]: { milan: 'any', genoa: limit, turin: 'any' } } as Partial<Policy>
  const at = (changes: Partial<typeof limit>) => {
    const raw = encodeTcb({ ...tcb, ...changes }, 'genoa')
    return { ...genoa, rawTcb: { ...genoa.rawTcb, [kind]: raw } }
  }
  expect(failed(at({}), policy)).toEqual([])
  for (const component of tcbComponentsOf('genoa')) {
    if (component === 'fmc') continue
    expect(failed(at({ [component]: limit[component] + step }), policy)).toEqual([name])
    expect(failed(at({ [component]: limit[component] - step }), policy)).toEqual([])
    const waived = { [field]: { milan: 'any', genoa: { ...limit, [component]: 'any' }, turin: 'any' } }
    expect(failed(at({ [component]: limit[component] + step }), waived as Partial<Policy>)).toEqual([])
  }
  const elsewhere = { [field]: { milan: limit, genoa: 'any', turin: 'any' } } as Partial<Policy>
  expect(failed(at({ snp: limit.snp + step }), elsewhere)).toEqual([])
})

test('goal: a TCB of another layout is within no bound', () => {
  const odd = { ...genoa, rawTcb: { ...genoa.rawTcb, committed: genoa.rawTcb.committed | (1n << 16n) } }
  const alone = { bootloader: 'any', tee: 'any', snp: 'any', microcode: 255 } as const
  const maximumCommittedTcb = { milan: 'any', genoa: alone, turin: 'any' } as const
  expect(failed(odd, { maximumCommittedTcb })).toEqual(['maximum-committed-tcb'])
})

test('goal: versions of the firmware have an order, and builds one of their own', () => {
  const version = { major: 1, minor: 55, build: 29 }
  expect([milan.current, milan.committed]).toEqual([version, version])
  for (const [field, name, isUpper] of [
    ['minimumCurrentFirmware', 'minimum-current-firmware', false],
    ['maximumCurrentFirmware', 'maximum-current-firmware', true],
    ['maximumCommittedFirmware', 'maximum-committed-firmware', true],
  ] as const) {
    expect(failed(milan, { [field]: version })).toEqual([])
    for (const above of [{ build: 30 }, { minor: 56, build: 0 }, { major: 2, minor: 0, build: 0 }])
      expect(failed(milan, { [field]: { ...version, ...above } })).toEqual(isUpper ? [] : [name])
    for (const below of [{ build: 28 }, { minor: 54, build: 255 }, { major: 0, minor: 255, build: 255 }])
      expect(failed(milan, { [field]: { ...version, ...below } })).toEqual(isUpper ? [name] : [])
  }
  const newer = { ...milan, current: { major: 2, minor: 0, build: 3 } }
  expect(failed(newer, { minimumBuild: 29 })).toEqual(['minimum-build-current'])
  expect(failed({ ...milan, committed: newer.current }, { minimumBuild: 29 })).toEqual(['minimum-build-committed'])
  expect(failed(milan, { minimumBuild: 30 })).toEqual(['minimum-build-current', 'minimum-build-committed'])
})

test('goal: firmware that runs and is not committed is refused where the policy says so, TCB and version apart', () => {
  const policy = { committedFirmware: 'current' } as const
  expect(failed(milan, policy)).toEqual([])
  const tcb = { ...milan, rawTcb: { ...milan.rawTcb, committed: milan.rawTcb.committed - 1n } }
  expect(failed(tcb, policy)).toEqual(['committed-tcb-current'])
  const build = { ...milan, committed: { ...milan.committed, build: 28 } }
  expect(failed(build, policy)).toEqual(['committed-firmware-current'])
  expect(failed(build, {})).toEqual([])
})

test('goal: mitigation vectors are compared bit by bit, and a report that has none does not pass', () => {
  expect(genoa.mitigation).toEqual({ launch: 0xbn, current: 0xbn })
  for (const [field, name] of [
    ['launchMitigations', 'launch-mitigations'],
    ['currentMitigations', 'current-mitigations'],
  ] as const) {
    expect(failed(genoa, { [field]: { required: 0xbn, forbidden: ~0xbn & 0xffff_ffff_ffff_ffffn } })).toEqual([])
    expect(failed(genoa, { [field]: { required: 0x4n, forbidden: 0n } })).toEqual([name])
    expect(failed(genoa, { [field]: { required: 0n, forbidden: 0x8n } })).toEqual([name])
    expect(failed(genoa, { [field]: { required: 0x8n, forbidden: 0x8n } })).toEqual([name])
    for (const report of [old, milan]) {
      expect(failed(report, { [field]: { required: 0n, forbidden: 0n } })).toEqual([name])
    }
  }
})

test('goal: a processor is known by all of its CPUID, and a report that names none does not pass', () => {
  const processors = [
    { family: 0x19, model: 1, stepping: 1 },
    { family: 0x19, model: 0x11, stepping: 2 },
  ]
  expect(failed(milan, { processors })).toEqual([])
  expect(failed(genoa, { processors })).toEqual(['processor'])
  expect(failed(old, { processors })).toEqual(['processor'])
})

test('goal: one of several keys is enough, and none of them fails', () => {
  const keys = [new Uint8Array(48).fill(1), new Uint8Array(48).fill(2)]
  for (const [field, name] of [
    ['idKeyDigest', 'id-key-digest'],
    ['authorKeyDigest', 'author-key-digest'],
  ] as const) {
    for (const [at, key] of keys.entries()) {
      expect(failed({ ...milan, [field]: key }, { [field]: keys })).toEqual([])
      expect(failed({ ...milan, [field]: key }, { [field]: [keys[1 - at] ?? key] })).toEqual([name])
    }
    expect(failed(milan, { [field]: keys })).toEqual([name])
  }
})

test('goal: a masked chip is one of all zeros, and either state can be refused', () => {
  const masked = { ...milan, chipId: new Uint8Array(64) }
  expect(failed(masked, { chipIdMasked: 'forbidden' })).toEqual(['chip-id-masked'])
  expect(failed(milan, { chipIdMasked: 'required' })).toEqual(['chip-id-masked'])
  expect([failed(masked, { chipIdMasked: 'required' }), failed(milan, { chipIdMasked: 'forbidden' })]).toEqual([[], []])
})
