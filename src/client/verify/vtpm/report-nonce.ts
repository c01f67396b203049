// Whether an Azure report was made for the caller's nonce: as of version 2 of Confidential Containers, the report
// covers the nonce as user data, and some machines do the same under an older number. Pure.

import { parsedJson } from '../../../attest/encoding/json.ts'
import { parsed, wellFormed } from '../../../attest/malformed.ts'
import { type Check, fail, notChecked, pass } from '../../../attest/verdict.ts'
import { concat, equalConstantTime } from '../../../base/bytes.ts'
import { pastedHex } from '../../../terminal/hex.ts'
import type { VtpmBundle } from './bundle.ts'

const name = 'vtpm-report-nonce'
/** Azure's field; a shorter nonce is followed by zeros. */
const userDataBytes = 64

/**
 * Checks `user-data` of the runtime data, which the report covers (`vtpm-report-data`). `version`: null if the evidence
 * is in single files.
 */
export function reportNonceCheck(
  version: VtpmBundle['version'] | null,
  { runtimeData, nonce }: { readonly runtimeData: Uint8Array; readonly nonce: Uint8Array },
): Check {
  const found = parsed(() => userDataOf(runtimeData))
  const expected = concat(nonce, new Uint8Array(Math.max(0, userDataBytes - nonce.length)))
  if (found.ok && equalConstantTime(found.value, expected)) return pass(name, 'the report is for this nonce')
  if (version === null || version < 2) {
    return notChecked(name, 'the report is not for this nonce: it can be older than the quote', false)
  }
  return fail(name, found.ok ? 'user-data of the runtime data is not the nonce and zeros' : found.reason)
}

function userDataOf(runtimeData: Uint8Array): Uint8Array {
  const claims = parsedJson('runtime data', runtimeData)
  const isNamed = typeof claims === 'object' && claims !== null && 'user-data' in claims
  const bytes = isNamed && typeof claims['user-data'] === 'string' ? pastedHex(claims['user-data']) : null
  wellFormed(bytes !== null, 'runtime data: user-data is missing or not bytes in hexadecimal')
  return bytes
}
