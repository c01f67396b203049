// Checks whether a GPU of this host can be assigned to a VM of SEV-SNP, and computes what QEMU and its firmware need
// for that. Pure.
//
// Nothing here makes a GPU trustworthy: the host could assign another device. The guest verifies evidence of the GPU.

import type { Bar, VfioDevice } from '../../host/vfio.ts'

export type GpuProblem = { readonly text: string; readonly remedy: string }

const nvidia = '0x10de'
/** VGA and 3D controllers (PCI Code and ID Assignment, class 03h). */
const displayClass = '0x03'
const vfioDriver = 'vfio-pci'

/** Returns the problems in the order in which an operator would fix them; empty if the GPU can be assigned. */
export function gpuProblems(device: VfioDevice): GpuProblem[] {
  const { address, vendor, pciClass, driver, neighbours, node, d3coldAllowed, powerState, bars } = device
  if (!device.exists) {
    return [{ text: `there is no PCI device ${address}`, remedy: 'correct inference.worker.gpu: lspci -D -d 10de:' }]
  }
  return [
    ...when(vendor !== nvidia || !pciClass.startsWith(displayClass), {
      text: `${address} is no GPU of NVIDIA (vendor ${vendor || 'unknown'}, class ${pciClass || 'unknown'})`,
      remedy: 'correct inference.worker.gpu: lspci -D -d 10de:',
    }),
    ...when(neighbours === null, {
      text: `${address} is in no IOMMU group: the IOMMU is off`,
      remedy: 'enable the IOMMU in the BIOS setup, and boot without amd_iommu=off',
    }),
    ...when((neighbours?.length ?? 0) > 0, {
      text: `${address} shares its IOMMU group with ${neighbours?.join(', ')}`,
      remedy: 'enable ACS in the BIOS setup, or put the GPU into another slot',
    }),
    ...when(driver !== vfioDriver, {
      text: `${address} has ${driver === null ? 'no driver' : `the driver ${driver}`}, not ${vfioDriver}`,
      remedy: `bind it at each boot: driverctl set-override ${address} ${vfioDriver}`,
    }),
    ...when(driver === vfioDriver && (node === null || !device.hasIommu), {
      text: `${address} has no node below /dev/vfio/devices, or /dev/iommu is missing`,
      remedy: 'use a kernel with IOMMUFD and VFIO_DEVICE_CDEV (6.6 or later); load the module iommufd',
    }),
    ...when(d3coldAllowed !== '0', {
      text: `${address} may lose its power while it is idle (d3cold_allowed is ${d3coldAllowed || 'not there'}), and GPUs have not come back from that`,
      remedy: d3coldRemedy(address),
    }),
    ...when(powerState === 'D3cold', {
      text: `${address} has no power (D3cold)`,
      remedy: `${d3coldRemedy(address)}; if it stays off, reboot the host`,
    }),
    ...when(driver === vfioDriver && !bars.some(({ is64Bit }) => is64Bit), {
      text: `${address} has no memory of its own that a VM could reach: its BARs were not placed`,
      remedy: 'enable "Above 4G Decoding" in the BIOS setup',
    }),
  ]
}

function d3coldRemedy(address: string): string {
  const rule = `ACTION=="add", SUBSYSTEM=="pci", KERNEL=="${address}", ATTR{d3cold_allowed}="0"`
  return `write ${rule} to /etc/udev/rules.d/60-strongroom-gpu.rules; run udevadm control --reload; udevadm trigger --action=add /sys/bus/pci/devices/${address}`
}

/**
 * Returns the problem of a BAR that is too small; null if none is. Writes to resourceN_resize fail without a message if
 * a bridge above has no room.
 */
export function smallBar({ address, bars }: VfioDevice): GpuProblem | null {
  const small = bars.find(({ sizeBytes, largestBytes }) => largestBytes !== null && sizeBytes < largestBytes)
  if (small === undefined) return null
  const { index, sizeBytes, largestBytes } = small
  return {
    text: `BAR ${index} of ${address} has ${mibOf(sizeBytes)} MiB of the ${mibOf(largestBytes ?? 0)} that it can have`,
    remedy: 'enable "Resizable BAR" and "Above 4G Decoding" in the BIOS setup, and read the size back after a reboot',
  }
}

/** Returns the first BAR that has changed; null if none has. */
export function changedBar(before: VfioDevice, after: VfioDevice): string | null {
  const sizes = ({ bars }: VfioDevice) => new Map(bars.map(({ index, sizeBytes }) => [index, sizeBytes]))
  const [was, is] = [sizes(before), sizes(after)]
  const changed = [...new Set([...was.keys(), ...is.keys()])].find(index => was.get(index) !== is.get(index))
  if (changed === undefined) return null
  const said = (bytes: number | undefined) => (bytes === undefined ? 'none' : `${mibOf(bytes)} MiB`)
  return `BAR ${changed} of ${before.address} had ${said(was.get(changed))} before QEMU started, and has ${said(is.get(changed))}`
}

const mib = 1024 * 1024

function mibOf(bytes: number): number {
  return Math.floor(bytes / mib)
}

/**
 * Returns the window above 4 GiB that the firmware must reserve for PCI, in MiB (OVMF, X-PciMmio64Mb). Each GPU is
 * behind its own port, whose window begins at a multiple of the largest BAR and ends after the smaller ones, so twice
 * the largest is enough. A power of two, because the firmware aligns the window to its size.
 */
export function mmioWindowMib(gpus: readonly { readonly bars: readonly Bar[] }[]): number {
  const largest = gpus.map(({ bars }) => Math.max(mib, ...bars.filter(bar => bar.is64Bit).map(bar => bar.sizeBytes)))
  const bytes = largest.reduce((sum, size) => sum + 2 * powerOfTwo(size), 0)
  return Math.max(mmioWindowMibMin, powerOfTwo(bytes) / mib)
}

/** OVMF's minimum: 32 GiB. */
const mmioWindowMibMin = 32_768

function powerOfTwo(atLeast: number): number {
  return 2 ** Math.ceil(Math.log2(atLeast))
}

/**
 * From this version on, QEMU notifies VFIO of each page that a confidential guest shares or takes back (physmem:
 * "Support coordinated discarding of RAM with guest_memfd"). Earlier versions refuse a device, because it would
 * continue to use old pages.
 */
export const qemuMinimumGpu = [10, 1] as const

/** Parses `QEMU emulator version 10.0.2 (Debian …)`; null for other texts. */
export function parseQemuVersion(text: string): readonly [major: number, minor: number] | null {
  const match = /version (\d+)\.(\d+)/.exec(text)
  return match === null ? null : [Number(match[1]), Number(match[2])]
}

/**
 * Returns why QEMU cannot assign devices to VMs of SEV-SNP; null if it can. `text`: the first line of `qemu --version`.
 */
export function qemuProblem(text: string): GpuProblem | null {
  const version = parseQemuVersion(text)
  const [least, leastMinor] = qemuMinimumGpu
  if (version !== null && (version[0] > least || (version[0] === least && version[1] >= leastMinor))) return null
  const seen = version === null ? 'a QEMU whose version is unknown' : `QEMU ${version.join('.')}`
  return {
    text: `${seen} gives no device to a VM of SEV-SNP; that needs ${qemuMinimumGpu.join('.')} or later`,
    remedy: 'install a later QEMU, and name it as vm.qemu',
  }
}

function when(holds: boolean, problem: GpuProblem): GpuProblem[] {
  return holds ? [problem] : []
}
