// Goal: doctor names what a host lacks for SEV-SNP, each with a remedy; other platforms are not judged by it.

import { expect, test } from 'bun:test'
import { encodeTcb } from '../../../../src/attest/amd/tcb-encode.ts'
import { SNP_FLOORS } from '../../../../src/attest/policy/floors.ts'
import {
  firmwareCheck,
  firmwareFile,
  type SnpHostFacts,
  snpChecks,
} from '../../../../src/cli/doctor/machine/snp.plan.ts'
import { defaultConfig } from '../../../../src/config/load.ts'
import type { SnpStatus } from '../../../../src/host/sev.ts'

const tcb = (snp: number) => encodeTcb({ bootloader: 9, tee: 0, snp, microcode: 255, fmc: null }, 'genoa')
const status: SnpStatus = {
  apiMajor: 1,
  apiMinor: 55,
  build: 40,
  isInitialized: true,
  isRmpInitialized: true,
  isChipMasked: false,
  guestCount: 2,
  currentTcb: tcb(255),
  reportedTcb: tcb(SNP_FLOORS.genoa[0].least),
}
const good: SnpHostFacts = {
  kernel: '6.12.30-amd64',
  product: 'genoa',
  asids: { used: 2, total: 99 },
  cpu: { ok: true, value: { cbitpos: 51, reducedPhysBits: 6, asidCount: 99 } },
  status: { ok: true, value: status },
  cpuid: { family: 0x19, model: 0x11, stepping: 1 },
  firmware: { ok: true, text: 'firmware.fd' },
}
const says = (value: Partial<SnpStatus>): SnpHostFacts => ({
  ...good,
  status: { ok: true, value: { ...status, ...value } },
})
const config = defaultConfig()
const check = (facts: SnpHostFacts, name: string, of = config) =>
  snpChecks(facts, of, 'snp').find(check => check.name === name)

test('goal: a host that has all passes; one of another platform is asked for nothing but named its kernel', () => {
  expect(snpChecks(good, config, 'snp').map(check => check.result)).toEqual(['PASS', 'PASS', 'PASS', 'PASS'])
  expect(check(good, 'asids')?.detail).toBe('2 of 99 taken')
  expect(snpChecks(good, config, 'tcg').map(check => check.result)).toEqual(['PASS', 'SKIP', 'SKIP', 'SKIP'])
})

test('goal: kernels, by number: 6.9 is older than 6.11', () => {
  const result = (kernel: string) => check({ ...good, kernel }, 'kernel')?.result
  expect([result('6.9.1'), result('6.11'), result('7.0'), result('5.14.0-570.el9'), result('next')]).toEqual([
    'WARN',
    'PASS',
    'PASS',
    'WARN',
    'SKIP',
  ])
})

test('goal: firmware that is too old, not initialized, or that hides its chip fails', () => {
  const result = (facts: SnpHostFacts) => check(facts, 'sev firmware')
  expect(result(says({ apiMinor: 50 }))).toMatchObject({
    result: 'FAIL',
    detail: expect.stringContaining('KVM needs 1.51'),
  })
  expect(result(says({ apiMajor: 2, apiMinor: 0 }))?.result).toBe('PASS')
  expect(result(says({ isInitialized: false }))?.detail).toContain('SNP is not initialized')
  expect(result(says({ isRmpInitialized: false }))?.detail).toContain('RMP is not initialized')
  expect(result(says({ isChipMasked: true }))?.result).toBe('FAIL')
  expect(result({ ...good, status: { ok: false, text: 'EACCES' } })).toMatchObject({ result: 'FAIL', detail: 'EACCES' })
})

test('goal: ASIDs: none, all taken, more promised than there are, and uncounted', () => {
  const cpu = (asidCount: number) => ({ ok: true, value: { cbitpos: 51, reducedPhysBits: 6, asidCount } }) as const
  expect(check({ ...good, cpu: cpu(0) }, 'asids')?.result).toBe('FAIL')
  expect(check({ ...good, asids: { used: 99, total: 99 } }, 'asids')?.result).toBe('WARN')
  const promised = { ...config, capacity: { ...config.capacity, asids: 100 } }
  expect(check(good, 'asids', promised)).toMatchObject({
    result: 'FAIL',
    remedy: 'set capacity.asids to 99 or less, or to 0',
  })
  expect(check({ ...good, asids: null }, 'asids')?.detail).toBe('2 of 99 taken')
  expect(check({ ...good, asids: null, status: { ok: false, text: '' } }, 'asids')?.detail).toBe(
    'an unknown number of 99 taken',
  )
  expect(check({ ...good, cpu: { ok: false, text: 'no cpuid' } }, 'asids')?.result).toBe('SKIP')
})

test('goal: a reported TCB below a floor fails, for relying parties refuse it; one of another product fails too', () => {
  expect(check(says({ reportedTcb: tcb(SNP_FLOORS.genoa[0].least - 1) }), 'tcb')).toMatchObject({
    result: 'FAIL',
    detail: expect.stringContaining(`snp ${SNP_FLOORS.genoa[0].least - 1} is below ${SNP_FLOORS.genoa[0].least}`),
  })
  expect(check(says({ reportedTcb: 0x0000_0001_0000_0000n }), 'tcb')?.result).toBe('FAIL')
  expect(check({ ...good, product: null }, 'tcb')?.result).toBe('SKIP')
})

test('goal: what is booted through: the named file, or that of the image', () => {
  const { vm } = config
  expect(firmwareFile(vm)).toBe(`${vm.image_dir}/firmware.fd`)
  expect(firmwareFile({ ...vm, firmware: '/f' })).toBe('/f')
  expect(firmwareFile({ ...vm, firmware: '/f', snp_boot: 'igvm', igvm: '/i' })).toBe('/i')
  expect(firmwareCheck({ ...good, firmware: { ok: false, text: 'no table' } }, 'snp')).toMatchObject({
    result: 'FAIL',
    detail: 'no table',
  })
  expect(firmwareCheck({ ...good, firmware: { ok: false, text: 'no table' } }, 'kvm').result).toBe('SKIP')
})
