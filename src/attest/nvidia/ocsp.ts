// Saved OCSP responses (RFC 6960, section 4.2). Pure; decodeOcsp throws Malformed. A response lists the states of
// certificates; revocation.ts decides what follows.

import { sha1 } from '@noble/hashes/legacy.js'
import {
  type Der,
  DerFields,
  dottedOid,
  integerHex,
  readAll,
  readOne,
  readSequence,
  TAG,
  timeMs,
  wholeBits,
} from '../encoding/der.ts'
import { type Hash, sha256, sha384 } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import {
  type Certificate,
  decodeCertificate,
  extensionsOf,
  isSame,
  type SignatureAlgorithm,
  signatureAlgorithmOf,
} from '../x509/certificate.ts'
import { extendedKeyUsage, isValidAt, unknownCritical } from './chain.ts'
import { portableP384 } from './portable-p384.ts'
import { isIssuedBy } from './signature.ts'

export const ocspBytesMax = 64 * 1024
const singlesMax = 64
const certificatesMax = 8

export type OcspState = 'good' | 'revoked' | 'unknown'

type Single = {
  readonly hash: Hash
  readonly issuerNameHash: Uint8Array
  readonly issuerKeyHash: Uint8Array
  readonly serial: string
  readonly state: OcspState
  readonly thisUpdateMs: number
  readonly nextUpdateMs: number | null
}

export type OcspResponse = {
  readonly signedBytes: Uint8Array
  readonly signatureAlgorithm: SignatureAlgorithm
  readonly signature: Uint8Array
  readonly responder:
    | { readonly kind: 'name'; readonly name: Uint8Array }
    | { readonly kind: 'key'; readonly sha1: Uint8Array }
  readonly singles: readonly Single[]
  readonly certificates: readonly Certificate[]
}

/** Implicit and explicit tags of RFC 6960 that do not occur in certificates. */
const OCSP_TAG = { enumerated: 0x0a, good: 0x80, revoked: 0xa1, unknown: 0x82 } as const
const basicResponse = '1.3.6.1.5.5.7.48.1.1'
/** Ignored: the nonce was chosen by the requester, who was not the relying party, and proves nothing here. */
const nonceExtension = '1.3.6.1.5.5.7.48.1.2'

/**
 * Hashes of names and keys of issuers, as the requester chose. Security does not depend on the strength of SHA-1 here.
 */
const HASHES: Readonly<Record<string, Hash>> = {
  '1.3.14.3.2.26': sha1,
  '2.16.840.1.101.3.4.2.1': sha256,
  '2.16.840.1.101.3.4.2.2': sha384,
}

export function decodeOcsp(der: Uint8Array): OcspResponse {
  const what = 'OCSP response'
  wellFormed(der.length <= ocspBytesMax, `${what}: ${der.length} bytes, at most ${ocspBytesMax}`)
  const outer = new DerFields(readSequence(der, what), what)
  const status = outer.take(OCSP_TAG.enumerated, 'status').contents
  wellFormed(status.length === 1 && status[0] === 0, `${what}: the responder did not answer the question`)
  const body = new DerFields(readSequence(outer.take(TAG.context0, 'answer').contents, what), what)
  outer.end()
  const type = dottedOid(body.take(TAG.oid, 'type').contents, what)
  wellFormed(type === basicResponse, `${what}: not a basic one`)
  const basic = new DerFields(readSequence(body.take(TAG.octetString, 'basic response').contents, what), what)
  body.end()
  const data = basic.take(TAG.sequence, 'data')
  const signatureAlgorithm = signatureAlgorithmOf(basic.take(TAG.sequence, 'signature algorithm'))
  const signature = wholeBits(basic.take(TAG.bitString, 'signature').contents, what)
  const certificates = basic.optional(TAG.context0)
  basic.end()
  return {
    ...dataOf(data, what),
    signedBytes: data.whole,
    signatureAlgorithm,
    signature,
    certificates: certificates === null ? [] : certificatesOf(certificates, what),
  }
}

function certificatesOf(wrapped: Der, what: string): readonly Certificate[] {
  const list = readSequence(wrapped.contents, what)
  wellFormed(list.length <= certificatesMax, `${what}: ${list.length} certificates, at most ${certificatesMax}`)
  return list.map(({ whole }) => decodeCertificate(whole))
}

