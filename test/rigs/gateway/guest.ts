// A gateway VM's side of the agent channel on a UNIX socket: reassembles documents by contract/vm/enclave.ts and
// otherwise sends a test's answers.

import { createHash } from 'node:crypto'
import { type EnclaveRequest, pieceBytesMax } from '../../../src/contract/vm/enclave.ts'
import type { EnclaveNext } from '../../../src/contract/vm/enclave-responses.ts'

export type GatewayGuest = Disposable & {
  readonly path: string
  /** As they came. */
  readonly requests: EnclaveRequest[]
  /** The documents that were handed over whole. */
  readonly documents: { readonly kind: string; readonly bytes: Buffer }[]
  /** Members of the answer beside `id` and `ok`; null for no answer. */
  answer: (request: EnclaveRequest) => Record<string, unknown> | null | Promise<Record<string, unknown> | null>
}

export const gatewayStatus: EnclaveNext['status'] = {
  state: 'ready',
  workload: null,
  revision: 3,
  running: 0,
  usageWaiting: 0,
  receiptKey: 'A'.repeat(43),
  problem: null,
}

const usualAnswer = (request: EnclaveRequest): Record<string, unknown> =>
  request.op === 'next'
    ? { next: { status: gatewayStatus, wants: [], usage: null } }
    : request.op === 'control'
      ? { revision: 3 }
      : request.op === 'report'
        ? { report: { metrics: 'up 1\n', metricsChars: 5, log: [] } }
        : {}

export function startGatewayGuest(path: string): GatewayGuest {
  const requests: EnclaveRequest[] = []
  const documents: GatewayGuest['documents'] = []
  const pieces = new Map<string, Buffer[]>()
  const collect = (request: EnclaveRequest): Record<string, unknown> | null => {
    if (request.op === 'piece') {
      const bytes = Buffer.from(request.bytes, 'base64')
      const held = request.offset === 0 ? [] : (pieces.get(request.document) ?? [])
      if (bytes.length > pieceBytesMax || Buffer.concat(held).length !== request.offset)
        return refusalReply('a wrong piece')
      pieces.set(request.document, [...held, bytes])
    }
    if (request.op === 'workload' || request.op === 'control') {
      const bytes = Buffer.concat(pieces.get(request.op) ?? [])
      if (createHash('sha256').update(bytes).digest('hex') !== request.sha256) return refusalReply('another document')
      documents.push({ kind: request.op, bytes })
    }
    return null
  }
  let rest = ''
  const listener = Bun.listen({
    unix: path,
    socket: {
      data: (socket, bytes) => {
        const lines = (rest + bytes.toString()).split('\n')
        rest = lines.pop() ?? ''
        for (const line of lines.filter(Boolean)) {
          const request: EnclaveRequest = JSON.parse(line)
          requests.push(request)
          const wrong = collect(request)
          void Promise.resolve(wrong ?? self.answer(request)).then(said => {
            if (said !== null) socket.write(`${JSON.stringify({ id: request.id, ok: true, ...said })}\n`)
          })
        }
      },
    },
  })
  const self: GatewayGuest = {
    path,
    requests,
    documents,
    answer: usualAnswer,
    [Symbol.dispose]: () => listener.stop(true),
  }
  return self
}

function refusalReply(message: string): Record<string, unknown> {
  return { ok: false, code: 'failed', message }
}
