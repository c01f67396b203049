// ECDSA on P-384 with SHA-384 in JavaScript, for relying parties. Pure. Gateway VMs use linux/keys/native-p384.ts.

import { p384 } from '@noble/curves/nist.js'
import type { VerifyP384 } from './signature.ts'

/** FIPS 186-5 allows S in both halves of its range, and NVIDIA's signatures use both. */
export const portableP384: VerifyP384 = (signature, bytes, point) =>
  p384.verify(signature, bytes, point, { prehash: true, lowS: false })
