// Builds the IGVM file of an image from its parts. Reproducible: the same parts yield the same bytes. Pure.

import type { Hash } from '../hash.ts'
import { guestFeatures, guestPolicy } from '../launch/guest.ts'
import type { KernelHashes } from '../launch/kernel-hashes.ts'
import { buildIgvm } from './build.ts'

type ImageParts = {
  readonly firmware: Uint8Array
  readonly kernelHashes: KernelHashes
  readonly vcpuType: string
  readonly vcpus: number
}

/**
 * Builds the file without an ID block, which the host adds. Throws Malformed, for example if firmware checks no hashes.
 */
export function buildImageIgvm(parts: ImageParts, options: { readonly sha384?: Hash } = {}): Promise<Uint8Array> {
  return buildIgvm({ ...parts, features: guestFeatures, policy: guestPolicy, ...options })
}
