// Signed receipts of responses: hashes the request and the response's bytes, and signs both hashes together. Pure but for the clock and the
// signatures' randomness.

import { keysDigest } from '../../attest/receipt/public-keys.ts'
import { createResponseChain, type Sha256Stream, signResponse } from '../../attest/receipt/response-sign.ts'
import type { Clock } from '../../base/clock.ts'
import type { ResponseSealer } from '../types.ts'
import type { ReceiptKeys } from './receipt-keys.ts'

export type SealerDeps = {
  readonly keys: ReceiptKeys
  readonly clock: Pick<Clock, 'nowMs'>
  /** Names of the upstreams that are workloads of the attestation: they run only when they are admitted. All others are outside of it. */
  readonly inside: ReadonlySet<string>
}

export function createResponseSealer({ keys, clock, inside }: SealerDeps): ResponseSealer {
  const digest = keysDigest(keys.publicKeys)
  return {
    begin: ({ id, model, body }) => {
      const request = newSha256()
      request.update(body)
      const requestDigest = request.digest()
      return upstream => {
        const chain = createResponseChain(newSha256)
        return {
          update: chain.update,
          finish: tokens =>
            signResponse(
              {
                requestId: id,
                model,
                upstream,
                coverage: inside.has(upstream) ? 'inside' : 'outside',
                requestDigest,
                ...chain.finish(),
                promptTokens: tokens.prompt,
                completionTokens: tokens.completion,
                issuedAt: clock.nowMs(),
                keysDigest: digest,
              },
              keys.sign,
            ),
        }
      }
    },
  }
}

function newSha256(): Sha256Stream {
  const hash = new Bun.CryptoHasher('sha256')
  return { update: bytes => hash.update(bytes), digest: () => new Uint8Array(hash.digest()) }
}
