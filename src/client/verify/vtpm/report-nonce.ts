// Whether an Azure report was made for the caller's nonce: in version 2 of Confidential Containers, the report covers
// the nonce as user data. Pure.

import { parsedJson } from '../../../attest/encoding/json.ts'
import { parsed, wellFormed } from '../../../attest/malformed.ts'
import { type Check, check, fail, notChecked } from '../../../attest/verdict.ts'
import { concat, equalConstantTime } from '../../../base/bytes.ts'
import { pastedHex } from '../../../terminal/hex.ts'
import type { VtpmBundle } from './bundle.ts'

const name = 'vtpm-report-nonce'
/** Azure's field; a shorter nonce is followed by zeros. */
const userDataBytes = 64

/** Checks `user-data` of the runtime data, which the report covers (`vtpm-report-data`). */
export function reportNonceCheck(
  { version }: VtpmBundle,
  { runtimeData, nonce }: { readonly runtimeData: Uint8Array; readonly nonce: Uint8Array },
): Check {
  const open = 'before version 2 a report is for no nonce: it can be older than the quote'
  if (version < 2) return notChecked(name, open, false)
  const found = parsed(() => userDataOf(runtimeData))
  if (!found.ok) return fail(name, found.reason)
  const expected = concat(nonce, new Uint8Array(Math.max(0, userDataBytes - nonce.length)))
  const isSame = equalConstantTime(found.value, expected)
  return check(name, isSame, 'user-data of the runtime data is not the nonce and zeros', 'it was made for this nonce')
}

function userDataOf(runtimeData: Uint8Array): Uint8Array {
  const claims = parsedJson('runtime data', runtimeData)
  const isNamed = typeof claims === 'object' && claims !== null && 'user-data' in claims
  const bytes = isNamed && typeof claims['user-data'] === 'string' ? pastedHex(claims['user-data']) : null
  wellFormed(bytes !== null, 'runtime data: user-data is missing or not bytes in hexadecimal')
  return bytes
}
