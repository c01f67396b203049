// Verifies a gateway's attestation document (gateway.ts) on any platform. Pure.

import { nativeVerifiers } from '../attest/receipt/verifiers.ts'
import { type GatewayQuestion, type GatewayVerdict, judgeGateway } from './gateway.ts'

/** Verifies the body of GET /attestation. Never throws: unreadable input is a failed check. */
export async function verifyGateway(bytes: Uint8Array, question: GatewayQuestion): Promise<GatewayVerdict> {
  return await judgeGateway(bytes, { ...question, verifiers: nativeVerifiers })
}
