// PCI devices of this host that can be assigned to VMs (Linux Documentation/driver-api/vfio.rst,
// Documentation/ABI/testing/sysfs-bus-pci). Effects: reads sysfs below a root, writes one attribute of a device, opens
// device nodes.

import { closeSync, existsSync, openSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { wrapFault } from '../base/fault.ts'
import { resultOr } from '../base/result-or.ts'
import type { HostRoot } from './platform.ts'

/** A base address register with memory. */
export type Bar = {
  readonly index: number
  readonly sizeBytes: number
  /** Whether it may be above 4 GiB. */
  readonly is64Bit: boolean
  /** Largest size that the device offers for it (PCIe 6.0, 7.8.6); null if its size is fixed. */
  readonly largestBytes: number | null
}

export type VfioDevice = {
  readonly address: string
  readonly exists: boolean
  /** Value in sysfs, such as 0x10de; empty if there is none. The same applies to the next two. */
  readonly vendor: string
  readonly pciClass: string
  /** d3cold_allowed: 1 if the kernel may switch off the power of an idle device. */
  readonly d3coldAllowed: string
  /** Such as D0 and D3hot; empty if the kernel does not report it. */
  readonly powerState: string
  /** Name of its driver; null if there is none. */
  readonly driver: string | null
  /** Other devices of its IOMMU group except bridges, by address. Null if it is in no group. */
  readonly neighbours: readonly string[] | null
  readonly bars: readonly Bar[]
  /** The device's node in /dev/vfio/devices, by which QEMU gets it without its group; null if there is none. */
  readonly node: string | null
  /** Whether /dev/iommu exists. */
  readonly hasIommu: boolean
}

const devicesDir = 'sys/bus/pci/devices'
const iommuNode = 'dev/iommu'
const bridgeClass = '0x0604'

/** Reads a device. Never throws: unreadable parts count as absent. */
export function readVfioDevice(address: string, { root }: HostRoot = { root: '/' }): VfioDevice {
  const directory = join(root, devicesDir, address)
  const text = (name: string) => resultOr(() => readFileSync(join(directory, name), 'utf8').trim(), '')
  const [name] = namesIn(join(directory, 'vfio-dev')).filter(entry => /^vfio\d+$/.test(entry))
  const node = name === undefined ? null : join(root, 'dev/vfio/devices', name)
  return {
    address,
    exists: existsSync(directory),
    vendor: text('vendor'),
    pciClass: text('class'),
    d3coldAllowed: text('d3cold_allowed'),
    powerState: text('power_state'),
    driver: resultOr(() => basename(readlinkSync(join(directory, 'driver'))), null),
    neighbours: neighboursOf(address, { root }),
    bars: barsIn(text('resource'), index => text(`resource${index}_resize`)),
    node: node !== null && existsSync(node) ? node : null,
    hasIommu: existsSync(join(root, iommuNode)),
  }
}

/**
 * Returns the other devices of its group. A group is assigned to one user as a whole; its bridges keep their driver
 * (vfio.rst).
 */
function neighboursOf(address: string, { root }: HostRoot): string[] | null {
  const group = join(root, devicesDir, address, 'iommu_group')
  if (!existsSync(group)) return null
  return namesIn(join(group, 'devices'))
    .filter(name => name !== address)
    .filter(name => {
      const found = resultOr(() => readFileSync(join(root, devicesDir, name, 'class'), 'utf8'), '')
      return !found.startsWith(bridgeClass)
    })
}

function namesIn(directory: string): string[] {
  return resultOr(() => readdirSync(directory).toSorted(), [])
}

/** Flags of include/linux/ioport.h. */
const RESOURCE = { memory: 0x200n, memory64: 0x10_0000n } as const
const barCount = 6
const mib = 1024 * 1024

/** Parses lines "start end flags" of the file `resource`; those after the sixth are the ROM and bridges' windows. */
function barsIn(resource: string, resizeText: (index: number) => string): Bar[] {
  return resource.split('\n').flatMap((line, index): Bar[] => {
    const [, start, end, flags] = /^(0x[0-9a-f]{1,16}) (0x[0-9a-f]{1,16}) (0x[0-9a-f]{1,16})$/.exec(line) ?? []
    if (index >= barCount || start === undefined || end === undefined || flags === undefined) return []
    if ((BigInt(flags) & RESOURCE.memory) === 0n || BigInt(end) <= BigInt(start)) return []
    return [
      {
        index,
        sizeBytes: Number(BigInt(end) - BigInt(start) + 1n),
        is64Bit: (BigInt(flags) & RESOURCE.memory64) !== 0n,
        largestBytes: largestOf(resizeText(index)),
      },
    ]
  })
}

/** Parses the file `resourceN_resize`, hexadecimal: bit n means 2^n MiB. */
function largestOf(text: string): number | null {
  if (!/^[0-9a-f]{1,16}$/.test(text) || /^0+$/.test(text)) return null
  return 2 ** (BigInt(`0x${text}`).toString(2).length - 1) * mib
}

/**
 * Forbids D3cold. Returns the content of the file afterwards. Never throws: if /sys is read-only, the content is
 * unchanged.
 */
export function forbidD3cold(address: string, { root }: HostRoot = { root: '/' }): string {
  const path = join(root, devicesDir, address, 'd3cold_allowed')
  resultOr(() => writeFileSync(path, '0', { flag: 'r+' }), undefined)
  return resultOr(() => readFileSync(path, 'utf8').trim(), '')
}

export type OpenDevices = Disposable & {
  readonly iommu: number
  /** In the requested order. */
  readonly devices: readonly number[]
}

/** Opens /dev/iommu and the nodes for one QEMU. Throws Fault host.unsupported. */
export function openVfio(nodes: readonly string[], { root }: HostRoot = { root: '/' }): OpenDevices {
  using opened = new DisposableStack()
  const open = (path: string): number => {
    try {
      return opened.adopt(openSync(path, 'r+'), closeSync)
    } catch (error) {
      throw wrapFault(error, `open ${path}`, 'host.unsupported')
    }
  }
  const iommu = open(join(root, iommuNode))
  const devices = nodes.map(open)
  const kept = opened.move()
  return { iommu, devices, [Symbol.dispose]: () => kept.dispose() }
}
