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
  /** The request's. */
  readonly id: string
  readonly caller: Pick<EnteredCaller, 'organizationId' | 'keyDigest'>
  readonly account: Pick<RequestAccount, 'reserveTokens'>
  /** Null for a plain request. */
  readonly exchange: Pick<EncryptedExchange, 'isBound'> | null
  /** Reserves memory for the items that the request contains or names, until an upstream has them. BusyFault. */
  readonly takeRoom: (bytes: number) => void
}

type FoundEarlier = {
  readonly earlier: Earlier
  /** Field that names responses of a model inside the attestation; null if none does. */
  readonly insideField: string | null
}

/** Faults: those of `earlierOf`; invalid_request if the sealed body is not bound; BusyFault. */
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

/** Whether anything is kept of the response to the request. */
export function keepsItems({ responses }: Deps, { exchange }: Pick<EarlierRequest, 'exchange'>): boolean {
  return responses.isOn && !isUnbound(exchange)
}

/**
 * Returns whose caches a request may share: its key's. A sealed body that is not bound may be another
 * client's, sent again under this key, so it shares with no other request.
 */
export function cacheOwnerOf(
  { caller, exchange }: Pick<EarlierRequest, 'exchange'> & { readonly caller: Pick<EnteredCaller, 'keyDigest'> },
  random: RandomBytes,
): string {
  return isUnbound(exchange) ? random(32).toHex() : caller.keyDigest
}

/** A sealed request that does not prove which key its client meant. */
function isUnbound(exchange: EarlierRequest['exchange']): boolean {
  return exchange !== null && !exchange.isBound
}

type KeeperOptions = {
  /** The response's. */
  readonly id: string
  /** Whether no model outside the attestation may answer the request. */
  readonly isInside: boolean
}

/** Null if this response is not stored. */
export function keeperOf(deps: Deps, admitted: EarlierRequest, { id, isInside }: KeeperOptions): ResponseHead['keep'] {
  if (!keepsItems(deps, admitted)) return null
  const { responses, log } = deps
  const { organizationId, keyDigest } = admitted.caller
  const request = admitted.id
  // The host reads the path of a request that retrieves a response, and it has the key.
  const isShown = admitted.exchange === null
  return items => {
    const kept = keptText(items, { isInside, isShown })
    if (kept !== null) responses.keep(digestOf(id), { organizationId, keyDigest, request, ...kept })
    else log.debug('a response is too long to be kept', { request })
  }
}
