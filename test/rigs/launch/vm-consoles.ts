// Output of an appliance's VMs on their serial consoles, as root of their host can read it. Effects: connects to
// the socket of each VM's console once the daemon has made it.

import { existsSync, readdirSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'

export type VmConsoles = Disposable & {
  /** Output of a VM so far, also once the VM is gone. Empty for a VM that was never seen. */
  readonly textOf: (vmId: string) => string
  /** Output of all VMs. */
  readonly all: () => string
}

const pollMs = 100

/** Keep it open while VMs start: QEMU discards output that nobody reads. */
export function readConsoles(stateDir: string): VmConsoles {
  const texts = new Map<string, string>()
  const sockets = new Map<string, Socket>()
  const look = () => {
    const vms = join(stateDir, 'vms')
    for (const vmId of existsSync(vms) ? readdirSync(vms) : []) {
      const path = join(vms, vmId, 'console.sock')
      if (sockets.has(vmId) || !existsSync(path)) continue
      const socket = connect(path)
      sockets.set(vmId, socket)
      socket.on('data', bytes => texts.set(vmId, (texts.get(vmId) ?? '') + bytes.toString()))
      // The socket is bound before it listens, and a VM may be gone by now.
      socket.on('error', () => sockets.delete(vmId))
    }
  }
  const timer = setInterval(look, pollMs)
  return {
    textOf: vmId => texts.get(vmId) ?? '',
    all: () => [...texts.values()].join('\n'),
    [Symbol.dispose]: () => {
      clearInterval(timer)
      for (const socket of sockets.values()) socket.destroy()
    },
  }
}

/** Lines of a console after the firmware's and the kernel's own, which end where the initrd begins. */
export function stagesOf(console: string): string[] {
  const lines = console.split(/\r?\n/)
  const first = lines.findIndex(line => line.startsWith('strongroom: '))
  return lines.slice(first === -1 ? lines.length : first).filter(line => line !== '')
}
