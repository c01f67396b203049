// X.509 certificates as issued by AMD, Intel and NVIDIA (RFC 5280 section 4; AMD 57230). Pure; throws Malformed.
//
// verify/ judges signatures, names, times and products.

import {
  asciiOf,
  booleanOf,
  type Der,
  DerFields,
  dottedOid,
  integerBytes,
  integerHex,
  readAll,
  readOne,
  readSequence,
  TAG,
  timeMs,
  wholeBits,
} from '../encoding/der.ts'
import { wellFormed } from '../malformed.ts'

export type Certificate = {
  readonly der: Uint8Array
  /** The signed bytes: the TBSCertificate with its tag and length. */
  readonly signedBytes: Uint8Array
  readonly serial: string
  readonly signatureAlgorithm: SignatureAlgorithm
  /** Names in DER. AMD's are compared byte by byte. */
  readonly issuer: Uint8Array
  readonly subject: Uint8Array
  readonly notBeforeMs: number
  readonly notAfterMs: number
  readonly publicKey: PublicKey
  readonly extensions: Extensions
  readonly signature: Uint8Array
}

/**
 * AMD signs only with RSASSA-PSS, SHA-384, MGF1 with SHA-384 and a salt of 48 bytes. Intel signs only with ECDSA on
 * P-256 and SHA-256, NVIDIA only with ECDSA on P-384 and SHA-384.
 */
export type SignatureAlgorithm = 'rsa-pss-sha384' | 'ecdsa-sha256' | 'ecdsa-sha384' | 'unsupported'

type PublicKey =
  | { readonly kind: 'rsa'; readonly spki: Uint8Array; readonly modulusBits: number; readonly exponentHex: string }
  /** The uncompressed point: 0x04, x, y. */
  | { readonly kind: 'p-384' | 'p-256'; readonly spki: Uint8Array; readonly point: Uint8Array }
  | { readonly kind: 'unsupported'; readonly spki: Uint8Array }

type Extension = { readonly critical: boolean; readonly value: Uint8Array }
export type Extensions = ReadonlyMap<string, Extension>

/** Object identifiers: RFC 5280, RFC 8017 appendix C, RFC 5480. */
export const OID = {
  rsaEncryption: '1.2.840.113549.1.1.1',
  mgf1: '1.2.840.113549.1.1.8',
  rsassaPss: '1.2.840.113549.1.1.10',
  sha384: '2.16.840.1.101.3.4.2.2',
  ecdsaSha256: '1.2.840.10045.4.3.2',
  ecdsaSha384: '1.2.840.10045.4.3.3',
  ecPublicKey: '1.2.840.10045.2.1',
  secp256r1: '1.2.840.10045.3.1.7',
  secp384r1: '1.3.132.0.34',
  commonName: '2.5.4.3',
  subjectKeyIdentifier: '2.5.29.14',
  keyUsage: '2.5.29.15',
  basicConstraints: '2.5.29.19',
  crlNumber: '2.5.29.20',
  crlDistributionPoints: '2.5.29.31',
  authorityKeyIdentifier: '2.5.29.35',
} as const satisfies Record<string, string>

const extensionsMax = 32

export function decodeCertificate(der: Uint8Array): Certificate {
  const what = 'certificate'
  const outer = new DerFields(readSequence(der, what), what)
  const tbs = outer.take(TAG.sequence, 'TBSCertificate')
  const outerAlgorithm = outer.take(TAG.sequence, 'signatureAlgorithm')
  const signature = wholeBits(outer.take(TAG.bitString, 'signature').contents, `${what} signature`)
  outer.end()

  const fields = new DerFields(readAll(tbs.contents, what), what)
  const version = readOne(fields.take(TAG.context0, 'version').contents, TAG.integer, `${what} version`)
  wellFormed(integerHex(version.contents, what) === '02', `${what}: not version 3`)
  const serial = integerHex(fields.take(TAG.integer, 'serial number').contents, `${what} serial number`)
  const innerAlgorithm = fields.take(TAG.sequence, 'signature algorithm')
  wellFormed(isSame(innerAlgorithm.whole, outerAlgorithm.whole), `${what}: two different signature algorithms`)
  const issuer = fields.take(TAG.sequence, 'issuer').whole
  const [notBefore, notAfter, ...more] = readAll(fields.take(TAG.sequence, 'validity').contents, `${what} validity`)
  wellFormed(notBefore !== undefined && notAfter !== undefined && more.length === 0, `${what}: not two times`)
  const subject = fields.take(TAG.sequence, 'subject').whole
  const publicKey = publicKeyOf(fields.take(TAG.sequence, 'public key'))
  const extensions = extensionsOf(fields.take(TAG.context3, 'extensions').contents, what)
  fields.end()

  return {
    der,
    signedBytes: tbs.whole,
    serial,
    signatureAlgorithm: signatureAlgorithmOf(innerAlgorithm),
    issuer,
    subject,
    notBeforeMs: timeMs(notBefore, `${what} notBefore`),
    notAfterMs: timeMs(notAfter, `${what} notAfter`),
    publicKey,
    extensions,
    signature,
  }
}

