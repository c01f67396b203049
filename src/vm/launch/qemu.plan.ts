// QEMU's command line for each platform. Pure: the same plan always gives the same argv (golden texts in test/golden).
// Every device has an id; neither QEMU's default devices nor the user's configuration is used.

import { assert, unreachable } from '../../base/assert.ts'
import { exchangeSerial } from '../../contract/vm/build-agent.ts'
import { modelDiskSerial } from '../../contract/vm/enclave.ts'

export type QemuImage = {
  readonly kernel: string
  readonly initrd: string
  /** Kernel command line, with the dm-verity root hash. */
  readonly cmdline: string
}

/** Whether and how the launch is made confidential. */
export type QemuPlatform =
  | { readonly kind: 'tcg' }
  | { readonly kind: 'kvm' }
  | { readonly kind: 'snp'; readonly boot: SnpBoot; readonly launch: SnpLaunch }

export type SnpBoot =
  | { readonly kind: 'bios'; readonly firmware: string }
  /** The file contains firmware, kernel hashes, processors, and ID block. */
  | { readonly kind: 'igvm'; readonly file: string }

export type SnpLaunch = SnpCpu & SignedLaunch

export type SnpCpu = {
  readonly cpuModel: string
  /** From CPUID 8000001F EBX: position of the encryption bit, and by how many bits it shortens physical addresses. */
  readonly cbitPosition: number
  readonly reducedPhysBits: number
}

/** Launch parameters for the firmware. Bytes are standard base64. */
export type SignedLaunch = {
  /** Guest policy (AMD 56860, section 4.3). */
  readonly policy: bigint
  /** 32 bytes in base64. */
  readonly hostData: string
  readonly idBlock: {
    readonly block: string
    readonly auth: string
    /** Whether an author has signed the ID key. */
    readonly hasAuthor: boolean
  }
}

/** Numbers of the descriptors that QEMU inherits. It opens no file of the VM or the image by path. */
export type QemuFds = {
  /** The image's root, opened read-only. */
  readonly root: number
  readonly tap: number
  /** Listening sockets, created by root in a directory that only root can enter. */
  readonly qmp: number
  readonly qmpRescue: number
  readonly console: number
  readonly channel: number
  /** The scratch disk's file, opened for reading and writing; null if the VM has none. */
  readonly scratch: number | null
  /** Like `scratch`, for the exchange disk. */
  readonly exchange: number | null
  /** A model's disk, opened read-only; null if the VM has none. */
  readonly model: number | null
  /** Control channel of the VM's swtpm; null if the VM has none. */
  readonly tpm: number | null
}

/** GPUs of this host that are assigned to the VM. */
export type QemuGpus = {
  /** Descriptors of /dev/iommu and of each GPU's node. */
  readonly iommu: number
  readonly devices: readonly number[]
  /** Room above 4 GiB for their memory in MiB, a power of two. */
  readonly mmioWindowMib: number
}

export type QemuPlan = {
  readonly qemu: string
  readonly vmId: string
  readonly vcpus: number
  readonly memoryMib: number
  readonly mac: string
  /** The VM's directory, which QEMU cannot enter; it only identifies the process. */
  readonly directory: string
  readonly fds: QemuFds
  readonly image: QemuImage
  readonly platform: QemuPlatform
  readonly scratchLimits: ScratchLimits
  /** Only on snp. Null if there are none. */
  readonly gpus: QemuGpus | null
}

/** Limits of reads and writes together, per second; 0 for no limit. */
export type ScratchLimits = { readonly mibPerS: number; readonly iops: number }

