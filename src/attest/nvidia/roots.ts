// The roots for GPU evidence: NVIDIA's own, unless a caller adds simulated ones. Pure.
//
// Both certificates are from NVIDIA/nvtrust (guest_tools/gpu_verifiers/local_gpu_verifier/src/verifier/certs, commit
// 02817309, Apache-2.0); real chains contain their root too. Their SHA-256 fingerprints are pinned in
// test/attest/nvidia/roots.test.ts.

/// <reference path="../encoding/pem.d.ts" />

import { derBlocks, type PemOrDer } from '../encoding/pem.ts'
import { wellFormed } from '../malformed.ts'
import { type Certificate, decodeCertificate, isSame } from '../x509/certificate.ts'
import device from './roots/device.pem' with { type: 'text' }
import rim from './roots/rim.pem' with { type: 'text' }

export type NvidiaRoots = {
  /** Issues the identities of GPUs. */
  readonly device: PemOrDer
  /** Issues the signers of reference integrity manifests. */
  readonly rim: PemOrDer
}

/** NVIDIA Device Identity CA, and NVIDIA CoRIM signing Root CA. */
export const NVIDIA_ROOTS: NvidiaRoots = { device, rim }

export type DecodedRoot = {
  readonly certificate: Certificate
  /** True unless both certificates equal NVIDIA's byte for byte. */
  readonly simulated: boolean
}

export type DecodedRoots = { readonly [Role in keyof NvidiaRoots]: readonly DecodedRoot[] }

/** Decodes roots. Throws Malformed if one is unreadable, which is a mistake of the relying party. */
export function decodeRoots(trusted: readonly NvidiaRoots[]): DecodedRoots {
  const decode = (role: keyof NvidiaRoots) => {
    const nvidia = onlyOne(NVIDIA_ROOTS[role])
    return trusted.map(roots => {
      const certificate = onlyOne(roots[role])
      return { certificate, simulated: !isSame(certificate.der, nvidia.der) }
    })
  }
  return { device: decode('device'), rim: decode('rim') }
}

function onlyOne(input: PemOrDer): Certificate {
  const [der, ...more] = derBlocks(input, 'CERTIFICATE', 'root')
  wellFormed(der !== undefined && more.length === 0, 'root: not exactly one certificate')
  return decodeCertificate(der)
}
