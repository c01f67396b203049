// How long the image's kernel takes to its first program under QEMU's TCG, as anybody would start it: what a cold start is compared with, for
// machines differ in how fast they emulate. Effects: a QEMU, a file in a directory of its own.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { assert } from '../../src/base/assert.ts'
import { type CpioEntry, cpioArchive } from '../image/cpio.ts'

const mark = 'plain boot: userland'
const timeoutMs = 120_000
const init = `#!/bin/busybox sh
echo '${mark}'
/bin/busybox reboot -f
`

/** Milliseconds from the start of QEMU to the first line of an init. `image`: a directory of one. */
export async function plainBootMs(image: string): Promise<number> {
  const directory = mkdtempSync(join(tmpdir(), 'srt-bench-'))
  try {
    const initrd = join(directory, 'initrd')
    writeFileSync(initrd, initrdWith(image, [programEntry('plain-init', init)]))
    const startedMs = performance.now()
    const child = Bun.spawn(qemuArgv(image, initrd), {
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'inherit',
      timeout: timeoutMs,
      killSignal: 'SIGKILL',
    })
    let output = ''
    let tookMs = Number.NaN
    for await (const piece of child.stdout) {
      output += Buffer.from(piece).toString('latin1')
      if (Number.isNaN(tookMs) && output.includes(mark)) tookMs = performance.now() - startedMs
    }
    assert(!Number.isNaN(tookMs), `the plain boot failed: ${output.slice(-2000)}`)
    return tookMs
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** The image's initrd with more in it. The kernel unpacks archives that follow each other, each from a multiple of four bytes. */
export function initrdWith(image: string, entries: readonly CpioEntry[]): Buffer {
  const base = readFileSync(join(image, 'initrd'))
  const padding = new Uint8Array((4 - (base.length % 4)) % 4)
  return Buffer.concat([base, padding, cpioArchive(entries, 0)])
}

export function programEntry(path: string, text: string): CpioEntry {
  return { kind: 'file', path, bytes: Buffer.from(text), executable: true }
}

/** Nothing of src/vm/qemu.plan.ts but the size of a VM and the one thread. */
function qemuArgv(image: string, initrd: string): string[] {
  return [
    // Ends with this process, however that ends.
    ...['setpriv', '--pdeathsig', 'KILL', '--'],
    ...['qemu-system-x86_64', '-nodefaults', '-no-user-config', '-nographic', '-no-reboot'],
    ...[
      '-machine',
      'q35',
      '-accel',
      'tcg,thread=single',
      '-cpu',
      'max',
      '-smp',
      '2',
      '-m',
      '2048M',
      '-serial',
      'stdio',
    ],
    ...['-kernel', join(image, 'kernel'), '-initrd', initrd, '-append', 'console=ttyS0 rdinit=/plain-init'],
  ]
}
