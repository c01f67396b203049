// The roots that GPU evidence is verified to: NVIDIA's own unless a caller adds simulated ones. Pure.
//
// Both certificates stand in NVIDIA/nvtrust (guest_tools/gpu_verifiers/local_gpu_verifier/src/verifier/certs, commit
// 02817309, Apache-2.0); each real chain carries its root, too. Their SHA-256 fingerprints are pinned in
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

/** NVIDIA Device Identity CA and NVIDIA CoRIM signing Root CA. */
export const NVIDIA_ROOTS: NvidiaRoots = { device, rim }

export type DecodedRoot = {
  readonly certificate: Certificate
  /** True for every certificate that is not byte for byte NVIDIA's. */
  readonly simulated: boolean
}

export type DecodedRoots = { readonly [Role in keyof NvidiaRoots]: readonly DecodedRoot[] }

/** Throws Malformed: a root that cannot be read is a mistake of the relying party's. */
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
