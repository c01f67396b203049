// Verifies a gateway's attestation document (gateway.ts) on any platform. Pure.

import { nativeVerifiers } from '../attest/receipt/verifiers.ts'
import { type GatewayQuestion, type GatewayVerdict, judgeGateway } from './gateway.ts'

/** Takes the body of GET /attestation. Never throws: what cannot be read is a failed check. */
export async function verifyGateway(bytes: Uint8Array, question: GatewayQuestion): Promise<GatewayVerdict> {
  return await judgeGateway(bytes, { ...question, verifiers: nativeVerifiers })
}
