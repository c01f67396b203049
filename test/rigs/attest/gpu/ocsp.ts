// SIMULATED OCSP responses (RFC 6960), written by hand.

import { decodeCertificate } from '../../../../src/attest/x509/certificate.ts'
import { concat, fromHex } from '../../../../src/base/bytes.ts'
import { authority, type Extension, type Holder, issue, sign } from './authority.ts'
import { bits, octets, oid, seq, time, tlv, unsigned } from './der.ts'

export type Answer = {
  readonly certificate: Holder
  readonly issuer: Holder
  readonly state?: 'good' | 'revoked' | 'unknown'
  readonly thisUpdateMs: number
  /** Null if the response does not contain it. */
  readonly nextUpdateMs?: number | null
  readonly hash?: 'SHA-1' | 'SHA-256' | 'SHA-384'
}

const HASH_OIDS = {
  'SHA-1': '1.3.14.3.2.26',
  'SHA-256': '2.16.840.1.101.3.4.2.1',
  'SHA-384': '2.16.840.1.101.3.4.2.2',
} as const

export type ResponseParts = {
  readonly answers: readonly Answer[]
  readonly signer: Holder
  /** Certificates in the response. */
  readonly certificates?: readonly Holder[]
  readonly byKey?: boolean
  readonly extensions?: readonly Uint8Array[]
}

export async function ocspResponse({
  answers,
  signer,
  certificates = [],
  byKey = false,
  extensions = [],
}: ResponseParts): Promise<Uint8Array> {
  const { subject, publicKey } = decodeCertificate(signer.der)
  const point = publicKey.kind === 'p-384' ? publicKey.point : new Uint8Array(0)
  const responder = byKey ? tlv(0xa2, octets(await digest('SHA-1', point))) : tlv(0xa1, subject)
  const data = seq(
    responder,
    time(answers[0]?.thisUpdateMs ?? 0),
    seq(...(await Promise.all(answers.map(single)))),
    ...(extensions.length === 0 ? [] : [tlv(0xa1, seq(...extensions))]),
  )
  const raw = await sign(signer.keys, data)
  const basic = seq(
    data,
    seq(oid('1.2.840.10045.4.3.3')),
    bits(seq(unsigned(raw.slice(0, 48)), unsigned(raw.slice(48)))),
    ...(certificates.length === 0 ? [] : [tlv(0xa0, seq(...certificates.map(({ der }) => der)))]),
  )
  return seq(tlv(0x0a, Uint8Array.of(0)), tlv(0xa0, seq(oid('1.3.6.1.5.5.7.48.1.1'), octets(basic))))
}

async function single({
  certificate,
  issuer,
  state = 'good',
  thisUpdateMs,
  nextUpdateMs = null,
  hash = 'SHA-384',
}: Answer): Promise<Uint8Array> {
  const { serial, issuer: name } = decodeCertificate(certificate.der)
  const { publicKey } = decodeCertificate(issuer.der)
  const point = publicKey.kind === 'p-384' ? publicKey.point : new Uint8Array(0)
  const id = seq(
    seq(oid(HASH_OIDS[hash])),
    octets(await digest(hash, name)),
    octets(await digest(hash, point)),
    unsigned(fromHex(serial) ?? new Uint8Array(1)),
  )
  const states = { good: tlv(0x80), revoked: tlv(0xa1, time(thisUpdateMs)), unknown: tlv(0x82) }
  return seq(id, states[state], time(thisUpdateMs), ...(nextUpdateMs === null ? [] : [tlv(0xa0, time(nextUpdateMs))]))
}

async function digest(hash: string, bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest(hash, new Uint8Array(bytes)))
}

/** id-kp-OCSPSigning. */
const ocspUsage: Extension = { oid: '2.5.29.37', critical: true, value: seq(oid('1.3.6.1.5.5.7.3.9')) }

export async function ocspSigner(issuer: Holder, { usage = true } = {}): Promise<Holder> {
  return await issue({
    name: 'SIMULATED OCSP responder',
    serial: '21',
    issuer,
    extensions: usage ? [ocspUsage] : authority(),
  })
}

export const ocspNonce = seq(
  oid('1.3.6.1.5.5.7.48.1.2'),
  tlv(0x01, Uint8Array.of(0xff)),
  octets(octets(concat(new Uint8Array(16)))),
)
export const ocspUnknownExtension = seq(
  oid('1.3.6.1.5.5.7.48.1.99'),
  tlv(0x01, Uint8Array.of(0xff)),
  octets(octets(new Uint8Array(1))),
)
