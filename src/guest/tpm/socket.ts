// Gives programs of the VM a TPM quote over their nonce, and proof whose key signs it, over a unix socket. Effects: one
// socket.
//
// A client sends a line (request.codec.ts), gets one line, and closes. No client gets a quote over a receipt's
// statement, which has 64 bytes, or the secret of a credential: only a proof that the agent has it.

import { toBase64Url } from '../../base/bytes.ts'
import type { Logger } from '../../base/log.ts'
import { Closed } from '../../contract/forms.ts'
import { type Static, Type } from '../../contract/type.ts'
import { serveLines } from '../line-server.ts'
import { decodeTpmRequest, type TpmRequest, tpmNonceBytes, tpmRequestBytesMax } from './request.codec.ts'
import type { Tpm } from './tpm.ts'

export const TpmReply = Type.Union([
  Closed({ kind: Type.Literal('evidence'), evidence: Type.String({ maxLength: 32_768 }) }),
  Closed({ kind: Type.Literal('endorsement-key'), area: Type.String({ maxLength: 2_048 }) }),
  Closed({ kind: Type.Literal('activated'), proof: Type.String({ maxLength: 64 }) }),
  Closed({ kind: Type.Literal('none') }),
  Closed({ kind: Type.Literal('failed'), reason: Type.String({ maxLength: 1_024 }) }),
])
export type TpmReply = Static<typeof TpmReply>

/** Does not throw: without it only the verifier's second line is not checked. */
export function serveTpm({ path, tpm, log }: { path: string; tpm: Tpm; log: Logger }): Disposable {
  const answer = (request: Uint8Array) => replyTo(request, tpm)
  return serveLines({ path, what: 'TPM socket', requestBytesMax: tpmRequestBytesMax, answer, log })
}

async function replyTo(request: Uint8Array, tpm: Tpm): Promise<TpmReply> {
  const asked = decodeTpmRequest(request)
  if (asked === null) return { kind: 'failed', reason: `ask with ${tpmNonceBytes} bytes in base64url, and LF` }
  const answer = await answerTo(asked, tpm)
  return answer.kind === 'failed' ? { kind: 'failed', reason: answer.reason.slice(0, 1_024) } : answer
}

async function answerTo(asked: TpmRequest, tpm: Tpm): Promise<TpmReply> {
  if (asked.kind === 'quote') {
    const answer = await tpm.evidence(asked.nonce)
    return answer.kind === 'evidence' ? { kind: 'evidence', evidence: toBase64Url(answer.bytes) } : answer
  }
  if (asked.kind === 'endorsement-key') {
    const answer = await tpm.endorsementKey()
    return answer.kind === 'endorsement-key' ? { kind: answer.kind, area: toBase64Url(answer.area) } : answer
  }
  const answer = await tpm.activate(asked.credential)
  return answer.kind === 'activated' ? { kind: 'activated', proof: toBase64Url(answer.proof) } : answer
}
