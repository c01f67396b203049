// Words of a service that refuses, for people. Pure.

import { fromUtf8 } from '../base/bytes.ts'
import { resultOr } from '../base/result-or.ts'

const bytesMax = 4_096

/**
 * Returns code and message of an error document, if the body is one; otherwise `otherwise`. They are unverified text.
 */
export function refusalIn(body: Uint8Array, otherwise: string): string {
  return resultOr(() => {
    const { error } = JSON.parse(fromUtf8(body.subarray(0, bytesMax)))
    return `${error.code}: ${error.message}`
  }, otherwise)
}

/** Unverified text of at most 500 characters; null if it is absent. */
type Problem = { readonly message: string | null; readonly requestId: string | null }

/** Returns message and request id of an error document; both are null if the body is not one. */
export function problemIn(body: Uint8Array): Problem {
  const document: unknown = resultOr(() => JSON.parse(fromUtf8(body.subarray(0, 2 * bytesMax))), null)
  const error: unknown = Reflect.get(Object(document), 'error')
  const text = (value: unknown) => (typeof value === 'string' ? value.slice(0, 500) : null)
  return {
    message: text(Reflect.get(Object(error), 'message')),
    requestId: text(Reflect.get(Object(document), 'request_id')),
  }
}
