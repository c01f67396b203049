// An answer to a question for evidence. Pure.

import { epochHeader } from '../../attest/ehbp/protocol.ts'
import type { EvidenceAnswer } from './transport.ts'

/** Returns the answer with these headers and this body. */
export function evidenceAnswer(status: number, headers: Headers, body: Uint8Array): EvidenceAnswer {
  return { status, retryAfter: headers.get('retry-after'), epoch: headers.get(epochHeader), body }
}
