// Roots of simulated GPUs. Pure.

import { derBlocks, type PemOrDer } from '../encoding/pem.ts'
import { wellFormed } from '../malformed.ts'
import { commonNameOf, decodeCertificate } from '../x509/certificate.ts'
import type { NvidiaRoots } from './roots.ts'

/**
 * Roots of a simulated GPU out of one PEM file: first the one of devices, then the one of manifests. Their names say
 * SIMULATED, so that neither passes for NVIDIA's where only names are shown. Throws Malformed.
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
