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
