// Items that a request of the Responses API takes from earlier responses: those of the chain before it, and items
// that it names. Pure.

import { Fault } from '../../../base/fault.ts'
import { invalidField, isObject, type JsonObject } from '../../json-text.ts'
import type { Earlier } from '../../openai/dialect.ts'

export const NOTHING_EARLIER: Earlier = { items: [], named: new Map() }

/** Characters that are kept of one response, its request's items included. */
export const keptCharsMax = 1_048_576

export type EarlierIds = { readonly previous: string | null; readonly named: readonly string[] }

export function namesEarlier({ previous, named }: EarlierIds): boolean {
  return previous !== null || named.length > 0
}

/** Returns the field of a request that names earlier responses. */
export function fieldOf({ previous }: Pick<EarlierIds, 'previous'>): string {
  return previous === null ? 'input' : 'previous_response_id'
}

/** Items that one request may name. */
const namedMax = 4_096

/** Returns the ids that a request names. Ignores an invalid body, which the translation refuses. */
export function idsIn({ previous_response_id: previous, input }: JsonObject): EarlierIds {
  const named: string[] = []
  if (Array.isArray(input)) {
    for (const item of input) {
      if (named.length < namedMax && isObject(item) && item.type === 'item_reference' && typeof item.id === 'string') {
        named.push(item.id)
      }
    }
  }
  return { previous: typeof previous === 'string' ? previous : null, named }
}

const itemIdForm = /^[a-z]{2,3}_([0-9a-f]{32})([0-9a-f]{3})$/
const responseIdForm = /^resp_([0-9a-f]{32})$/

/**
 * Returns the response that produced the item and the item's index in it; null for an id that is not of this gateway.
 */
export function placeOfItem(id: string): { readonly response: string; readonly at: number } | null {
  const [, response, at] = itemIdForm.exec(id) ?? []
  return response === undefined || at === undefined ? null : { response, at: Number.parseInt(at, 16) }
}

/** Builds the id of an item. `at`: index in the response's output. */
export function itemIdOf(tag: string, response: string, at: number): string {
  return `${tag}_${response}${at.toString(16).padStart(3, '0')}`
}

/** Returns the response's part of its id; null for an id that is not of this gateway. */
export function responseIn(id: string): string | null {
  return responseIdForm.exec(id)?.[1] ?? null
}

export function noSuchResponse(): Fault {
  return new Fault(
    'not_found',
    'previous_response_id: no such response is stored for this key. Responses are stored for minutes, and never with store: false. Send the earlier items in input.',
    { param: 'previous_response_id' },
  )
}

export function noSuchItem(path: string): Fault {
  return new Fault(
    'not_found',
    `${path}.id: no such item is stored for this key. Items are stored for minutes, and never with store: false. Send the item itself.`,
    { param: `${path}.id` },
  )
}

/** Returns the fault of too many earlier responses. `most`: description of the limit for the error message. */
export function tooMuchEarlier(field: string, most: string): Fault {
  return new Fault(
    'body_too_large',
    `${field} names earlier responses of more than ${most} together; send the items that the model needs in input.`,
    { param: field },
  )
}

/** Refuses items of a model inside the attestation if the chosen model may be answered outside. */
export function mustStayInside(field: string): Fault {
  return invalidField(
    field,
    'names responses of a model inside the measured VM, but upstreams outside of it may answer this model: choose a model that runs inside, or send the items in input.',
  )
}

/** Refuses a sealed request that does not prove which key its client meant. */
export function notBound(field: string): Fault {
  return invalidField(
    field,
    'names earlier responses, which an encrypted request can do only if its body is bound to its key: use attestedFetch of the strongroom package, or send the items in input.',
  )
}
