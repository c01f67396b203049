// GET /attestation (contract 4.2): five fresh receipts over the caller's nonce, or none. Effects: the nonce ledger,
// the evidence source.
//
// A nonce is used at the caller's turn, before any evidence is made, so no second response carries it. A request that
// is malformed, finds no evidence source or a full queue, or ends before its turn, leaves its nonce unused.

import { toBase64Url } from '../../base/bytes.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { AttestationResponse } from '../../contract/http/attestation.ts'
import { type GatewayErrorCode, gatewayError } from '../../contract/http/gateway-error.ts'
import type { Attester } from './attester.ts'
import { readNonce } from './nonce-request.ts'
import { type NonceLedger, reusedNonce } from './nonces.ts'

export type AttestationDeps = {
  readonly nonces: NonceLedger
  readonly attester: Attester
  readonly log: Logger
}

/**
 * Responds to GET /attestation. Never rejects. The caller limits requests per address. `address` returns the client's.
 */
export function createAttestationEndpoint({
  nonces,
  attester,
  log,
}: AttestationDeps): (r: Request, address: () => string) => Promise<Response> {
  let reported: string | null = null
  /** Logs a repeated reason at debug level only, because anyone may send requests. */
  const report = (error: unknown) => {
    const reason = messageOf(error)
    log[reason === reported ? 'debug' : 'warn']('no attestation', { reason, error })
    reported = reason
  }
  return async (request, address) => {
    try {
      if (request.method !== 'GET') throw new Fault('method_not_allowed', 'The method here is GET.')
      const nonce = readNonce(request)
      // Checked again at the request's turn. Failing here saves the turn.
      if (nonces.isUsed(nonce)) throw reusedNonce()
      const accept = () => nonces.use(nonce)
      const { receipts, gpuEvidence } = await attester.attest(nonce, { address, accept, signal: request.signal })
      const attestation: AttestationResponse = {
        schemaVersion: 1,
        scope: 'launch-or-admission-only',
        nonce: toBase64Url(nonce),
        operationalStatus: 'not-verified',
        receipts,
        ...(gpuEvidence === null ? {} : { gpuEvidence: toBase64Url(gpuEvidence) }),
      }
      reported = null
      return Response.json(attestation, { headers: HEADERS })
    } catch (error) {
      const refusal = refusalOf(error)
      if (refusal.status === 503) report(error)
      return refusalResponse(refusal)
    }
  }
}

/** Not cached, because evidence is fresh for one caller only. */
const HEADERS = { 'Cache-Control': 'no-store' } as const

type Refusal = {
  readonly code: GatewayErrorCode
  readonly status: number
  readonly message: string
  readonly headers: Readonly<Record<string, string>>
}

function refusalResponse({ code, status, message, headers: own }: Refusal): Response {
  return Response.json(gatewayError(code, message), { status, headers: { ...HEADERS, ...own } })
}

/** Every failure on the gateway's side is `attestation_unavailable`; the log has the reason. */
function refusalOf(error: unknown): Refusal {
  if (error instanceof Fault) {
    const { code, status, message } = error
    if (code === 'method_not_allowed') return { code, status, message, headers: { Allow: 'GET' } }
    if (code === 'invalid_request' || code === 'conflict') return { code, status, message, headers: {} }
  }
  const message = 'Fresh attestation is not available.'
  return { code: 'attestation_unavailable', status: 503, message, headers: {} }
}
