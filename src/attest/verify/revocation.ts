// Checks that the ARK signed a CRL, that it is in force, and whether it lists an intermediate. Pure.
//
// prepareCrl does once what does not depend on time, so that a cached chain costs only two comparisons.

import { derBlocks, type PemOrDer } from '../encoding/pem.ts'
import { parsed, wellFormed } from '../malformed.ts'
import { type Check, check, fail, notChecked } from '../verdict.ts'
import { type Certificate, isSame, OID } from '../x509/certificate.ts'
import { type Crl, decodeCrl } from '../x509/crl.ts'
import { algorithmFault, isSignedBy } from '../x509/signature.ts'

export type PreparedCrl =
  | { readonly kind: 'absent' }
  | { readonly kind: 'bad'; readonly reason: string }
  | { readonly kind: 'signed'; readonly crl: Crl }

export const REVOCATION_CHECK = 'chain-revocation'

/** Decodes a CRL and verifies that the ARK signed it. Never throws. */
export async function prepareCrl(input: PemOrDer | undefined, ark: Certificate): Promise<PreparedCrl> {
  if (input === undefined) return { kind: 'absent' }
  const read = parsed(() => onlyCrl(input))
  if (!read.ok) return { kind: 'bad', reason: read.reason }
  const crl = read.value
  if (!isSame(crl.issuer, ark.subject)) return { kind: 'bad', reason: 'the CRL is issued by another name than the ARK' }
  const fault = algorithmFault(crl, ark)
  if (fault !== null) return { kind: 'bad', reason: `CRL: ${fault}` }
  // Delta and partial lists have critical extensions, and must not pass for complete ones.
  const unknown = [...crl.extensions].find(([oid, extension]) => extension.critical && oid !== OID.crlNumber)
  if (unknown !== undefined) return { kind: 'bad', reason: `CRL: critical extension ${unknown[0]} is unknown` }
  if (!(await isSignedBy(crl, ark))) return { kind: 'bad', reason: "the CRL's signature is not the ARK's" }
  return { kind: 'signed', crl }
}

function onlyCrl(input: PemOrDer): Crl {
  const [der, ...more] = derBlocks(input, 'X509 CRL', 'CRL')
  wellFormed(der !== undefined && more.length === 0, 'not exactly one CRL')
  return decodeCrl(der)
}

/** Returns one check. A given CRL must be good, required or not. */
export function checkRevocation(
  prepared: PreparedCrl,
  { authorities, asOfMs, requireCrl }: { authorities: readonly Certificate[]; asOfMs: number; requireCrl: boolean },
): Check {
  if (prepared.kind === 'absent') return notChecked(REVOCATION_CHECK, 'no CRL was given', requireCrl)
  if (prepared.kind === 'bad') return fail(REVOCATION_CHECK, prepared.reason)
  const { thisUpdateMs, nextUpdateMs, revoked } = prepared.crl
  if (nextUpdateMs === null) return fail(REVOCATION_CHECK, 'the CRL has no nextUpdate')
  const span = `${iso(thisUpdateMs)} to ${iso(nextUpdateMs)}`
  if (!(asOfMs >= thisUpdateMs && asOfMs <= nextUpdateMs)) {
    return fail(REVOCATION_CHECK, `the CRL is for ${span}, not for the time of this verification`)
  }
  const found = authorities.find(authority => revoked.has(authority.serial))
  return check(REVOCATION_CHECK, found === undefined, `serial number ${found?.serial} is revoked`, `CRL of ${span}`)
}

function iso(ms: number): string {
  return new Date(ms).toISOString()
}
