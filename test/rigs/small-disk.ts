// A small file system of its own, and filling it to the last block. Effects: mounts; for tests in a namespace of their
// own (netns.ts), which `ip netns exec` gives a mount namespace too.

import { closeSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { systemErrorCode } from '../../src/base/fault.ts'

/** At `path`, which is made where it is not there, and removed in the end. */
export function smallDisk(path: string, sizeMib: number): Disposable {
  mkdirSync(path, { mode: 0o711, recursive: true })
  run('mount', '-t', 'tmpfs', '-o', `size=${sizeMib}m,mode=0711`, 'tmpfs', path)
  return {
    [Symbol.dispose]: () => {
      run('umount', '--lazy', path)
      // It may hide what was there before the mount, as the keys of a simulated platform.
      rmSync(path, { recursive: true, force: true })
    },
  }
}

/** Leaves no block free. Returns the file that holds them. */
export function fillDisk(directory: string): string {
  const path = join(directory, 'ballast')
  const block = new Uint8Array(4096)
  const fd = openSync(path, 'w')
  try {
    for (let written = 0; written < fillBytesMax; written += writeSync(fd, block));
    throw new Error(`${directory} has more room than a test shall fill`)
  } catch (error) {
    if (systemErrorCode(error) !== 'ENOSPC') throw error
  } finally {
    closeSync(fd)
  }
  return path
}

const fillBytesMax = 512 << 20

function run(...argv: string[]): void {
  const { exitCode, stderr } = Bun.spawnSync(argv)
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${stderr}`)
}
