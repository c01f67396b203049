// Goal: each bit stands at the number of its specification, written out: AMD 56860 rev 1.58, sections 4.3 and 7.3;
// Intel TDX Module ABI, ATTRIBUTES.

import { expect, test } from 'bun:test'
import { TCB_LAYOUTS } from '../../../src/attest/amd/tcb.ts'
import { KEY_BITS, PLATFORM_BITS, POLICY_BITS } from '../../../src/attest/report/bits.ts'
import { TCB_STATUSES } from '../../../src/attest/tdx/tcb-info.ts'
import { TD_BITS } from '../../../src/attest/tdx/td-attributes.ts'

test('goal: the bits of a guest policy, a platform, a key and a trust domain', () => {
  expect(POLICY_BITS).toEqual({
    smt: 16,
    reservedOne: 17,
    migrate: 18,
    debug: 19,
    singleSocket: 20,
    cxl: 21,
    aes256Xts: 22,
    raplOff: 23,
    ciphertextHiding: 24,
    pageSwapOff: 25,
  })
  expect(PLATFORM_BITS).toEqual({
    smt: 0,
    tsme: 1,
    ecc: 2,
    raplOff: 3,
    ciphertextHiding: 4,
    aliasCheck: 5,
    iommuWriteSafe: 6,
    tio: 7,
  })
  expect(KEY_BITS).toEqual({ authorKeyEnabled: 0, maskChipKey: 1 })
  expect(TD_BITS).toEqual({
    debug: 0,
    hgsPlusProfiling: 4,
    performanceProfiling: 5,
    pmtProfiling: 6,
    icssd: 16,
    lass: 27,
    septVeDisable: 28,
    migratable: 29,
    pks: 30,
    keyLocker: 31,
    tpa: 62,
    perfmon: 63,
  })
})

test('goal: the bytes of a TCB by product, and the statuses of a TDX TCB, the best first', () => {
  const old = ['bootloader', 'tee', null, null, null, null, 'snp', 'microcode']
  expect(TCB_LAYOUTS as unknown).toEqual({
    milan: old,
    genoa: old,
    turin: ['fmc', 'bootloader', 'tee', 'snp', null, null, null, 'microcode'],
  })
  expect([...TCB_STATUSES]).toEqual([
    'UpToDate',
    'SWHardeningNeeded',
    'ConfigurationNeeded',
    'ConfigurationAndSWHardeningNeeded',
    'OutOfDate',
    'OutOfDateConfigurationNeeded',
    'Revoked',
  ])
})
