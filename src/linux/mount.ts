// Mounts file systems. Effects: the mount namespace of this process.

import { Fault } from '../base/fault.ts'
import { errnoName, MOUNT, mount } from './libc.ts'

/** For a device that others may have written: no execution, setuid or device files. Fault host.command_failed. */
export function mountReadOnly(device: string, target: string, type: string): void {
  const flags = MOUNT.readOnly | MOUNT.noSuid | MOUNT.noDevices | MOUNT.noExecution
  const mounted = mount(device, target, type, flags)
  if (!mounted.ok) throw new Fault('host.command_failed', `mount ${device}: ${errnoName(mounted.errno)}`)
}
