// Checks the revocation of a chain's certificates with saved OCSP responses, at a given time. Pure.

import { type Check, fail, notChecked, pass } from '../verdict.ts'
import { type Certificate, commonNameOf } from '../x509/certificate.ts'
import type { Chain } from './chain.ts'
import { isAuthentic, type OcspResponse, stateIn } from './ocsp.ts'

export type RevocationQuestion = {
  readonly responses: readonly OcspResponse[]
  readonly asOfMs: number
  /** Maximum age of a response. 'any': certificates without a response pass too; revoked ones never pass. */
  readonly maximumAgeMs: number | 'any'
}

/**
 * Checks a chain. NVIDIA's responder has no entry for a GPU's own leaf, because the GPU issued it: `from` 1 skips it. A
 * root cannot be revoked.
 */
export function checkRevocation(
  name: string,
  { chain, from, ...question }: RevocationQuestion & { readonly chain: Chain | null; readonly from: 0 | 1 },
): Check {
  if (chain === null) return notChecked(name, 'the chain is not good', true)
  const { path } = chain
  const open: string[] = []
  for (let at = from; at < path.length - 1; at += 1) {
    const [certificate, ...authorities] = path.slice(at)
    if (certificate === undefined) continue
    const found = stateOf(certificate, authorities, question)
    const subject = commonNameOf(certificate.subject)
    if (found === 'revoked') return fail(name, `${subject} is revoked`)
    if (found !== null) open.push(`${subject}: ${found}`)
  }
  if (open.length === 0) return pass(name, `OCSP: ${path.length - 1 - from} certificates are good`)
  return notChecked(name, open.join('; '), question.maximumAgeMs !== 'any')
}

/** Returns the fault of a certificate; null if it is not revoked. A revocation counts whatever its age. */
function stateOf(
  certificate: Certificate,
  authorities: readonly Certificate[],
  { responses, asOfMs, maximumAgeMs }: RevocationQuestion,
): 'revoked' | string | null {
  const [issuer] = authorities
  if (issuer === undefined) return 'no issuer'
  let reason = 'no OCSP response was given for it'
  let isGood = false
  for (const response of responses) {
    const said = stateIn(response, certificate, issuer)
    if (said === null) continue
    if (!isAuthentic(response, authorities, asOfMs)) reason = 'the OCSP response is not signed by its authority'
    else if (said.state === 'revoked') return 'revoked'
    else if (said.state === 'unknown') reason = 'the responder does not know it'
    else {
      const age = asOfMs - said.thisUpdateMs
      const isTooOld = maximumAgeMs !== 'any' && age > maximumAgeMs
      if (age < 0) reason = 'the OCSP response is from the future'
      else if (isTooOld || asOfMs > (said.nextUpdateMs ?? asOfMs)) reason = 'the OCSP response is too old'
      else isGood = true
    }
  }
  return isGood ? null : reason
}
