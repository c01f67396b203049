// Signatures of receipts, made in a thread beside the serving one, some receipts in one message. Effects: a thread.

import { signClaim } from '../../attest/receipt/response-sign.ts'
import { toBase64Url } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { beginThread, type RequestThread, reasonOf } from '../../base/work/request-thread.ts'
import type { ReceiptKeys, SharedReceiptKeys } from './receipt-keys.ts'
import type { FromThread, ToThread } from './signing-thread.ts'

/** Signs the bytes of claims. Resolves to the receipts' texts, in the same order. */
export type Signing = {
  readonly signAll: (claims: readonly Uint8Array[]) => Promise<readonly string[]>
  /** Maximum number of receipts that are signed together; later ones wait for them. */
  readonly batchMax: number
}

export type SigningThread = Signing & { readonly close: () => void }

type ThreadDeps = {
  readonly keys: SharedReceiptKeys
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
  readonly log: Logger
  /** Default: `beginSigning`. */
  readonly begin?: () => RequestThread<ToThread, FromThread>
}

/** About 5 ms of signatures. Share: organizations take turns. */
const threadBatchMax = 16
const replyTimeoutMs = 10_000
export const restartPauseMs = 10_000

/**
 * Signs on threads of the runtime, one receipt after the other. Each signature costs the caller a turn of the event
 * loop.
 */
export function signHere(keys: Pick<ReceiptKeys, 'sign'>): Signing {
  const signAll = async (claims: readonly Uint8Array[]) => {
    const receipts: string[] = []
    for (const claim of claims) receipts.push(await signClaim(claim, keys.sign))
    return receipts
  }
  return { signAll, batchMax: 1 }
}

/** Starts the thread with the first receipt. While there is no thread, signs as `signHere` does. */
export function startSigning({ keys, clock, log, begin = () => beginSigning(clock) }: ThreadDeps): SigningThread {
  const here = signHere(keys)
  let thread: RequestThread<ToThread, FromThread> | null = null
  let mayBeginAtMs = Number.NEGATIVE_INFINITY
  const lose = (lost: RequestThread<ToThread, FromThread>, reason: string) => {
    lost.end(reason)
    thread = null
    mayBeginAtMs = Math.max(mayBeginAtMs, clock.monotonicMs() + restartPauseMs)
    log.error('the thread that signs receipts has ended; the serving thread signs until another one has started', {
      reason,
    })
  }
  const begun = async () => {
    if (thread !== null || clock.monotonicMs() < mayBeginAtMs) return thread
    const made = begin()
    thread = made
    const reply = await made.askInTime({ kind: 'keys', seeds: keys.seeds }, replyTimeoutMs)
    if (reply.kind !== 'ready') lose(made, reasonOf(reply))
    return thread
  }
  return {
    batchMax: threadBatchMax,
    signAll: async claims => {
      const asked = await begun()
      if (asked === null) return await here.signAll(claims)
      const reply = await asked.askInTime({ kind: 'sign', claims: claims.map(toBase64Url).join('\n') }, replyTimeoutMs)
      const receipts = reply.kind === 'signed' ? reply.receipts.split('\n') : []
      if (receipts.length === claims.length) return receipts
      lose(asked, reasonOf(reply))
      return await here.signAll(claims)
    },
    close: () => {
      mayBeginAtMs = Number.POSITIVE_INFINITY
      thread?.end('it was closed')
      thread = null
    },
  }
}

export function beginSigning(clock: Pick<Clock, 'sleep'>): RequestThread<ToThread, FromThread> {
  return beginThread({ name: 'signing', file: 'inference/attestation/signing-thread', clock })
}
