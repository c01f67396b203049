// The roots that GPU evidence is verified to: NVIDIA's own unless a caller adds simulated ones. Pure.
//
// Both certificates stand in NVIDIA/nvtrust (guest_tools/gpu_verifiers/local_gpu_verifier/src/verifier/certs, commit
// 02817309, Apache-2.0); each real chain carries its root, too. Their SHA-256 fingerprints are pinned in
// test/attest/nvidia/roots.test.ts.

import { derBlocks, type PemOrDer } from '../encoding/pem.ts'
import { wellFormed } from '../malformed.ts'
import { type Certificate, commonNameOf, decodeCertificate, isSame } from '../x509/certificate.ts'

export type NvidiaRoots = {
  /** Issues the identities of GPUs. */
  readonly device: PemOrDer
  /** Issues the signers of reference integrity manifests. */
  readonly rim: PemOrDer
}

/** NVIDIA Device Identity CA and NVIDIA CoRIM signing Root CA. */
export const NVIDIA_ROOTS: NvidiaRoots = {
  device: `-----BEGIN CERTIFICATE-----
MIICCzCCAZCgAwIBAgIQLTZwscoQBBHB/sDoKgZbVDAKBggqhkjOPQQDAzA1MSIw
IAYDVQQDDBlOVklESUEgRGV2aWNlIElkZW50aXR5IENBMQ8wDQYDVQQKDAZOVklE
SUEwIBcNMjExMTA1MDAwMDAwWhgPOTk5OTEyMzEyMzU5NTlaMDUxIjAgBgNVBAMM
GU5WSURJQSBEZXZpY2UgSWRlbnRpdHkgQ0ExDzANBgNVBAoMBk5WSURJQTB2MBAG
ByqGSM49AgEGBSuBBAAiA2IABA5MFKM7+KViZljbQSlgfky/RRnEQScW9NDZF8SX
gAW96r6u/Ve8ZggtcYpPi2BS4VFu6KfEIrhN6FcHG7WP05W+oM+hxj7nyA1r1jkB
2Ry70YfThX3Ba1zOryOP+MJ9vaNjMGEwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8B
Af8EBAMCAQYwHQYDVR0OBBYEFFeF/4PyY8xlfWi3Olv0jUrL+0lfMB8GA1UdIwQY
MBaAFFeF/4PyY8xlfWi3Olv0jUrL+0lfMAoGCCqGSM49BAMDA2kAMGYCMQCPeFM3
TASsKQVaT+8S0sO9u97PVGCpE9d/I42IT7k3UUOLSR/qvJynVOD1vQKVXf0CMQC+
EY55WYoDBvs2wPAH1Gw4LbcwUN8QCff8bFmV4ZxjCRr4WXTLFHBKjbfneGSBWwA=
-----END CERTIFICATE-----
`,
  rim: `-----BEGIN CERTIFICATE-----
MIICKTCCAbCgAwIBAgIQRdrjoA5QN73fh1N17LXicDAKBggqhkjOPQQDAzBFMQsw
CQYDVQQGEwJVUzEPMA0GA1UECgwGTlZJRElBMSUwIwYDVQQDDBxOVklESUEgQ29S
SU0gc2lnbmluZyBSb290IENBMCAXDTIzMDMxNjE1MzczNFoYDzIwNTMwMzA4MTUz
NzM0WjBFMQswCQYDVQQGEwJVUzEPMA0GA1UECgwGTlZJRElBMSUwIwYDVQQDDBxO
VklESUEgQ29SSU0gc2lnbmluZyBSb290IENBMHYwEAYHKoZIzj0CAQYFK4EEACID
YgAEuECyi9vNM+Iw2lfUzyBldHAwaC1HF7TCgp12QcEyUTm3Tagxwr48d55+K2VI
lWYIDk7NlAIQdcV/Ff7euGLI+Qauj93HsSI4WX298PpW54RTgz9tC+Q684caR/BX
WEeZo2MwYTAdBgNVHQ4EFgQUpaXrOPK4ZDAk08DBskn594zeZjAwHwYDVR0jBBgw
FoAUpaXrOPK4ZDAk08DBskn594zeZjAwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8B
Af8EBAMCAQYwCgYIKoZIzj0EAwMDZwAwZAIwHGDyscDP6ihHqRvZlI3eqZ4YkvjE
1duaN84tAHRVgxVMvNrp5Tnom3idHYGW/dskAjATvjIx6VzHm/4e2GiZAyZEIUBD
OKPzp5ei/A0iUZpdvngenDwV8Qa/wGdiTmJ7Bp4=
-----END CERTIFICATE-----
`,
}

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

function onlyOne(input: PemOrDer): Certificate {
  const [der, ...more] = derBlocks(input, 'CERTIFICATE', 'root')
  wellFormed(der !== undefined && more.length === 0, 'root: not exactly one certificate')
  return decodeCertificate(der)
}
