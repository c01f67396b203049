// Gives programs of the VM a quote of its TPM over a nonce of theirs, over a unix socket. Effects: one socket.
//
// Whoever asks sends 32 bytes in base64url and LF, gets one line, and closes (lockout/socket.ts says why not we). A quote over a receipt's
// statement is over 64 bytes, so that nobody gets one here.

import { chmodSync, rmSync } from 'node:fs'
import { type Static, Type } from '@sinclair/typebox'
import { fromBase64Url, fromUtf8, toBase64Url } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { Tpm } from './tpm.ts'

const closed = { additionalProperties: false } as const

export const TpmReply = Type.Union([
  Type.Object({ kind: Type.Literal('evidence'), evidence: Type.String({ maxLength: 32_768 }) }, closed),
  Type.Object({ kind: Type.Literal('none') }, closed),
  Type.Object({ kind: Type.Literal('failed'), reason: Type.String({ maxLength: 1_024 }) }, closed),
])
export type TpmReply = Static<typeof TpmReply>

export const tpmNonceBytes = 32
/** Of the request: the nonce and LF. */
const requestBytes = 44
const connectionsMax = 16
/** For a connection that says or reads nothing. */
const idleSeconds = 60

type Asking = { held: Uint8Array; asked: boolean; rest: Uint8Array }

/** Does not throw: without it only the verifier's second line is not checked. */
export function serveTpm({ path, tpm, log }: { path: string; tpm: Tpm; log: Logger }): Disposable {
  let connections = 0
  try {
    rmSync(path, { force: true })
    const listener = Bun.listen<Asking>({
      unix: path,
      socket: {
        open: socket => {
          connections += 1
          socket.data = { held: new Uint8Array(0), asked: false, rest: new Uint8Array(0) }
          socket.timeout(idleSeconds)
          if (connections > connectionsMax) socket.end()
        },
        data: (socket, chunk) => {
          const { data } = socket
          if (data.asked) return
          data.held = Buffer.concat([data.held, chunk.subarray(0, requestBytes)])
          if (data.held.length < requestBytes) return
          data.asked = true
          void replyTo(data.held, tpm).then(reply => {
            data.rest = Buffer.from(`${JSON.stringify(reply)}\n`)
            drain(socket)
          })
        },
        drain,
        timeout: socket => void socket.end(),
        close: () => {
          connections -= 1
        },
        error: () => {},
      },
    })
    chmodSync(path, 0o666)
    return { [Symbol.dispose]: () => listener.stop(true) }
  } catch (error) {
    log.error('TPM socket does not open', { reason: messageOf(error) })
    return { [Symbol.dispose]: () => {} }
  }
}

async function replyTo(request: Uint8Array, tpm: Tpm): Promise<TpmReply> {
  const nonce = nonceIn(request)
  if (nonce === null) return { kind: 'failed', reason: `ask with ${tpmNonceBytes} bytes in base64url, and LF` }
  const answer = await tpm.evidence(nonce)
  if (answer.kind === 'evidence') return { kind: 'evidence', evidence: toBase64Url(answer.bytes) }
  return answer.kind === 'none' ? answer : { kind: 'failed', reason: answer.reason.slice(0, 1_024) }
}

function nonceIn(request: Uint8Array): Uint8Array | null {
  if (request.length !== requestBytes || request.at(-1) !== 0x0a || request.some(byte => byte >= 0x80)) return null
  const nonce = fromBase64Url(fromUtf8(request.subarray(0, requestBytes - 1)))
  return nonce?.length === tpmNonceBytes ? nonce : null
}

type Writing = { data: { rest: Uint8Array }; write: (bytes: Uint8Array) => number }

function drain(socket: Writing): void {
  const { rest } = socket.data
  if (rest.length === 0) return
  const written = socket.write(rest)
  if (written > 0) socket.data.rest = rest.subarray(written)
}
