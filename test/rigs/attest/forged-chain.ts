// Certificates and CRLs that no authority would issue, for tests of what must be refused. Made with @peculiar/x509.

import { authorityValidity } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { OID } from '../../../src/attest/x509/certificate.ts'
import { loadX509 } from '../../../src/attest/x509/runtime.ts'

export const pss = { name: 'RSA-PSS', hash: 'SHA-384', saltLength: 48 }

export type Forged = {
  /** Text, or the DER of a name. */
  readonly subject: string | Uint8Array
  readonly issuer: string | Uint8Array
  readonly publicKey: CryptoKey
  readonly signingKey: CryptoKey
  readonly algorithm?: { readonly name: string; readonly hash: string; readonly saltLength?: number }
  readonly notBefore?: Date
  readonly notAfter?: Date
  readonly serial?: string
  readonly extensions: readonly (readonly [oid: string, critical: boolean, value: Uint8Array])[]
}

/** DER of BasicConstraints and KeyUsage. */
export const AUTHORITY = {
  root: [
    [OID.basicConstraints, true, Uint8Array.from([0x30, 3, 1, 1, 0xff])],
    [OID.keyUsage, true, Uint8Array.from([3, 2, 1, 0x06])],
  ],
  intermediate: [
    [OID.basicConstraints, true, Uint8Array.from([0x30, 6, 1, 1, 0xff, 2, 1, 0])],
    [OID.keyUsage, true, Uint8Array.from([3, 2, 2, 0x04])],
  ],
} as const satisfies Record<string, Forged['extensions']>

export async function forge(forged: Forged): Promise<Uint8Array> {
  const x509 = await loadX509()
  const nameOf = (name: string | Uint8Array) => (typeof name === 'string' ? name : new x509.Name(new Uint8Array(name)))
  const made = await x509.X509CertificateGenerator.create({
    serialNumber: forged.serial ?? '0badc0de',
    subject: nameOf(forged.subject),
    issuer: nameOf(forged.issuer),
    notBefore: forged.notBefore ?? authorityValidity.notBefore,
    notAfter: forged.notAfter ?? authorityValidity.notAfter,
    publicKey: forged.publicKey,
    signingKey: forged.signingKey,
    signingAlgorithm: forged.algorithm ?? pss,
    extensions: forged.extensions.map(
      ([oid, critical, value]) => new x509.Extension(oid, critical, new Uint8Array(value)),
    ),
  })
  return new Uint8Array(made.rawData)
}

/** A certificate again, with the same extensions and key but other fields, signed by whom the test says. */
export async function reissue(
  der: Uint8Array,
  changes: Partial<Forged> & { signingKey: CryptoKey },
): Promise<Uint8Array> {
  const x509 = await loadX509()
  const old = new x509.X509Certificate(new Uint8Array(der))
  return await forge({
    subject: old.subject,
    issuer: old.issuer,
    publicKey: await old.publicKey.export(),
    notBefore: old.notBefore,
    notAfter: old.notAfter,
    serial: old.serialNumber,
    extensions: old.extensions.map(
      extension => [extension.type, extension.critical, new Uint8Array(extension.value)] as const,
    ),
    ...changes,
  })
}

export async function forgeCrl(forged: {
  readonly issuer: string
  readonly signingKey: CryptoKey
  readonly thisUpdate: Date
  readonly nextUpdate?: Date
  readonly revoked?: readonly string[]
  readonly extensions?: Forged['extensions']
  readonly algorithm?: Forged['algorithm']
}): Promise<Uint8Array> {
  const x509 = await loadX509()
  const made = await x509.X509CrlGenerator.create({
    issuer: forged.issuer,
    thisUpdate: forged.thisUpdate,
    ...(forged.nextUpdate === undefined ? {} : { nextUpdate: forged.nextUpdate }),
    entries: (forged.revoked ?? []).map(serialNumber => ({
      serialNumber,
      revocationDate: forged.thisUpdate,
      reason: x509.X509CrlReason.cACompromise,
    })),
    extensions: (forged.extensions ?? []).map(
      ([oid, critical, value]) => new x509.Extension(oid, critical, new Uint8Array(value)),
    ),
    signingAlgorithm: forged.algorithm ?? pss,
    signingKey: forged.signingKey,
  })
  return new Uint8Array(made.rawData)
}
