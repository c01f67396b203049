// An image for tests about the host: QEMU starts it as any other, and its VM prints one byte to its console and halts
// for ever. It costs the processors nothing, and never says hello. Effects: files in a temporary directory.

import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type LaunchImageParts, writeLaunchImage } from '../../../scripts/rigs/launch/launch-image.ts'

export type IdleImage = Disposable & {
  readonly directory: string
  /** From now on its kernel is none, as its manifest says: QEMU refuses to start. */
  readonly breakKernel: () => Promise<void>
}

export async function idleImage(parts: Partial<LaunchImageParts> = {}): Promise<IdleImage> {
  const directory = mkdtempSync(join(tmpdir(), 'srt-image-'))
  chmodSync(directory, 0o755)
  await writeLaunchImage(directory, { kernel: haltingKernel(), ...parts })
  return {
    directory,
    breakKernel: async () => {
      await writeLaunchImage(directory)
    },
    [Symbol.dispose]: () => rmSync(directory, { recursive: true }),
  }
}

const sectorBytes = 512

/** The smallest bzImage that QEMU takes with an initrd (Linux Documentation/arch/x86/boot.rst, protocol 2.02). */
function haltingKernel(): Uint8Array {
  // The boot sector, one sector of set-up code, and one of a protected-mode kernel that is never entered.
  const kernel = new Uint8Array(3 * sectorBytes)
  const view = new DataView(kernel.buffer)
  view.setUint8(0x1f1, 1)
  view.setUint16(0x1fe, 0xaa55, true)
  // jmp to 0x280
  kernel.set([0xeb, 0x7e], 0x200)
  kernel.set(new TextEncoder().encode('HdrS'), 0x202)
  view.setUint16(0x206, 0x0202, true)
  // LOADED_HIGH
  view.setUint8(0x211, 1)
  // mov dx, 0x3f8; mov al, '.'; out dx, al; cli; hlt; jmp to the hlt
  kernel.set([0xba, 0xf8, 0x03, 0xb0, 0x2e, 0xee, 0xfa, 0xf4, 0xeb, 0xfd], 0x280)
  return kernel
}
