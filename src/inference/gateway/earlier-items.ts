// The earlier responses that a completion builds on, and the storing of its own response. Effects: the memory of
// responses.

import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { type EarlierIds, fieldOf, notBound } from '../dialects/responses/earlier.ts'
import { estimateTokens, type RequestAccount } from '../metering/account.ts'
import type { Earlier, ResponseHead } from '../openai/dialect.ts'
import type { EncryptedExchange } from '../types.ts'
import type { EnteredCaller } from './enter.ts'
import { digestOf, earlierOf, keptText, type ResponseMemory, roomOf } from './response-memory.ts'

type Deps = { readonly responses: ResponseMemory; readonly log: Logger }

export type EarlierRequest = {
  /** The request's id. */
  readonly id: string
  readonly caller: Pick<EnteredCaller, 'organizationId' | 'keyDigest'>
  readonly account: Pick<RequestAccount, 'reserveTokens'>
  /** Null for a plain request. */
  readonly exchange: Pick<EncryptedExchange, 'isBound'> | null
  /** Reserves memory for the items that the request contains or names, until an upstream has them. Throws BusyFault. */
  readonly takeRoom: (bytes: number) => void
}

type FoundEarlier = {
  readonly earlier: Earlier
  /** Field that names responses of a model inside the attestation; null if none does. */
  readonly insideField: string | null
}

/**
 * Loads the earlier responses that the request builds on. Faults: those of `earlierOf`; invalid_request if the sealed
 * body is not bound; BusyFault.
 */
export async function findEarlier(
  { responses: memory }: Deps,
  { id, caller, account, exchange, takeRoom }: EarlierRequest,
  ids: EarlierIds,
): Promise<FoundEarlier> {
  if (isUnbound(exchange)) throw notBound(fieldOf(ids))
  const by = { keyDigest: caller.keyDigest, request: id }
  const { earlier, isInside } = await earlierOf(
    {
      memory,
      by,
      reserve: async survey => {
        await account.reserveTokens(estimateTokens(survey.chars))
        takeRoom(roomOf(survey))
      },
    },
    ids,
  )
  return { earlier, insideField: isInside ? fieldOf(ids) : null }
}

/** Reports whether anything is kept of the response to the request. */
export function keepsItems({ responses }: Deps, { exchange }: Pick<EarlierRequest, 'exchange'>): boolean {
  return responses.isOn && !isUnbound(exchange)
}

/**
 * Returns whose prompt cache a request may share: that of its key. A sealed body that is not bound may have been copied
 * from another client and sent again under this key, so it shares no cache with other requests.
 */
export function cacheOwnerOf(
  { caller, exchange }: Pick<EarlierRequest, 'exchange'> & { readonly caller: Pick<EnteredCaller, 'keyDigest'> },
  random: RandomBytes,
): string {
  return isUnbound(exchange) ? random(32).toHex() : caller.keyDigest
}

/** Reports whether the request is sealed and does not prove which key its client meant. */
function isUnbound(exchange: EarlierRequest['exchange']): boolean {
  return exchange !== null && !exchange.isBound
}

type KeeperOptions = {
  /** The response's id. */
  readonly id: string
  /** Whether no model outside the attestation may answer the request. */
  readonly isInside: boolean
}

/** Returns the function that stores this response; null if it is not stored. */
export function keeperOf(deps: Deps, admitted: EarlierRequest, { id, isInside }: KeeperOptions): ResponseHead['keep'] {
  if (!keepsItems(deps, admitted)) return null
  const { responses, log } = deps
  const { organizationId, keyDigest } = admitted.caller
  const request = admitted.id
  // The host can read the path of a request that retrieves a response, and can get the key.
  const isShown = admitted.exchange === null
  return items => {
    const kept = keptText(items, { isInside, isShown })
    if (kept !== null) responses.keep(digestOf(id), { organizationId, keyDigest, request, ...kept })
    else log.debug('a response is too long to be kept', { request })
  }
}