/** Reads the extensions of a certificate or a CRL by OID. Throws Malformed for a duplicate. */
export function extensionsOf(wrapped: Uint8Array, what: string): Extensions {
  const list = readSequence(wrapped, `${what} extensions`)
  wellFormed(list.length > 0 && list.length <= extensionsMax, `${what}: ${list.length} extensions`)
  const extensions = new Map<string, Extension>()
  for (const der of list) {
    const fields = new DerFields(readSequence(der.whole, `${what} extension`), `${what} extension`)
    const oid = dottedOid(fields.take(TAG.oid, 'OID').contents, `${what} extension`)
    const flag = fields.optional(TAG.boolean)
    const critical = flag !== null && booleanOf(flag.contents, `${what} extension ${oid}`)
    // DER omits default values.
    wellFormed(flag === null || critical, `${what} extension ${oid}: an explicit FALSE`)
    const value = fields.take(TAG.octetString, 'value').contents
    fields.end()
    wellFormed(!extensions.has(oid), `${what} extension ${oid}: twice`)
    extensions.set(oid, { critical, value })
  }
  return extensions
}

/**
 * Returns the algorithm. AMD writes the PSS trailer field, a default value, in ARK, ASK and older VCEKs, but not in
 * newer ones.
 */
export function signatureAlgorithmOf(identifier: Der): SignatureAlgorithm {
  const what = 'signature algorithm'
  const fields = new DerFields(readAll(identifier.contents, what), what)
  const oid = dottedOid(fields.take(TAG.oid, 'OID').contents, what)
  if (oid === OID.ecdsaSha256 || oid === OID.ecdsaSha384) {
    // No parameters (RFC 5758 section 3.2).
    fields.end()
    return oid === OID.ecdsaSha256 ? 'ecdsa-sha256' : 'ecdsa-sha384'
  }
  if (oid !== OID.rsassaPss) return 'unsupported'
  const parameters = new DerFields(readAll(fields.take(TAG.sequence, 'PSS parameters').contents, what), what)
  fields.end()
  const hash = parameters.optional(TAG.context0)
  const mask = parameters.optional(TAG.context1)
  const salt = parameters.optional(TAG.context2)
  const trailer = parameters.optional(TAG.context3)
  parameters.end()
  // Absent parameters mean SHA-1 and a salt of 20 bytes.
  if (hash === null || mask === null || salt === null) return 'unsupported'
  const isAllowed =
    isSha384(readOne(hash.contents, TAG.sequence, what)) &&
    isMgf1Sha384(readOne(mask.contents, TAG.sequence, what)) &&
    integerHex(readOne(salt.contents, TAG.integer, what).contents, what) === '30' &&
    (trailer === null || integerHex(readOne(trailer.contents, TAG.integer, what).contents, what) === '01')
  return isAllowed ? 'rsa-pss-sha384' : 'unsupported'
}

function isSha384(identifier: Der): boolean {
  const [oid, parameters, ...more] = readAll(identifier.contents, 'hash algorithm')
  const hasNoParameters = parameters === undefined || (parameters.tag === TAG.null && parameters.contents.length === 0)
  return (
    oid?.tag === TAG.oid &&
    dottedOid(oid.contents, 'hash algorithm') === OID.sha384 &&
    hasNoParameters &&
    more.length === 0
  )
}

function isMgf1Sha384(identifier: Der): boolean {
  const [oid, hash, ...more] = readAll(identifier.contents, 'mask algorithm')
  return (
    oid?.tag === TAG.oid &&
    dottedOid(oid.contents, 'mask algorithm') === OID.mgf1 &&
    hash?.tag === TAG.sequence &&
    isSha384(hash) &&
    more.length === 0
  )
}

