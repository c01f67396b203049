// Whether a chain from an ACME server may be served: for this key, this name, now, in order. Pure.

import { X509Certificate } from 'node:crypto'
import { iso } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { spkiDigestOf } from '../../linux/keys/spki.ts'
import { namesIn, PEM_CERTIFICATE } from '../pair.ts'
import type { Dates } from './renewal.plan.ts'

/** A chain must fit into a message to a gateway VM (contract/vm/enclave.ts). */
export const chainCharsMax = 8_192
const chainLengthMax = 6

export type ChainVerdict =
  | ({ readonly ok: true; readonly pem: string; readonly fingerprint: string } & Dates)
  | { readonly ok: false; readonly reason: string }

/** `spkiSha256`: hexadecimal. Never throws. */
export function verifyChain(
  text: string,
  { name, spkiSha256, nowMs }: { readonly name: string; readonly spkiSha256: string; readonly nowMs: number },
): ChainVerdict {
  const no = (reason: string): ChainVerdict => ({ ok: false, reason })
  if (text.length > chainCharsMax)
    return no(`the chain has ${text.length} characters, at most ${chainCharsMax} can be served`)
  const blocks = text.match(PEM_CERTIFICATE) ?? []
  if (blocks.length === 0) return no('the answer holds no PEM certificate')
  if (blocks.length > chainLengthMax)
    return no(`the chain has ${blocks.length} certificates, at most ${chainLengthMax}`)
  let chain: X509Certificate[]
  try {
    chain = blocks.map(block => new X509Certificate(block))
  } catch (error) {
    return no(`a certificate cannot be read: ${messageOf(error)}`)
  }
  const [leaf, ...issuers] = chain
  if (leaf === undefined) return no('the answer holds no PEM certificate')
  if (Buffer.from(spkiDigestOf(leaf.raw)).toString('hex') !== spkiSha256)
    return no('the certificate is for another key')
  const names = namesIn(leaf.subjectAltName ?? '')
  if (names.length !== 1 || names[0]?.toLowerCase() !== name) {
    return no(
      `the certificate is for ${names.slice(0, 4).join(', ').slice(0, 256) || 'no name'}, not for ${name} alone`,
    )
  }
  if (leaf.ca) return no('the first certificate is a CA, not a server certificate')
  const broken = issuers.findIndex((issuer, at) => !issuer.ca || !isIssuedBy(chain[at], issuer))
  if (broken >= 0) return no(`certificate ${broken + 2} of the chain has not issued the one before it`)
  const dates = { notBeforeMs: Date.parse(leaf.validFrom), notAfterMs: Date.parse(leaf.validTo) }
  if (!(dates.notBeforeMs <= nowMs)) return no(`it is not valid before ${iso(dates.notBeforeMs)}`)
  if (!(nowMs < dates.notAfterMs)) return no(`it has ended at ${iso(dates.notAfterMs)}`)
  const ended = issuers.find(issuer => !(nowMs < Date.parse(issuer.validTo)))
  if (ended !== undefined) return no('an issuer in the chain has ended')
  return { ok: true, pem: `${blocks.join('\n')}\n`, fingerprint: leaf.fingerprint256, ...dates }
}

function isIssuedBy(subject: X509Certificate | undefined, issuer: X509Certificate): boolean {
  try {
    return subject?.checkIssued(issuer) === true && subject.verify(issuer.publicKey)
  } catch {
    return false
  }
}
