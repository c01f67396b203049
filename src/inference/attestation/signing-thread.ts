// The thread that signs receipts. Both signatures of a receipt take as long as several requests, and a separate
// message per receipt would add half of that. Effects: native cryptography. signing.ts starts it.

import { parentPort } from 'node:worker_threads'
import { signClaimNow } from '../../attest/receipt/response-sign.ts'
import { fromBase64Url } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import { compileAsUsual } from '../../base/work/compiler.ts'
import type { ThreadRefusal } from '../../base/work/request-thread.ts'
import { type ReceiptKeys, receiptKeysOf } from './receipt-keys.ts'

/** One batch at a time: the next is sent after the reply. */
export type ToThread =
  | { readonly kind: 'keys'; readonly seeds: Uint8Array }
  /** Claims in base64url, a line each: texts cost the other thread less than lists of bytes. */
  | { readonly kind: 'sign'; readonly claims: string }

export type FromThread =
  | { readonly kind: 'ready' }
  /** A line for each claim. */
  | { readonly kind: 'signed'; readonly receipts: string }
  | ThreadRefusal

if (parentPort !== null) {
  compileAsUsual()
  const port = parentPort
  let keys: ReceiptKeys | null = null
  const respond = (message: ToThread): FromThread => {
    if (message.kind === 'keys') {
      keys = receiptKeysOf(message.seeds)
      return { kind: 'ready' }
    }
    const { signNow } = keys ?? {}
    if (signNow === undefined) return { kind: 'refused', reason: 'it has received no keys' }
    const receipts = message.claims.split('\n').map(text => {
      const claim = fromBase64Url(text)
      if (claim === null) throw new Error('a claim is not base64url')
      return signClaimNow(claim, signNow)
    })
    return { kind: 'signed', receipts: receipts.join('\n') }
  }
  port.on('message', (message: ToThread) => {
    try {
      port.postMessage(respond(message))
    } catch (error) {
      port.postMessage({ kind: 'refused', reason: messageOf(error) } satisfies FromThread)
    }
  })
}
