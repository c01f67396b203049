// The hashes of what a VM boots, as the firmware's table wants them. Pure.

import { concat, utf8 } from '../../base/bytes.ts'
import { digest, type Hash } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import type { KernelHashes } from './kernel-hashes.ts'

export type BootFiles = {
  readonly kernel: Uint8Array
  readonly initrd?: Uint8Array | undefined
  /** Without the trailing NUL. Absent is the empty command line. */
  readonly cmdline?: string | undefined
}

const nul = new Uint8Array(1)

/** SHA-256 of the kernel file, the initrd (of no bytes without one) and the command line with its NUL. */
export async function kernelHashesOf(files: BootFiles, sha256?: Hash): Promise<KernelHashes> {
  const hash = async (bytes: Uint8Array) => (sha256 === undefined ? digest('SHA-256', bytes) : sha256(bytes))
  const [kernel, initrd, cmdline] = await Promise.all([
    hash(files.kernel),
    hash(files.initrd ?? new Uint8Array(0)),
    hash(cmdlineBytes(files.cmdline)),
  ])
  return { kernel, initrd, cmdline }
}

/** What is hashed for a command line. One with a NUL inside would be cut short by whoever reads it. */
export function cmdlineBytes(cmdline = ''): Uint8Array {
  wellFormed(!cmdline.includes('\0'), 'kernel command line: a NUL inside')
  return concat(utf8(cmdline), nul)
}
