// The addresses at Intel's provisioning service of the collateral for a quote. Pure; throws Malformed. Intel PCS API,
// version 4.

import { type Anchor, decodePckChain } from '../../attest/tdx/chain.ts'
import { decodePckExtension } from '../../attest/tdx/pck-extension.ts'
import type { TdxQuote } from '../../attest/tdx/quote.ts'
import { commonNameOf } from '../../attest/x509/certificate.ts'
import { toHex } from '../../base/bytes.ts'
import { below } from '../collateral/fetch-options.ts'

/** A member of the collateral and its address. `chain`: the response header with the chain of signed JSON, or null. */
export type CollateralUrl = { readonly member: string; readonly url: string; readonly chain: string | null }

export const pcsUrlDefault = 'https://api.trustedservices.intel.com'
const certificates = 'https://certificates.trustedservices.intel.com'

/** Returns the platform's FMSPC and the authority of its PCK certificate, which identify its collateral. */
export function platformOf({ pckChain }: TdxQuote, anchor: Anchor) {
  const { pck, authority } = decodePckChain(pckChain, anchor)
  const ca = commonNameOf(authority.subject).includes('Processor') ? 'processor' : 'platform'
  return { fmspc: toHex(decodePckExtension(pck.extensions).fmspc), ca }
}

/** `mirror`: base URL that serves the paths of both of Intel's hosts. */
export function collateralUrls(quote: TdxQuote, anchor: Anchor, mirror?: string): readonly CollateralUrl[] {
  const { fmspc, ca } = platformOf(quote, anchor)
  const at = (path: string) => below(mirror ?? pcsUrlDefault, path)
  return [
    { member: 'tcb_info', url: at(`/tdx/certification/v4/tcb?fmspc=${fmspc}`), chain: 'TCB-Info-Issuer-Chain' },
    { member: 'qe_identity', url: at('/tdx/certification/v4/qe/identity'), chain: 'SGX-Enclave-Identity-Issuer-Chain' },
    { member: 'pck_crl', url: at(`/sgx/certification/v4/pckcrl?ca=${ca}&encoding=der`), chain: null },
    { member: 'root_ca_crl', url: below(mirror ?? certificates, '/IntelSGXRootCA.der'), chain: null },
  ]
}
