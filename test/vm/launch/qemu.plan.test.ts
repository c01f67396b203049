import { expect, test } from 'bun:test'
import { modelDiskSerial } from '../../../src/contract/vm/enclave.ts'
import { hostDataOf } from '../../../src/vm/launch/expected.plan.ts'
import { type QemuPlan, type QemuPlatform, qemuArgv } from '../../../src/vm/launch/qemu.plan.ts'
import { vmPaths } from '../../../src/vm/launch.plan.ts'
import { expectGolden } from '../../rigs/golden.ts'

const vmId = '0123abcd-4567-4890-abcd-ef0123456789'
const launch = {
  cpuModel: 'EPYC-v4',
  cbitPosition: 51,
  reducedPhysBits: 1,
  policy: 0x30000n,
  hostData: new Uint8Array(32).fill(7).toBase64(),
  idBlock: { block: 'QkxPQ0s=', auth: 'QVVUSA==', hasAuthor: false },
}
const PLATFORMS = {
  tcg: { kind: 'tcg' },
  kvm: { kind: 'kvm' },
  'snp-bios': { kind: 'snp', boot: { kind: 'bios', firmware: '/proc/self/fd/10' }, launch },
  // HOST_DATA is the digest of a workload, where there is one.
  'snp-workload': {
    kind: 'snp',
    boot: { kind: 'bios', firmware: '/proc/self/fd/10' },
    launch: { ...launch, hostData: hostDataOf({ document: '{}', workload: '{"format":"w"}' }).toBase64() },
  },
  'snp-igvm': { kind: 'snp', boot: { kind: 'igvm', file: '/proc/self/fd/10' }, launch },
  'snp-author': {
    kind: 'snp',
    boot: { kind: 'bios', firmware: '/proc/self/fd/10' },
    launch: { ...launch, idBlock: { ...launch.idBlock, hasAuthor: true } },
  },
} as const satisfies Record<string, QemuPlatform>

const planFor = (platform: QemuPlatform): QemuPlan => ({
  qemu: '/usr/bin/qemu-system-x86_64',
  vmId,
  vcpus: 2,
  memoryMib: 2048,
  mac: '02:01:23:ab:cd:45',
  directory: vmPaths('/var/lib/strongroom', vmId).directory,
  fds: {
    ...{ root: 3, tap: 4, qmp: 5, qmpRescue: 6, console: 7, channel: 8, scratch: 9 },
    ...{ exchange: null, model: null, tpm: null },
  },
  image: {
    kernel: '/proc/self/fd/8',
    initrd: '/proc/self/fd/9',
    cmdline: 'console=ttyS0 strongroom.root=abc',
  },
  platform,
  scratchLimits: { mibPerS: 256, iops: 4000 },
  gpus: null,
})

for (const [name, platform] of Object.entries(PLATFORMS)) {
  test(`QEMU's command line on ${name}`, () => {
    // Goal: every argument is deliberate; a change shows up as a change of the golden text.
    expectGolden(`qemu-${name}.txt`, `${qemuArgv(planFor(platform)).join('\n')}\n`)
  })
}

test('no platform weakens isolation or confidentiality', () => {
  // Goal: what must hold, and must not, on every platform.
  for (const platform of Object.values(PLATFORMS)) {
    const argv = qemuArgv(planFor(platform))
    expect(argv).toContain('-nodefaults')
    expect(argv[argv.indexOf('-sandbox') + 1]).toStartWith('on,')
    expect(argv.join(' ')).toContain('host_tso4=off,host_tso6=off,host_ufo=off')
    expect(argv.join(' ')).not.toMatch(/-incoming|snapshot=|hostfwd|script=/)
    const confidential = platform.kind === 'snp'
    const virtio = argv.filter(argument => /^virtio-.*-pci,/.test(argument))
    expect(virtio.length).toBe(4)
    // Nothing that a guest wrote, and no image, is opened by a path of the host.
    expect(argv.filter(argument => argument.includes('filename='))).toEqual([
      expect.stringContaining('filename=/dev/fdset/4,read-only=on'),
      expect.stringContaining('filename=/dev/fdset/1,'),
    ])
    for (const device of virtio) expect(device.includes('iommu_platform=on,disable-legacy=on')).toBe(confidential)
    expect(argv.includes('-enable-kvm')).toBe(false)
  }
})

test('a comma in a path stays in the path', () => {
  // Goal: QEMU option syntax cannot be injected through configured paths.
  const plan = planFor({ kind: 'tcg' })
  const argv = qemuArgv({ ...plan, directory: '/srv/a,debug-threads=on' })
  expect(argv[argv.indexOf('-name') + 1]).toBe('/srv/a,,debug-threads=on')
})

