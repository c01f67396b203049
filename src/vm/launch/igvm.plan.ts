// IGVM files with the ID block of a host: how the block gets in, and what such a file would launch. Pure.
//
// QEMU takes ID block and ID authentication from the file, and forgets those of its command line (QEMU 10.1 target/i386/sev.c,
// cgs_set_guest_policy): without this host's block in the file there would be none. What is reproducible is the file without it.

import type { Hash } from '../../attest/hash.ts'
import { bootOfIgvm } from '../../attest/igvm/describe.ts'
import { type IgvmFile, readIgvm, writeIgvm } from '../../attest/igvm/file.ts'
import { readIdBlockHeader, type SignedId, writeIdBlockHeader } from '../../attest/igvm/id-block-header.ts'
import { measureIgvm, snpHeaders } from '../../attest/igvm/measure.ts'
import { launchProfile } from '../../attest/launch/guest.ts'
import { writeIdAuth, writeIdBlock } from '../../attest/launch/id-block.ts'
import { wellFormed } from '../../attest/malformed.ts'
import { toHex } from '../../base/bytes.ts'

/**
 * The file with this ID block in it. Throws Malformed: it is no IGVM file, has an ID block, or is not written as we write files, so that
 * the file without the block would be another one.
 */
export function signedIgvm(unsigned: Uint8Array, id: SignedId): Uint8Array {
  const file = readIgvm(unsigned)
  wellFormed(idBlockOf(file) === null, 'IGVM: it has an ID block; a launch is signed by the host that makes it')
  wellFormed(
    Buffer.from(writeIgvm(file)).equals(unsigned),
    'IGVM: not laid out as `strongroom measure igvm --image DIR --out FILE` writes files',
  )
  const mask = file.headers.find(header => header.kind === 'guestPolicy')
  wellFormed(mask?.kind === 'guestPolicy', 'IGVM: no guest policy')
  return writeIgvm({ headers: [...file.headers, writeIdBlockHeader(id, mask.compatibilityMask)] })
}

/** What QEMU would launch from a file. SHA-256 in hexadecimal; null for what the file does not have. */
export type IgvmLaunch = {
  /** Of the file without its ID block. */
  readonly unsigned: string
  readonly firmware: string | null
  /** The hashes with which the firmware compares what it is given; that of the command line is taken with its NUL. */
  readonly kernel: string | null
  readonly initrd: string | null
  readonly cmdline: string | null
  readonly policy: bigint | null
  readonly idBlock: { readonly block: Uint8Array; readonly auth: Uint8Array } | null
  /** Under `qemu-kvm`. */
  readonly digest: Uint8Array
}

/** Native ones: a file has some megabytes. */
export type LaunchHashes = { readonly sha256: Hash; readonly sha384: Hash }

/** Throws Malformed. */
export async function readIgvmLaunch(bytes: Uint8Array, hashes: LaunchHashes): Promise<IgvmLaunch> {
  const file = readIgvm(bytes)
  const { loaded, kernelHashes, policy } = bootOfIgvm(file)
  const hexOf = (part: Uint8Array) => toHex(hashes.sha256(part))
  const header = idBlockOf(file)
  const id = header === null ? null : readIdBlockHeader(header, policy ?? 0n)
  const { digest } = await measureIgvm(file, { profile: launchProfile, sha384: hashes.sha384 })
  return {
    unsigned: hexOf(writeIgvm({ headers: file.headers.filter(header => header.kind !== 'snpIdBlock') })),
    firmware: loaded === null ? null : hexOf(loaded.firmware),
    kernel: kernelHashes === null ? null : toHex(kernelHashes.kernel),
    initrd: kernelHashes === null ? null : toHex(kernelHashes.initrd),
    cmdline: kernelHashes === null ? null : toHex(kernelHashes.cmdline),
    policy,
    idBlock: id === null ? null : { block: writeIdBlock(id.block), auth: writeIdAuth(id.auth) },
    digest,
  }
}

/** Throws Malformed for several: QEMU would refuse them. */
function idBlockOf(file: IgvmFile) {
  const [found, ...others] = snpHeaders(file).filter(header => header.kind === 'snpIdBlock')
  wellFormed(others.length === 0, 'IGVM: several ID blocks')
  return found ?? null
}
