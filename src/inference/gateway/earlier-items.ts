// A completion's body with the earlier responses that it builds on, and what is kept of its own
// response. Effects: the memory of responses.

import type { Logger } from '../../base/log.ts'
import { DIALECTS, type DialectOperation, hasDialect } from '../dialects/dialects.ts'
import { type ParsedDialect, parseDialect } from '../dialects/request.ts'
import { type EarlierIds, fieldOf, idsIn, namesEarlier, notBound } from '../dialects/responses/earlier.ts'
import { estimateTokens, type RequestAccount } from '../metering/account.ts'
import type { ResponseHead } from '../openai/dialect.ts'
import type { LongTexts } from '../openai/long-texts.ts'
import { parseRequest, readSource } from '../openai/request.ts'
import type { CompletionOperation, EncryptedExchange } from '../types.ts'
import type { EnteredCaller } from './enter.ts'
import { digestOf, earlierOf, keptText, type ResponseMemory, roomOf } from './response-memory.ts'

export type ParsedBody = Omit<ParsedDialect, 'respond'> & {
  /** Null for what needs no translation. */
  readonly respond: ParsedDialect['respond'] | null
  /** Field that names responses of a model inside the attestation; null if none does. */
  readonly insideField: string | null
}

type Deps = { readonly responses: ResponseMemory; readonly log: Logger }

export type EarlierRequest = {
  readonly operation: CompletionOperation | DialectOperation
  /** The request's. */
  readonly id: string
  readonly caller: Pick<EnteredCaller, 'organizationId' | 'keyDigest'>
  readonly account: Pick<RequestAccount, 'reserveTokens'>
  /** Null for a plain request. */
  readonly exchange: Pick<EncryptedExchange, 'isBound'> | null
  /** Holds memory for what the request has or names, until an upstream has it. BusyFault. */
  readonly takeRoom: (bytes: number) => void
}

const NONE: readonly string[] = []

export function parseBody(deps: Deps, admitted: EarlierRequest, body: Uint8Array): ParsedBody | Promise<ParsedBody> {
  const { operation } = admitted
  if (!hasDialect(operation)) {
    const parsed = parseRequest(operation, body)
    return { ...parsed, given: parsed.source.body, ignored: NONE, respond: null, insideField: null }
  }
  const source = readSource(body)
  const ids = operation === 'responses' ? idsIn(source.body) : null
  if (ids === null || !namesEarlier(ids)) return { ...parseDialect(DIALECTS[operation], source), insideField: null }
  return findEarlier(deps, admitted, ids).then(({ earlier, isInside }) => ({
    ...parseDialect(DIALECTS[operation], source, earlier),
    insideField: isInside ? fieldOf(ids) : null,
  }))
}

/** Faults: those of `earlierOf`; invalid_request if the sealed body is not bound; BusyFault. */
async function findEarlier({ responses: memory }: Deps, admitted: EarlierRequest, ids: EarlierIds) {
  const { id, caller, account, exchange, takeRoom } = admitted
  if (exchange !== null && !exchange.isBound) throw notBound(fieldOf(ids))
  const by = { keyDigest: caller.keyDigest, request: id }
  return await earlierOf(
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
}

type KeeperOptions = {
  /** The response's. */
  readonly id: string
  readonly longTexts: LongTexts | null
  /** Whether no model outside the attestation may answer the request. */
  readonly isInside: boolean
}

/** Null: nothing is kept of this response. */
export function keeperOf(
  { responses, log }: Deps,
  { id: request, caller, exchange }: EarlierRequest,
  { id, longTexts, isInside }: KeeperOptions,
): ResponseHead['keep'] {
  if (!responses.isOn || (exchange !== null && !exchange.isBound)) return null
  const { organizationId, keyDigest } = caller
  return items => {
    // Marks are no input, and what they stand for is too long to be kept.
    const kept = keptText(longTexts === null ? items : { ...items, inputText: null }, isInside)
    if (kept !== null) responses.keep(digestOf(id), { organizationId, keyDigest, request, ...kept })
    else log.debug('a response is too long to be kept', { request })
  }
}