/** Returns the point of a SubjectPublicKeyInfo on P-384; null for a key of another kind. */
export function spkiPoint(der: Uint8Array): Uint8Array | null {
  const key = publicKeyOf(readOne(der, TAG.sequence, 'public key'))
  return key.kind === 'p-384' ? key.point : null
}

function publicKeyOf(spki: Der): PublicKey {
  const what = 'public key'
  const fields = new DerFields(readAll(spki.contents, what), what)
  const [oid, parameters] = readAll(fields.take(TAG.sequence, 'algorithm').contents, what)
  const key = wholeBits(fields.take(TAG.bitString, 'bits').contents, what)
  fields.end()
  wellFormed(oid?.tag === TAG.oid, `${what}: no algorithm`)
  const algorithm = dottedOid(oid.contents, what)
  if (algorithm === OID.rsaEncryption) {
    const [modulus, exponent, ...more] = readSequence(key, what)
    wellFormed(
      modulus?.tag === TAG.integer && exponent?.tag === TAG.integer && more.length === 0,
      `${what}: not an RSA key`,
    )
    const magnitude = integerBytes(modulus.contents, `${what} modulus`)
    const modulusBits = magnitude.length * 8 - Math.clz32(magnitude[0] ?? 0) + 24
    return {
      kind: 'rsa',
      spki: spki.whole,
      modulusBits,
      exponentHex: integerHex(exponent.contents, `${what} exponent`),
    }
  }
  const curve = parameters?.tag === TAG.oid ? dottedOid(parameters.contents, what) : null
  const kind = algorithm === OID.ecPublicKey ? CURVES.get(curve) : undefined
  if (kind === undefined) return { kind: 'unsupported', spki: spki.whole }
  const isPoint = key.length === POINT_BYTES[kind] && key[0] === 0x04
  wellFormed(isPoint, `${what}: not an uncompressed ${kind.toUpperCase()} point`)
  return { kind, spki: spki.whole, point: key }
}

const CURVES = new Map<string | null, 'p-256' | 'p-384'>([
  [OID.secp256r1, 'p-256'],
  [OID.secp384r1, 'p-384'],
])
const POINT_BYTES = { 'p-256': 65, 'p-384': 97 } as const

/** Reports whether the certificate is an authority's (RFC 5280 section 4.2.1.9). Others lack the extension. */
export function isCertificateAuthority(extensions: Extensions): boolean {
  const extension = extensions.get(OID.basicConstraints)
  if (extension === undefined) return false
  const what = 'basic constraints'
  const fields = new DerFields(readSequence(extension.value, what), what)
  const flag = fields.optional(TAG.boolean)
  const isAuthority = flag !== null && booleanOf(flag.contents, what)
  const depth = fields.optional(TAG.integer)
  if (depth !== null) integerHex(depth.contents, what)
  fields.end()
  return isAuthority
}

/** Reads key usage (RFC 5280 section 4.2.1.3): bit 5 keyCertSign, bit 6 cRLSign. Null if the extension is absent. */
export function keyUsageOf(extensions: Extensions): { readonly certSign: boolean; readonly crlSign: boolean } | null {
  const extension = extensions.get(OID.keyUsage)
  if (extension === undefined) return null
  const bits = readOne(extension.value, TAG.bitString, 'key usage').contents
  const first = bits[1]
  wellFormed(first !== undefined && bits.length <= 3, 'key usage: not a bit string')
  return { certSign: (first & 0x04) !== 0, crlSign: (first & 0x02) !== 0 }
}

/** Returns the common name in a name, or a placeholder, for people. No decision depends on it. */
export function commonNameOf(name: Uint8Array): string {
  for (const set of readSequence(name, 'name')) {
    for (const attribute of readAll(set.contents, 'name')) {
      const [oid, value] = readAll(attribute.contents, 'name')
      if (oid?.tag !== TAG.oid || value === undefined || dottedOid(oid.contents, 'name') !== OID.commonName) continue
      return asciiOf(value.contents, 'common name')
    }
  }
  return '(no common name)'
}

/** Compares contents. Certificates are public, so timing does not matter. */
export function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at])
}
