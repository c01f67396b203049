// Makes the certificates with which the broker answers as one host: an authority for this host alone, and its only leaf
// (RFC 5280). Effects: randomness.
//
// The authority's key signs the leaf and is dropped: no process, not even this one, can make another certificate that
// programs of this VM accept.

import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { derElement, derOid } from '../../attest/encoding/der-writer.ts'
import { toBase64, toHex, utf8 } from '../../base/bytes.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { dayMs } from '../../base/time.ts'

export type HostCertificate = {
  /** The authority, PEM, for the programs of this VM. */
  readonly authority: string
  /** The leaf, PEM. */
  readonly certificate: string
  /** The leaf's private key, PEM (PKCS #8). It stays in this process. */
  readonly key: string
}

type Making = { readonly nowMs: number; readonly random: RandomBytes }

/** The host sets the clock of a VM: the times are far on both sides. */
const daysBefore = 366
const daysAfter = 3_660

/** Identifier octets (X.690 section 8). The broker reads no DER, so it does without the reader of attest/. */
const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  utf8String: 0x0c,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
  context0: 0xa0,
  context3: 0xa3,
} as const

const OID = {
  ecdsaSha256: '1.2.840.10045.4.3.2',
  commonName: '2.5.4.3',
  subjectKeyIdentifier: '2.5.29.14',
  keyUsage: '2.5.29.15',
  subjectAltName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  nameConstraints: '2.5.29.30',
  authorityKeyIdentifier: '2.5.29.35',
  extendedKeyUsage: '2.5.29.37',
  serverAuth: '1.3.6.1.5.5.7.3.1',
} as const
/** GeneralName dNSName, an implicit IA5String (RFC 5280 4.2.1.6). */
const dnsNameTag = 0x82
/** AuthorityKeyIdentifier's keyIdentifier (RFC 5280 4.2.1.1). */
const keyIdentifierTag = 0x80

/** `host`: a DNS name in its ASCII form. */
export function certifyHost(host: string, { nowMs, random }: Making): HostCertificate {
  const authority = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const leaf = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const keyId = random(20)
  // Unique, because programs look for an issuer by its name.
  const issuer = commonName(`Strongroom VM, for one host, ${toHex(keyId.subarray(0, 8))}`)
  const common = { issuer, nowMs, signingKey: authority.privateKey }
  const constraint = sequence(derElement(TAG.context0, sequence(derElement(dnsNameTag, utf8(host)))))
  const authorityDer = certificate({
    ...common,
    serial: serialOf(random),
    subject: issuer,
    publicKey: authority.publicKey,
    extensions: [
      // An authority that certifies no other authority.
      extension(OID.basicConstraints, 'critical', sequence(yes, derElement(TAG.integer, Uint8Array.of(0)))),
      extension(OID.keyUsage, 'critical', bits(2, 0x04)),
      extension(OID.subjectKeyIdentifier, 'optional', derElement(TAG.octetString, keyId)),
      extension(OID.nameConstraints, 'critical', constraint),
    ],
  })
  const leafDer = certificate({
    ...common,
    serial: serialOf(random),
    // A long name would not fit a common name (64 characters).
    subject: sequence(),
    publicKey: leaf.publicKey,
    extensions: [
      extension(OID.keyUsage, 'critical', bits(7, 0x80)),
      extension(OID.extendedKeyUsage, 'optional', sequence(derOid(OID.serverAuth))),
      extension(OID.authorityKeyIdentifier, 'optional', sequence(derElement(keyIdentifierTag, keyId))),
      // Critical, as the subject is empty (RFC 5280 4.2.1.6).
      extension(OID.subjectAltName, 'critical', sequence(derElement(dnsNameTag, utf8(host)))),
    ],
  })
  return {
    authority: toPem(authorityDer),
    certificate: toPem(leafDer),
    key: leaf.privateKey.export({ format: 'pem', type: 'pkcs8' }).toString(),
  }
}

type Fields = {
  readonly serial: Uint8Array
  readonly issuer: Uint8Array
  readonly subject: Uint8Array
  readonly publicKey: KeyObject
  readonly extensions: readonly Uint8Array[]
  readonly nowMs: number
  readonly signingKey: KeyObject
}

function certificate({ serial, issuer, subject, publicKey, extensions, nowMs, signingKey }: Fields): Uint8Array {
  const algorithm = sequence(derOid(OID.ecdsaSha256))
  const signed = sequence(
    derElement(TAG.context0, derElement(TAG.integer, Uint8Array.of(2))),
    derElement(TAG.integer, serial),
    algorithm,
    issuer,
    sequence(time(nowMs - daysBefore * dayMs), time(nowMs + daysAfter * dayMs)),
    subject,
    new Uint8Array(publicKey.export({ format: 'der', type: 'spki' })),
    derElement(TAG.context3, sequence(...extensions)),
  )
  return sequence(signed, algorithm, derElement(TAG.bitString, Uint8Array.of(0), sign('sha256', signed, signingKey)))
}

/** Positive, and of 16 bytes: the first bit is 0, the second 1. */
function serialOf(random: RandomBytes): Uint8Array {
  return random(16).map((byte, at) => (at === 0 ? (byte & 0x3f) | 0x40 : byte))
}

function commonName(text: string): Uint8Array {
  return sequence(derElement(TAG.set, sequence(derOid(OID.commonName), derElement(TAG.utf8String, utf8(text)))))
}

/** UTCTime until 2049, then GeneralizedTime (RFC 5280 4.1.2.5). */
function time(ms: number): Uint8Array {
  const digits = new Date(ms).toISOString().replace(/\.\d+|[-:T]/g, '')
  if (digits < '2050') return derElement(TAG.utcTime, utf8(digits.slice(2)))
  return derElement(TAG.generalizedTime, utf8(digits))
}

const yes = derElement(TAG.boolean, Uint8Array.of(0xff))

function extension(oid: string, weight: 'critical' | 'optional', value: Uint8Array): Uint8Array {
  return sequence(derOid(oid), ...(weight === 'critical' ? [yes] : []), derElement(TAG.octetString, value))
}

/** Named bits (X.690 11.2.2): one octet, of which `unused` bits do not count. */
function bits(unused: number, octet: number): Uint8Array {
  return derElement(TAG.bitString, Uint8Array.of(unused, octet))
}

function sequence(...elements: readonly Uint8Array[]): Uint8Array {
  return derElement(TAG.sequence, ...elements)
}

/** RFC 7468. */
function toPem(der: Uint8Array): string {
  const lines = toBase64(der).replace(/.{64}(?=.)/g, '$&\n')
  return `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`
}