test("a model's disk is read-only, by descriptor, and tells the guest its name", () => {
  // Goal: neither the guest nor an escape from it can change what other gateways read.
  const plan = planFor({ kind: 'tcg' })
  const without = qemuArgv(plan)
  const argv = qemuArgv({ ...plan, fds: { ...plan.fds, model: 9 } })
  expect(argv.filter(argument => !without.includes(argument))).toEqual([
    'fd=9,set=3,opaque=model',
    'driver=file,node-name=model-file,filename=/dev/fdset/3,aio=threads,read-only=on',
    'driver=raw,node-name=model,file=model-file,read-only=on',
    `virtio-blk-pci,drive=model,serial=${modelDiskSerial},rerror=report`,
  ])
  expectGolden('qemu-tcg-model.txt', `${argv.join('\n')}\n`)
  const snp = qemuArgv({ ...planFor(PLATFORMS['snp-bios']), fds: { ...plan.fds, model: 9 } })
  expect(snp.find(argument => argument.includes('drive=model'))).toEndWith(',iommu_platform=on,disable-legacy=on')
})

test('a VM with a TPM has swtpm behind it, by descriptor', () => {
  // Goal: the device is the one that the guest's kernel takes up without ACPI, and nobody else can connect to its TPM.
  const plan = planFor({ kind: 'tcg' })
  const without = qemuArgv(plan)
  const argv = qemuArgv({ ...plan, fds: { ...plan.fds, tpm: 9 } })
  expect(argv.filter(argument => !without.includes(argument))).toEqual([
    'socket,id=tpm,fd=9',
    '-tpmdev',
    'emulator,id=tpm0,chardev=tpm',
    'tpm-tis,tpmdev=tpm0',
  ])
  expectGolden('qemu-tcg-tpm.txt', `${argv.join('\n')}\n`)
})

test('a VM that builds has an exchange disk, by descriptor', () => {
  // Goal: host and guest share this file only; a guest that finds it full gets an error instead of a pause.
  const plan = planFor({ kind: 'tcg' })
  const without = qemuArgv(plan)
  const argv = qemuArgv({ ...plan, fds: { ...plan.fds, exchange: 9 } })
  const added = argv.filter(argument => !without.includes(argument))
  expect(added).toHaveLength(4)
  expect(added.at(-1)).toContain('serial=exchange,discard=on,werror=report,rerror=report')
  expect(argv.filter(argument => argument.includes('filename=')).at(-1)).toContain('filename=/dev/fdset/2,')
  expectGolden('qemu-tcg-exchange.txt', `${argv.join('\n')}\n`)
})

test('a VM without a scratch disk, or without limits on it, has none in its arguments', () => {
  // Goal: 0 means what the configuration says of it, and no half of a limit is left.
  const plan = planFor({ kind: 'tcg' })
  const none = qemuArgv({ ...plan, fds: { ...plan.fds, scratch: null } }).join('\n')
  expect(none).not.toMatch(/scratch|fdset\/1|set=1,|throttle/)
  const unlimited = qemuArgv({ ...plan, scratchLimits: { mibPerS: 0, iops: 0 } }).join('\n')
  expect(unlimited).toContain('drive=scratch-raw,serial=scratch')
  expect(unlimited).not.toContain('throttle')
  const byRate = qemuArgv({ ...plan, scratchLimits: { mibPerS: 1, iops: 0 } }).join('\n')
  expect(byRate).toContain('"bps-total":1048576')
  expect(byRate).not.toContain('iops-total')
})

test('a VM with GPUs gets each behind a port of its own, by descriptor, and firmware keeps room for their memory', () => {
  // Goal: QEMU reaches nothing of VFIO by a path, and starts with the devices: a confidential guest takes none later.
  const plan = planFor(PLATFORMS['snp-bios'])
  const without = qemuArgv(plan)
  const gpus = { iommu: 11, devices: [12, 13], mmioWindowMib: 524_288 }
  const argv = qemuArgv({ ...plan, gpus })
  expect(argv.filter(argument => !without.includes(argument))).toEqual([
    ...['-fw_cfg', 'name=opt/ovmf/X-PciMmio64Mb,string=524288'],
    'iommufd,id=iommu,fd=11',
    'pcie-root-port,id=gpu-port0,bus=pcie.0,chassis=1,io-reserve=0',
    'vfio-pci,id=gpu0,bus=gpu-port0,iommufd=iommu,fd=12,rombar=0',
    'pcie-root-port,id=gpu-port1,bus=pcie.0,chassis=2,io-reserve=0',
    'vfio-pci,id=gpu1,bus=gpu-port1,iommufd=iommu,fd=13,rombar=0',
  ])
  expect(argv.join(' ')).not.toMatch(/\/dev\/(vfio|iommu)|host=|sysfsdev=/)
  expectGolden('qemu-snp-gpu.txt', `${argv.join('\n')}\n`)
  // 2 TiB for eight of them end above what the model's addresses reach.
  const eight = qemuArgv({ ...plan, gpus: { ...gpus, mmioWindowMib: 2_097_152 } })
  expect(eight[eight.indexOf('-cpu') + 1]).toBe('EPYC-v4,phys-bits=42')
})

test('no VM but a confidential one gets a GPU', () => {
  // Goal: on other platforms the host reads all that a GPU computes, and nothing vouches for it.
  const gpus = { iommu: 11, devices: [12], mmioWindowMib: 32_768 }
  for (const platform of [PLATFORMS.tcg, PLATFORMS.kvm]) {
    expect(() => qemuArgv({ ...planFor(platform), gpus })).toThrow('GPUs go to confidential VMs alone')
  }
})
