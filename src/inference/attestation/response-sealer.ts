// Signed receipts of responses: hashes the bytes of request and response, and signs both hashes together. Effects: the
// clock, the signatures' randomness, threads of the runtime.

import { keysDigest } from '../../attest/receipt/public-keys.ts'
import { encodeClaim, saltBytes } from '../../attest/receipt/response.ts'
import { createResponseChain, requestDigestTurns, type Sha256Stream } from '../../attest/receipt/response-digest.ts'
import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { FairBatches } from '../../base/work/fair-batches.ts'
import { createCooperativeQueue } from '../../base/work/turns.ts'
import { BusyFault } from '../failure.ts'
import type { ResponseSealer, SigningSeal } from '../types.ts'
import type { ReceiptKeys } from './receipt-keys.ts'
import { type Signing, signHere } from './signing.ts'

export type SealerDeps = {
  readonly keys: Pick<ReceiptKeys, 'publicKeys' | 'sign'>
  /** Default: on threads of the runtime, by `keys`. */
  readonly signing?: Signing
  readonly clock: Pick<Clock, 'nowMs'>
  readonly random: RandomBytes
  /**
   * Names of the upstreams that are attested, and therefore admitted, workloads. All others are outside the
   * attestation.
   */
  readonly inside: ReadonlySet<string>
  /** Names of the outside upstreams that must show evidence before they get a prompt. Default: none. */
  readonly attested?: ReadonlySet<string>
}

/**
 * Responses of one organization that may wait for their signatures before its next request is
 * refused.
 * Share: this limit is the share of one organization.
 */
export const unsignedMax = 256

/**
 * Signs receipts outside of the serving thread, one batch at a time, with organizations in turn. Signing takes at most
 * one processor, and an organization with many requests delays only itself.
 */
export function createResponseSealer(deps: SealerDeps): ResponseSealer {
  const { keys, clock, random, inside, attested } = deps
  const digest = keysDigest(keys.publicKeys)
  const { signAll, batchMax } = deps.signing ?? signHere(keys)
  const signatures = new FairBatches(signAll, batchMax)
  return {
    begin: ({ id, model, body, keyMadeBy, owner }) => {
      if (signatures.size(owner) >= unsignedMax) {
        throw new BusyFault(`${unsignedMax} responses wait for their receipts to be signed.`, 1)
      }
      const salt = random(saltBytes)
      const asked = inTurns(requestDigestTurns(newSha256, salt, body))
      const seal = (upstream: string): SigningSeal => {
        const chain = createResponseChain(newSha256, salt)
        return {
          update: chain.update,
          finish: async tokens => {
            const claim = encodeClaim({
              requestId: id,
              model,
              upstream,
              keyMadeBy,
              coverage: inside.has(upstream) ? 'inside' : attested?.has(upstream) ? 'outside-attested' : 'outside',
              requestDigest: await asked,
              ...chain.finish(),
              promptTokens: tokens.prompt,
              completionTokens: tokens.completion,
              issuedAt: clock.nowMs(),
              keysDigest: digest,
            })
            return await signatures.run(owner, claim)
          },
        }
      }
      return { salt, seal }
    },
  }
}

const inTurns = createCooperativeQueue()

function newSha256(): Sha256Stream {
  const hash = new Bun.CryptoHasher('sha256')
  return { update: bytes => hash.update(bytes), digest: () => new Uint8Array(hash.digest()) }
}
