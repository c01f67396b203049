// Decides whether a response gets a signed receipt, and delivers it with the response or under its path. Effects: keeps
// receipts in memory.

import { carriedReceipt, receiptHeader, saltHeader } from '../../attest/receipt/response.ts'
import { toBase64Url } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import type { TextCache } from '../../base/work/text-cache.ts'
import type { GatewaySettings } from '../../contract/vm/workload.ts'
import type { BegunSeal, Caller, ResponseSealer } from '../types.ts'
import type { ResponseHeaders } from './responses.ts'

export type ReceiptDeps = {
  /** Null if receipts cannot be signed. */
  readonly sealer: ResponseSealer | null
  readonly limits: Pick<GatewaySettings, 'responseReceipts'>
  readonly keptReceipts: Pick<TextCache, 'retentionMs' | 'keep'>
}

export const receiptsPath = '/v1/receipts/'
/** Path of the receipt, if it is not part of the response. */
export const receiptPathHeader = 'x-strongroom-receipt-path'

type SealedRequest = {
  readonly request: Pick<Request, 'headers'>
  readonly id: string
  readonly caller: Pick<Caller, 'organizationId' | 'keyDigest' | 'madeBy'>
  readonly model: string
  /** The plain body. */
  readonly body: Uint8Array
  readonly isEncrypted: boolean
}

export type RequestSeal = {
  /** Null if the response gets no receipt. */
  readonly seal: BegunSeal | null
  /** Headers of the response to this request. */
  readonly headers: ResponseHeaders
}

const NO_SEAL: RequestSeal = { seal: null, headers: {} }

/** Begins the receipt of a response. Faults: invalid_request (the header), attestation_unavailable; BusyFault. */
export function beginSeal({ sealer, limits, keptReceipts }: ReceiptDeps, sealed: SealedRequest): RequestSeal {
  const { request, id, caller, model, body, isEncrypted } = sealed
  const { organizationId, keyDigest, madeBy } = caller
  const asked = request.headers.get(receiptHeader)
  if (asked !== null && asked !== '1' && asked !== 'keep') throw wrongHeader('must be 1 or keep.')
  if (asked === null && limits.responseReceipts === 'on-request') return NO_SEAL
  if (sealer === null) throw new Fault('attestation_unavailable', 'Signed receipts are not available now.')
  const isCarried = asked !== 'keep'
  if (!isCarried && keptReceipts.retentionMs === 0)
    throw wrongHeader('must be 1: this gateway does not store receipts.')
  // A receipt fetched by its path would reveal the hashes of encrypted text.
  if (!isCarried && isEncrypted) throw wrongHeader('must be 1 for an encrypted request: its receipt is sent encrypted.')
  const { salt, seal: begun } = sealer.begin({ id, model, body, keyMadeBy: madeBy, owner: organizationId })
  const seal: BegunSeal = upstream => {
    const { update, finish } = begun(upstream)
    return {
      update,
      finish: async tokens => {
        const receipt = await finish(tokens)
        // Without the salt, a fetched receipt cannot confirm a guess at the text.
        if (!isEncrypted) keptReceipts.keep(id, { organizationId, keyDigest, text: receipt, facts: null })
        return isCarried ? carriedReceipt(receipt, salt) : null
      },
    }
  }
  if (isCarried) return { seal, headers: {} }
  return {
    seal,
    headers: { [receiptPathHeader]: `${receiptsPath}${id}`, [saltHeader.toLowerCase()]: toBase64Url(salt) },
  }
}

/** Returns Fault not_found, also for a receipt that another key requested. */
export function noSuchReceipt({ retentionMs }: Pick<TextCache, 'retentionMs'>): Fault {
  return new Fault(
    'not_found',
    `Receipt not found. Receipts are stored for at most ${retentionMs / 1000} seconds while there is room, and only for the key that requested them.`,
  )
}

function wrongHeader(problem: string): Fault {
  return new Fault('invalid_request', `The header ${receiptHeader} ${problem}`, { param: receiptHeader.toLowerCase() })
}
