// Signed receipts of responses: hashes the bytes of request and response, and signs both hashes together. Pure but for
// the clock and the signatures' randomness.

import { keysDigest } from '../../attest/receipt/public-keys.ts'
import { saltBytes } from '../../attest/receipt/response.ts'
import {
  createResponseChain,
  requestDigest,
  type Sha256Stream,
  signResponse,
} from '../../attest/receipt/response-sign.ts'
import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { ResponseSealer, SigningSeal } from '../types.ts'
import type { ReceiptKeys } from './receipt-keys.ts'

export type SealerDeps = {
  readonly keys: ReceiptKeys
  readonly clock: Pick<Clock, 'nowMs'>
  readonly random: RandomBytes
  /** Names of the upstreams that are attested, hence admitted, workloads. All others are outside the attestation. */
  readonly inside: ReadonlySet<string>
}

export function createResponseSealer({ keys, clock, random, inside }: SealerDeps): ResponseSealer {
  const digest = keysDigest(keys.publicKeys)
  return {
    begin: ({ id, model, body }) => {
      const salt = random(saltBytes)
      const asked = requestDigest(newSha256, salt, body)
      const seal = (upstream: string): SigningSeal => {
        const chain = createResponseChain(newSha256, salt)
        return {
          update: chain.update,
          finish: tokens =>
            signResponse(
              {
                requestId: id,
                model,
                upstream,
                coverage: inside.has(upstream) ? 'inside' : 'outside',
                requestDigest: asked,
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
      return { salt, seal }
    },
  }
}

function newSha256(): Sha256Stream {
  const hash = new Bun.CryptoHasher('sha256')
  return { update: bytes => hash.update(bytes), digest: () => new Uint8Array(hash.digest()) }
}
