// A host's sysfs and device nodes with GPUs in them, below a directory.

import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const gib = 1024 ** 3

export type TreeGpu = {
  readonly address: string
  readonly vendor?: string
  readonly pciClass?: string
  /** Null for none. */
  readonly driver?: string | null
  /** Null for none. */
  readonly group?: number | null
  readonly d3coldAllowed?: string
  readonly powerState?: string
  /** Size of the BAR with the GPU's memory; the others are those of an H100. */
  readonly barBytes?: number
  /** Content of resource2_resize. */
  readonly resize?: string
  readonly hasNode?: boolean
}

/** Memory, 64 bits, prefetchable, as the kernel prints it. */
const flags = '0x000000000014220c'
const hex = (value: number) => `0x${value.toString(16).padStart(16, '0')}`
const none = `${hex(0)} ${hex(0)} ${hex(0)}`

function resourceText(barBytes: number): string {
  const bar = (start: number, bytes: number) => `${hex(start)} ${hex(start + bytes - 1)} ${flags}`
  const bars = [
    bar(2 * 1024 * gib, 2 ** 24),
    none,
    bar(4 * 1024 * gib, barBytes),
    none,
    bar(3 * 1024 * gib, 2 ** 25),
    none,
  ]
  return `${[...bars, none].join('\n')}\n`
}

export function writeTree(root: string, gpus: readonly TreeGpu[], { hasIommu = true } = {}): void {
  rmSync(root, { recursive: true, force: true })
  const put = (path: string, text: string) => {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  mkdirSync(root, { recursive: true })
  if (hasIommu) put('dev/iommu', '')
  gpus.forEach((gpu, at) => {
    const directory = `sys/bus/pci/devices/${gpu.address}`
    const { driver = 'vfio-pci', group = at, hasNode = true } = gpu
    put(`${directory}/vendor`, `${gpu.vendor ?? '0x10de'}\n`)
    put(`${directory}/class`, `${gpu.pciClass ?? '0x030200'}\n`)
    put(`${directory}/d3cold_allowed`, `${gpu.d3coldAllowed ?? '0'}\n`)
    put(`${directory}/power_state`, `${gpu.powerState ?? 'D0'}\n`)
    put(`${directory}/resource`, resourceText(gpu.barBytes ?? 128 * gib))
    if (gpu.resize !== undefined) put(`${directory}/resource2_resize`, `${gpu.resize}\n`)
    if (driver !== null) symlinkSync(`../../../../bus/pci/drivers/${driver}`, join(root, directory, 'driver'))
    if (group !== null) {
      const name = `sys/kernel/iommu_groups/${group}`
      put(`${name}/devices/${gpu.address}`, '')
      symlinkSync(`../../../../kernel/iommu_groups/${group}`, join(root, directory, 'iommu_group'))
    }
    if (hasNode) {
      put(`${directory}/vfio-dev/vfio${at}/dev`, '511:0\n')
      put(`dev/vfio/devices/vfio${at}`, `node ${at}`)
    }
  })
}