function dataOf(data: Der, what: string): Pick<OcspResponse, 'responder' | 'singles'> {
  const fields = new DerFields(readAll(data.contents, what), what)
  // DER omits the default, version 1.
  const name = fields.optional(TAG.context1)
  const key = name === null ? fields.take(TAG.context2, 'responder') : null
  fields.take(TAG.generalizedTime, 'producedAt')
  const singles = readAll(fields.take(TAG.sequence, 'responses').contents, what)
  const extensions = fields.optional(TAG.context1)
  fields.end()
  wellFormed(singles.length >= 1 && singles.length <= singlesMax, `${what}: ${singles.length} answers`)
  refuseCritical(extensions, what)
  return {
    responder:
      key === null
        ? { kind: 'name', name: readOne(name?.contents ?? data.contents, TAG.sequence, what).whole }
        : { kind: 'key', sha1: readOne(key.contents, TAG.octetString, what).contents },
    singles: singles.map(single => singleOf(single, what)),
  }
}

function singleOf({ whole }: Der, what: string): Single {
  const fields = new DerFields(readSequence(whole, what), what)
  const id = new DerFields(readAll(fields.take(TAG.sequence, 'certificate').contents, what), what)
  const [algorithm] = readAll(id.take(TAG.sequence, 'hash algorithm').contents, what)
  const issuerNameHash = id.take(TAG.octetString, "issuer's name").contents
  const issuerKeyHash = id.take(TAG.octetString, "issuer's key").contents
  const serial = integerHex(id.take(TAG.integer, 'serial number').contents, what)
  id.end()
  const hash = algorithm?.tag === TAG.oid ? HASHES[dottedOid(algorithm.contents, what)] : undefined
  wellFormed(hash !== undefined, `${what}: certificates are named by a hash that is not known`)
  const good = fields.optional(OCSP_TAG.good)
  const revoked = good === null ? fields.optional(OCSP_TAG.revoked) : null
  if (good === null && revoked === null) fields.take(OCSP_TAG.unknown, 'state')
  const thisUpdate = fields.take(TAG.generalizedTime, 'thisUpdate')
  const next = fields.optional(TAG.context0)
  const extensions = fields.optional(TAG.context1)
  fields.end()
  refuseCritical(extensions, what)
  return {
    hash,
    issuerNameHash,
    issuerKeyHash,
    serial,
    state: good === null ? (revoked === null ? 'unknown' : 'revoked') : 'good',
    thisUpdateMs: timeMs(thisUpdate, what),
    nextUpdateMs: next === null ? null : timeMs(readOne(next.contents, TAG.generalizedTime, what), what),
  }
}

function refuseCritical(wrapped: Der | null, what: string): void {
  if (wrapped === null) return
  for (const [oid, { critical }] of extensionsOf(wrapped.contents, what)) {
    wellFormed(!critical || oid === nonceExtension, `${what}: critical extension ${oid} is unknown`)
  }
}

/** Returns the state of this certificate in the response; null if the response does not list it. */
export function stateIn({ singles }: OcspResponse, certificate: Certificate, issuer: Certificate): Single | null {
  const key = issuer.publicKey
  if (key.kind !== 'p-384') return null
  const found = singles.find(
    ({ hash, issuerNameHash, issuerKeyHash, serial }) =>
      serial === certificate.serial &&
      isSame(issuerNameHash, hash(certificate.issuer)) &&
      isSame(issuerKeyHash, hash(key.point)),
  )
  return found ?? null
}

/**
 * Reports whether one of these authorities signed the response, directly or through a certificate issued for OCSP.
 * `authorities` are those above the certificate in question: NVIDIA's verifier accepts a responder of any of them.
 * Never throws.
 */
export function isAuthentic(response: OcspResponse, authorities: readonly Certificate[], asOfMs: number): boolean {
  try {
    const delegates = response.certificates.filter(
      made => isOcspSigner(made) && isValidAt(made, asOfMs) && authorities.some(issuer => isIssuedUnder(made, issuer)),
    )
    return [...authorities, ...delegates].some(
      signer => isNamed(response, signer) && isIssuedBy(response, signer, portableP384),
    )
  } catch {
    return false
  }
}

function isIssuedUnder(certificate: Certificate, issuer: Certificate): boolean {
  return isSame(certificate.issuer, issuer.subject) && isIssuedBy(certificate, issuer, portableP384)
}

function isNamed({ responder }: OcspResponse, { subject, publicKey }: Certificate): boolean {
  if (responder.kind === 'name') return isSame(responder.name, subject)
  return publicKey.kind === 'p-384' && isSame(responder.sha1, sha1(publicKey.point))
}

/** Reports whether the certificate may sign OCSP responses (RFC 6960 section 4.2.2.2). Throws Malformed. */
export function isOcspSigner(certificate: Certificate): boolean {
  const usage = certificate.extensions.get(extendedKeyUsage)
  if (usage === undefined || unknownCritical(certificate) !== null) return false
  // id-kp-OCSPSigning, 1.3.6.1.5.5.7.3.9.
  const ocspSigning = Uint8Array.of(0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x09)
  return readSequence(usage.value, 'extended key usage').some(({ contents }) => isSame(contents, ocspSigning))
}