/** Returns the full argv, QEMU's path first. The VM starts paused; `cont` follows once every socket is connected. */
export function qemuArgv(plan: QemuPlan): string[] {
  assert(plan.gpus === null || plan.platform.kind === 'snp', 'GPUs go to confidential VMs alone')
  return [
    plan.qemu,
    ...['-nodefaults', '-no-user-config', '-nographic', '-S'],
    ...['-name', escaped(plan.directory), '-uuid', plan.vmId],
    ...['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
    ...['-action', 'reboot=shutdown,shutdown=pause,panic=pause'],
    ...['-smp', `${plan.vcpus}`, '-m', `${plan.memoryMib}M`],
    ...platformArgs(plan),
    ...socketArgs('qmp', plan.fds.qmp),
    ...['-mon', 'chardev=qmp,mode=control'],
    ...socketArgs('rescue', plan.fds.qmpRescue),
    ...['-mon', 'chardev=rescue,mode=control'],
    ...socketArgs('console', plan.fds.console),
    ...['-serial', 'chardev:console'],
    ...['-device', device(plan, 'virtio-serial-pci', 'id=serial')],
    ...socketArgs('agent', plan.fds.channel),
    ...['-device', 'virtserialport,bus=serial.0,chardev=agent,name=strongroom.agent.0'],
    ...['-add-fd', `fd=${plan.fds.root},set=4,opaque=root`],
    ...['-blockdev', 'driver=file,node-name=root-file,filename=/dev/fdset/4,read-only=on'],
    ...['-blockdev', 'driver=raw,node-name=root,file=root-file,read-only=on'],
    ...['-device', device(plan, 'virtio-blk-pci', 'drive=root,serial=root')],
    ...scratchArgs(plan),
    ...exchangeArgs(plan),
    ...modelArgs(plan),
    ...tpmArgs(plan.fds.tpm),
    ...gpuArgs(plan.gpus),
    ...['-netdev', `tap,id=net,fd=${plan.fds.tap}`],
    // Segmentation offload would undercount egress, because one large frame counts only one header.
    ...[
      '-device',
      device(plan, 'virtio-net-pci', `netdev=net,mac=${plan.mac},host_tso4=off,host_tso6=off,host_ufo=off,romfile=`),
    ],
  ]
}

/**
 * Returns the scratch disk's arguments. It comes after the root, so that the root is /dev/vda. The guest encrypts this
 * disk, and its content ends with the VM, so QEMU caches and never flushes. `werror=enospc` pauses the VM while the
 * host's disk is full; the guest gets all other errors.
 */
function scratchArgs(plan: QemuPlan): string[] {
  const { scratch: fd } = plan.fds
  if (fd === null) return []
  const caching = 'cache.direct=off,cache.no-flush=on,discard=unmap'
  const limits = limitsOf(plan.scratchLimits)
  const limited = limits !== null
  return [
    ...['-add-fd', `fd=${fd},set=1,opaque=scratch`],
    ...['-blockdev', `driver=file,node-name=scratch-file,filename=/dev/fdset/1,aio=threads,${caching}`],
    ...['-blockdev', `driver=raw,node-name=scratch-raw,file=scratch-file,${caching}`],
    ...(limited ? ['-object', JSON.stringify({ 'qom-type': 'throttle-group', id: 'scratch-limits', limits })] : []),
    ...(limited
      ? ['-blockdev', `driver=throttle,node-name=scratch,throttle-group=scratch-limits,file=scratch-raw`]
      : []),
    ...[
      '-device',
      device(
        plan,
        'virtio-blk-pci',
        `drive=${limited ? 'scratch' : 'scratch-raw'},serial=scratch,discard=on,werror=enospc,rerror=report`,
      ),
    ],
  ]
}

/**
 * Returns the exchange disk's arguments. Host and guest use the file through the host's page cache. A guest that fills
 * the host's disk gets an error.
 */
function exchangeArgs(plan: QemuPlan): string[] {
  const { exchange: fd } = plan.fds
  if (fd === null) return []
  const caching = 'cache.direct=off,cache.no-flush=on,discard=unmap'
  return [
    ...['-add-fd', `fd=${fd},set=2,opaque=exchange`],
    // The host reads and writes the file at the same time, so locking is off.
    ...['-blockdev', `driver=file,node-name=exchange-file,filename=/dev/fdset/2,aio=threads,locking=off,${caching}`],
    ...['-blockdev', `driver=raw,node-name=exchange,file=exchange-file,${caching}`],
    ...[
      '-device',
      device(plan, 'virtio-blk-pci', `drive=exchange,serial=${exchangeSerial},discard=on,werror=report,rerror=report`),
    ],
  ]
}

/**
 * Returns the model disk's arguments. All VMs with this model share it, so the host caches its pages once. The guest
 * checks every block (dm-verity).
 */
function modelArgs(plan: QemuPlan): string[] {
  const { model: fd } = plan.fds
  if (fd === null) return []
  return [
    ...['-add-fd', `fd=${fd},set=3,opaque=model`],
    ...['-blockdev', 'driver=file,node-name=model-file,filename=/dev/fdset/3,aio=threads,read-only=on'],
    ...['-blockdev', 'driver=raw,node-name=model,file=model-file,read-only=on'],
    ...['-device', device(plan, 'virtio-blk-pci', `drive=model,serial=${modelDiskSerial},rerror=report`)],
  ]
}

/**
 * Returns the TPM's arguments. TIS is the QEMU interface that Linux finds without ACPI (`tpm_tis.force=1` on the
 * command line).
 */
function tpmArgs(fd: number | null): string[] {
  if (fd === null) return []
  return [
    ...['-chardev', `socket,id=tpm,fd=${fd}`],
    ...['-tpmdev', 'emulator,id=tpm0,chardev=tpm'],
    ...['-device', 'tpm-tis,tpmdev=tpm0'],
  ]
}

/**
 * Returns the GPUs' arguments. By descriptor, so that QEMU needs no path of VFIO (docs/devel/vfio-iommufd.rst). As its
 * driver expects, each GPU is behind its own PCIe port, and is present before the guest starts, because a confidential
 * guest accepts none later. No option ROM, because the guest's firmware would run it and the host chooses it. The
 * firmware reserves a large enough window only if it is requested.
 */
function gpuArgs(gpus: QemuGpus | null): string[] {
  if (gpus === null) return []
  return [
    ...['-fw_cfg', `name=opt/ovmf/X-PciMmio64Mb,string=${gpus.mmioWindowMib}`],
    ...['-object', `iommufd,id=iommu,fd=${gpus.iommu}`],
    ...gpus.devices.flatMap((fd, at) => [
      ...['-device', `pcie-root-port,id=gpu-port${at},bus=pcie.0,chassis=${at + 1},io-reserve=0`],
      ...['-device', `vfio-pci,id=gpu${at},bus=gpu-port${at},iommufd=iommu,fd=${fd},rombar=0`],
    ]),
  ]
}

/** Default width of physical addresses of QEMU's models. */
const usualAddressBits = 40

/**
 * Returns the CPU model, with wider addresses if the memory of the GPUs ends beyond its default. Addresses are not
 * measured.
 */
function cpuArg(cpuModel: string, { gpus, memoryMib }: Pick<QemuPlan, 'gpus' | 'memoryMib'>): string {
  if (gpus === null) return cpuModel
  const windowMib = gpus.mmioWindowMib
  // There is a hole below 4 GiB, whose memory is above it. The window begins at a multiple of its size.
  const endMib = (Math.ceil((memoryMib + 4096) / windowMib) + 1) * windowMib
  const bits = Math.ceil(Math.log2(endMib)) + 20
  return bits <= usualAddressBits ? cpuModel : `${cpuModel},phys-bits=${bits}`
}

const burst = { times: 4, seconds: 10 } as const
const bytesPerMib = 1_048_576

/** Returns ThrottleLimits of QEMU's qapi/block-core.json; null if there are none. */
function limitsOf({ mibPerS, iops }: ScratchLimits): Record<string, number> | null {
  const limits = {
    ...(mibPerS === 0 ? {} : limit('bps-total', mibPerS * bytesPerMib)),
    ...(iops === 0 ? {} : limit('iops-total', iops)),
  }
  return Object.keys(limits).length === 0 ? null : limits
}

function limit(name: string, perSecond: number): Record<string, number> {
  return { [name]: perSecond, [`${name}-max`]: burst.times * perSecond, [`${name}-max-length`]: burst.seconds }
}

function socketArgs(id: string, fd: number): string[] {
  return ['-chardev', `socket,id=${id},fd=${fd},server=on,wait=off`]
}

/**
 * Returns the text of a device. Virtio devices of a confidential guest must use the DMA API, because encrypted memory
 * is shared only in bounce buffers.
 */
function device(plan: QemuPlan, driver: string, properties: string): string {
  const confidential = plan.platform.kind === 'snp' ? ',iommu_platform=on,disable-legacy=on' : ''
  return `${driver},${properties}${confidential}`
}

/**
 * Kernel arguments on tcg. QEMU before 10.0.4 with a thread per processor sometimes dies when one maps a device while
 * another runs (a use after free, fixed by 2865bf1c5795 in 10.1). So one processor maps the devices, and init starts
 * the others once every driver has its device. `noreplace-smp` keeps the kernel from rewriting its code for several
 * processors, `lpj` from measuring a delay loop that a host with a time stamp counter does not use (250 Hz, right for 5
 * GHz; a slower one waits longer).
 */
const EMULATED_WORDS = ['maxcpus=1', 'noreplace-smp', 'lpj=20000000'] as const

function platformArgs(plan: QemuPlan): string[] {
  switch (plan.platform.kind) {
    case 'tcg':
      return [
        // Without ACPI: next to a TPM, QEMU's tables end where it puts the initrd of a directly started kernel, and the
        // guest found neither its second processor nor a clock. The BIOS's own tables are elsewhere. Page tables have
        // four levels, because walks of five took an eighth of an emulated boot. Fast `rep movsb` and `rep stosb` are
        // off: emulated, they move one byte at a time, their replacements eight or more.
        ...['-machine', 'q35,vmport=off,hpet=off,acpi=off', '-accel', 'tcg,thread=multi,tb-size=512'],
        ...['-cpu', 'max,la57=off,erms=off,fsrm=off'],
        ...directBoot({ ...plan.image, cmdline: [plan.image.cmdline, ...EMULATED_WORDS].join(' ') }),
      ]
    case 'kvm':
      return [...['-machine', 'q35,vmport=off,hpet=off', '-accel', 'kvm', '-cpu', 'host'], ...directBoot(plan.image)]
    case 'snp':
      return snpArgs(plan, plan.platform.boot, plan.platform.launch)
    default:
      return unreachable(plan.platform)
  }
}

/**
 * Returns the arguments on snp. Even with an IGVM file, QEMU passes kernel, initrd and command line to the firmware,
 * which compares them with the hashes in the file, so these arguments stay. QEMU refuses -bios together with the file
 * (docs/system/igvm.rst) and takes ID block and authentication only from the file; those of the command line would only
 * set a flag that fails the launch (target/i386/sev.c, cgs_set_guest_policy). The policy is given twice, because
 * SNP_LAUNCH_START precedes reading the file.
 */
function snpArgs(plan: QemuPlan, boot: SnpBoot, launch: SnpLaunch): string[] {
  const igvm = boot.kind === 'igvm' ? ',igvm-cfg=igvm0' : ''
  const machine = `q35,accel=kvm,kernel_irqchip=split,confidential-guest-support=sev0,memory-backend=ram0,vmport=off,hpet=off${igvm}`
  const { block, auth, hasAuthor } = launch.idBlock
  const idBlock = `id-block=${block},id-auth=${auth},author-key-enabled=${hasAuthor ? 'on' : 'off'}`
  const hostData = `host-data=${launch.hostData}`
  const sev = [
    'sev-snp-guest,id=sev0',
    `cbitpos=${launch.cbitPosition},reduced-phys-bits=${launch.reducedPhysBits}`,
    `policy=0x${launch.policy.toString(16)}`,
    // An IGVM file carries its own kernel hashes.
    `kernel-hashes=${boot.kind === 'bios' ? 'on' : 'off'}`,
    boot.kind === 'bios' ? `${hostData},${idBlock}` : hostData,
  ].join(',')
  return [
    ...['-machine', machine, '-cpu', cpuArg(launch.cpuModel, plan)],
    ...['-object', `memory-backend-memfd,id=ram0,size=${plan.memoryMib}M,share=true,prealloc=false`],
    ...['-object', sev],
    ...(boot.kind === 'bios'
      ? ['-bios', boot.firmware, ...directBoot(plan.image)]
      : ['-object', `igvm-cfg,id=igvm0,file=${escaped(boot.file)}`, ...directBoot(plan.image)]),
  ]
}

/** Doubles commas, as QEMU's option values require. */
function escaped(value: string): string {
  return value.replaceAll(',', ',,')
}

function directBoot(image: QemuImage): string[] {
  return ['-kernel', image.kernel, '-initrd', image.initrd, '-append', image.cmdline]
}
