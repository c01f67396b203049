// The image's kernel without our launch: how long it takes to its first program under QEMU's TCG, beside which a cold
// start is seen, for machines differ in how fast they emulate. Effects: a QEMU, a file in a directory of its own.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { assert } from '../../../src/base/assert.ts'
import { type CpioEntry, cpioArchive } from '../../image/tree/cpio.ts'
import { bootGuest } from '../../rigs/guest/boot.ts'

const mark = 'plain boot: userland'
const timeoutMs = 120_000
const init = `#!/bin/busybox sh
echo '${mark}'
/bin/busybox reboot -f
`

/** Milliseconds from QEMU's start to the first line of an init, within 0.1 s. `image`: its directory. */
export async function plainBootMs(image: string): Promise<number> {
  const directory = mkdtempSync(join(tmpdir(), 'srt-bench-'))
  try {
    const initrd = join(directory, 'initrd')
    writeFileSync(initrd, initrdWith(image, [programEntry('plain-init', init)]))
    const cmdline = 'console=ttyS0 rdinit=/plain-init'
    const startedMs = performance.now()
    await using guest = await bootGuest(image, join(image, 'root.img'), { cmdline, initrd })
    assert(await guest.shows(mark, timeoutMs), `the plain boot failed: ${guest.serial().slice(-2000)}`)
    return performance.now() - startedMs
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** The image's initrd with more entries. The kernel unpacks archives in a row, each aligned to four bytes. */
export function initrdWith(image: string, entries: readonly CpioEntry[]): Buffer {
  const base = readFileSync(join(image, 'initrd'))
  const padding = new Uint8Array((4 - (base.length % 4)) % 4)
  return Buffer.concat([base, padding, cpioArchive(entries, 0)])
}

export function programEntry(path: string, text: string): CpioEntry {
  return { kind: 'file', path, bytes: Buffer.from(text), executable: true }
}
