// The addresses at Intel's provisioning service of the collateral for a quote. Pure; throws Malformed. Intel PCS API,
// version 4.

import { decodeAnchor, decodePckChain, INTEL_ROOT } from '../../attest/tdx/chain.ts'
import { decodePckExtension } from '../../attest/tdx/pck-extension.ts'
import type { TdxQuote } from '../../attest/tdx/quote.ts'
import { commonNameOf } from '../../attest/x509/certificate.ts'
import { toHex } from '../../base/bytes.ts'

/** A member of the collateral and its address. `chain`: the response header with the chain of signed JSON, or null. */
export type CollateralUrl = { readonly member: string; readonly url: string; readonly chain: string | null }

const service = 'https://api.trustedservices.intel.com'
const certificates = 'https://certificates.trustedservices.intel.com'

export function collateralUrls({ pckChain }: TdxQuote): readonly CollateralUrl[] {
  const { pck, authority } = decodePckChain(pckChain, decodeAnchor(INTEL_ROOT))
  const fmspc = toHex(decodePckExtension(pck.extensions).fmspc)
  const ca = commonNameOf(authority.subject).includes('Processor') ? 'processor' : 'platform'
  return [
    { member: 'tcb_info', url: `${service}/tdx/certification/v4/tcb?fmspc=${fmspc}`, chain: 'TCB-Info-Issuer-Chain' },
    {
      member: 'qe_identity',
      url: `${service}/tdx/certification/v4/qe/identity`,
      chain: 'SGX-Enclave-Identity-Issuer-Chain',
    },
    { member: 'pck_crl', url: `${service}/sgx/certification/v4/pckcrl?ca=${ca}&encoding=der`, chain: null },
    { member: 'root_ca_crl', url: `${certificates}/IntelSGXRootCA.der`, chain: null },
  ]
}
