import { expect, test } from 'bun:test'
import {
  type Confinement,
  confinedArgv,
  devicesOf,
  memoryMaxMib,
  scopeProperties,
} from '../../../src/vm/launch/confinement.plan.ts'
import { expectGolden } from '../../rigs/golden.ts'

const base: Confinement = {
  uid: 70_123,
  groups: [],
  platform: 'tcg',
  vcpus: 2,
  memoryMib: 2048,
  diskGib: 8,
  devices: 0,
  systemd: true,
}
const CASES: Record<string, Confinement> = {
  'tcg, systemd': base,
  'tcg, no scratch disk': { ...base, diskGib: 0 },
  'tcg, no systemd': { ...base, systemd: false },
  'kvm, systemd': { ...base, platform: 'kvm', groups: [105] },
  'snp, systemd': { ...base, platform: 'snp', groups: [105, 106] },
  'snp, a GPU, systemd': { ...base, platform: 'snp', groups: [105, 106], devices: 1 },
}

test('what QEMU may use of the host, on every platform', () => {
  // Goal: every limit is deliberate; a change shows up as a change of the golden text.
  const text = Object.entries(CASES).map(([name, confinement]) =>
    [
      `# ${name}`,
      ...(confinement.systemd ? [...scopeProperties(confinement), '--'] : []),
      ...confinedArgv(confinement, ['qemu', '-x']),
    ].join('\n'),
  )
  expectGolden('qemu-confinement.txt', `${text.join('\n\n')}\n`)
})

test('QEMU loses every privilege and has no limit that is infinite', () => {
  // Goal: what must hold on every platform, and what must not.
  for (const confinement of Object.values(CASES)) {
    const argv = confinedArgv(confinement, ['qemu'])
    const whole = argv.join(' ')
    for (const part of [
      '--reuid=70123 --regid=70123',
      '--no-new-privs',
      '--inh-caps=-all --bounding-set=-all',
      '--core=0',
    ])
      expect(whole).toContain(part)
    expect(whole).not.toMatch(/unlimited|infinity|init-groups|root/)
    expect(whole.includes('--memlock=0')).toBe(confinement.platform !== 'snp')
    // Limits come first, while root may still set them; the user last.
    expect(['prlimit', 'choom', 'setpriv', 'qemu'].map(name => argv.indexOf(name))).toEqual(
      ['prlimit', 'choom', 'setpriv', 'qemu'].map(name => argv.indexOf(name)).sort((a, b) => a - b),
    )
    // A scope bounds memory that only the guest has, and nothing swaps a guest's memory to disk.
    expect(scopeProperties(confinement)).toContain('MemorySwapMax=0')
    expect(memoryMaxMib(confinement)).toBeGreaterThan(confinement.memoryMib)
    expect(memoryMaxMib(confinement)).toBeLessThan(confinement.memoryMib * 1.5 + 1)
    // Pages that a device uses cannot be taken back: a bound would end the VM. Its locked memory stays bounded.
    const isBounded = scopeProperties(confinement).some(property => property.startsWith('MemoryMax='))
    expect(isBounded).toBe(confinement.devices === 0)
  }
})

test('the devices that QEMU opens by path', () => {
  // Goal: a jail has the devices of its platform, and no others.
  const of = (platform: Confinement['platform']) => devicesOf({ platform })
  expect([of('tcg'), of('kvm'), of('snp')]).toEqual([[], ['/dev/kvm'], ['/dev/kvm', '/dev/sev']])
})

test('goal: VMs share the CPU by their processors, up to the largest weight that systemd takes', () => {
  const weight = (vcpus: number) =>
    scopeProperties({ ...base, vcpus }).find(property => property.startsWith('CPUWeight='))
  expect([1, 255, 1_000, 1_001, 4_000].map(weight)).toEqual([
    'CPUWeight=10',
    'CPUWeight=2550',
    'CPUWeight=10000',
    'CPUWeight=10000',
    'CPUWeight=10000',
  ])
})

test('goal: the largest file is the memory or the disk of the VM, whichever is larger', () => {
  const fileMib = (change: Partial<Confinement>) => {
    const argv = confinedArgv({ ...base, ...change }, ['qemu'])
    const bytes = Number(argv.find(word => word.startsWith('--fsize='))?.slice('--fsize='.length))
    return bytes / 1_048_576
  }
  // A confidential guest's memory is a file of its own, beside QEMU's log.
  expect(fileMib({ platform: 'snp', memoryMib: 16_384 })).toBe(16_384 + 64)
  expect(fileMib({ platform: 'snp', memoryMib: 1_024 })).toBe(8_192)
  expect(fileMib({ memoryMib: 16_384 })).toBe(8_192)
  expect(fileMib({ diskGib: 0 })).toBe(64)
})
