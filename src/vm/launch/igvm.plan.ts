// IGVM files with a host's ID block: adding the block, and reading what a file would launch. Pure.
//
// QEMU takes ID block and ID authentication from the file and ignores those of its command line (QEMU 10.1
// target/i386/sev.c, cgs_set_guest_policy), so the block must be in the file. The file without it is reproducible.

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
 * Adds an ID block to the file. Throws Malformed if it is not an IGVM file, has an ID block, or is not in our canonical
 * form, so that removing the block would not restore it.
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

/** The launch that QEMU makes from a file. SHA-256 in hexadecimal. Null if the file has no such part. */
export type IgvmLaunch = {
  /** Digest of the file without its ID block. */
  readonly unsigned: string
  readonly firmware: string | null
  /** Hashes that the firmware compares with the given parts. `cmdline` includes the NUL. */
  readonly kernel: string | null
  readonly initrd: string | null
  readonly cmdline: string | null
  readonly policy: bigint | null
  readonly idBlock: { readonly block: Uint8Array; readonly auth: Uint8Array } | null
  /** The launch digest with QEMU's vCPUs, `qemu-kvm`. */
  readonly digest: Uint8Array
}

/** Native implementations, because a file has several megabytes. */
export type LaunchHashes = { readonly sha256: Hash; readonly sha384: Hash }

/** Reads the launch of a file. Throws Malformed. */
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

/** Returns the ID block; null if there is none. Throws Malformed if there are several, which QEMU would refuse. */
function idBlockOf(file: IgvmFile) {
  const [found, ...others] = snpHeaders(file).filter(header => header.kind === 'snpIdBlock')
  wellFormed(others.length === 0, 'IGVM: several ID blocks')
  return found ?? null
}
