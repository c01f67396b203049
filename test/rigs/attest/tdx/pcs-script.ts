// Answers of Intel's provisioning service, made of the file that --collateral takes: by path without the query.

import { fromHex, fromUtf8 } from '../../../../src/base/bytes.ts'
import type { Answer } from '../collateral-server.ts'

export function pcsScript(collateral: Uint8Array): Readonly<Record<string, Answer>> {
  const apart = JSON.parse(fromUtf8(collateral))
  const signedBy = (header: string, body: string) => () =>
    new Response(body, { headers: { [header]: encodeURIComponent(apart.tcb_info_issuer_chain) } })
  return {
    '/tdx/certification/v4/tcb': signedBy(
      'TCB-Info-Issuer-Chain',
      `{"tcbInfo":${apart.tcb_info},"signature":"${apart.tcb_info_signature}"}`,
    ),
    '/tdx/certification/v4/qe/identity': signedBy(
      'SGX-Enclave-Identity-Issuer-Chain',
      `{"enclaveIdentity":${apart.qe_identity},"signature":"${apart.qe_identity_signature}"}`,
    ),
    '/sgx/certification/v4/pckcrl': bytesOf(apart.pck_crl),
    '/IntelSGXRootCA.der': bytesOf(apart.root_ca_crl),
  }
}

export function bytesOf(hex: string): () => Response {
  return () => new Response((fromHex(hex) ?? new Uint8Array()).slice())
}
