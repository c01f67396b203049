// Roots of simulated GPUs. Pure.

import { derBlocks, type PemOrDer } from '../encoding/pem.ts'
import { wellFormed } from '../malformed.ts'
import { commonNameOf, decodeCertificate } from '../x509/certificate.ts'
import type { NvidiaRoots } from './roots.ts'

/**
 * Reads the roots of a simulated GPU from one PEM file: the device root, then the manifest root. Throws Malformed
 * unless their names contain SIMULATED, so that neither passes for NVIDIA's if only names are shown.
 */
export function readSimulatedRoots(pem: PemOrDer): NvidiaRoots {
  const what = 'simulated root'
  const certificates = derBlocks(pem, 'CERTIFICATE', what).map(decodeCertificate)
  const [device, rim, ...more] = certificates
  wellFormed(device !== undefined && rim !== undefined && more.length === 0, `${what}: not exactly two certificates`)
  for (const { subject } of certificates) {
    const name = commonNameOf(subject)
    wellFormed(name.startsWith('SIMULATED'), `${what}: the name ${JSON.stringify(name)} does not begin with SIMULATED`)
  }
  return { device: device.der, rim: rim.der }
}
