// Takes GPUs of this host for one VM. Effects: sysfs, device nodes; runs QEMU to read its version.
//
// QEMU gets open descriptors, so its jail has no node of VFIO and its user needs no group.

import { Fault } from '../../base/fault.ts'
import type { HostRoot } from '../../host/platform.ts'
import { forbidD3cold, type OpenDevices, openVfio, readVfioDevice, type VfioDevice } from '../../host/vfio.ts'
import { run } from '../../linux/command.ts'
import { changedBar, type GpuProblem, gpuProblems, mmioWindowMib, qemuProblem } from './gpu.plan.ts'

export type TakenGpus = OpenDevices & {
  readonly addresses: readonly string[]
  readonly mmioWindowMib: number
  /**
   * Call it once QEMU has the GPUs. Throws Fault host.unsupported if a BAR has another size than the window was made
   * for.
   */
  readonly readBack: () => void
}

export type TakeGpus = (
  addresses: readonly string[],
  vm: { readonly platform: string; readonly qemu: string },
) => Promise<TakenGpus>

const versionLimits = { timeoutMs: 10_000, outputBytesMax: 65_536 } as const

/**
 * Returns a function that takes GPUs. The caller disposes of them once QEMU has their descriptors. Faults:
 * host.unsupported, host.command_*.
 */
export function gpuTaker(host: HostRoot = { root: '/' }): TakeGpus {
  return async (addresses, { platform, qemu }) => {
    if (platform !== 'snp') {
      throw toFault({
        text: `a VM gets a GPU on snp alone, and this host runs VMs on ${platform}`,
        remedy: 'set inference.worker.gpu = []',
      })
    }
    const { stdout } = await run([qemu, '--version'], versionLimits)
    const tooOld = qemuProblem(stdout)
    if (tooOld !== null) throw toFault(tooOld)
    const devices = addresses.map(address => takeable(address, host))
    const opened = openVfio(
      devices.flatMap(({ node }) => node ?? []),
      host,
    )
    return {
      ...opened,
      addresses,
      mmioWindowMib: mmioWindowMib(devices),
      readBack: () => {
        for (const before of devices) {
          const changed = changedBar(before, readVfioDevice(before.address, host))
          if (changed !== null) {
            throw toFault({ text: changed, remedy: 'do not resize BARs while VMs run; start the gateway again' })
          }
        }
      },
    }
  }
}

/** Returns a GPU that can be taken, with its power kept on. */
function takeable(address: string, host: HostRoot): VfioDevice {
  const found = readVfioDevice(address, host)
  const device =
    found.exists && found.d3coldAllowed !== '0' ? { ...found, d3coldAllowed: forbidD3cold(address, host) } : found
  const [problem] = gpuProblems(device)
  if (problem !== undefined) throw toFault(problem)
  return device
}

function toFault({ text, remedy }: GpuProblem): Fault {
  return new Fault('host.unsupported', `${text}: ${remedy}`, { param: 'inference.worker.gpu' })
}
