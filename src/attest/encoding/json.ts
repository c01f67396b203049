// Parses JSON that decides trust. Strict (base/json.ts): a duplicate name is an error. Pure.

import { messageOf } from '../../base/fault.ts'
import { parseJson } from '../../base/json.ts'
import { Malformed } from '../malformed.ts'

const depthMax = 16

/** Parses JSON. Throws Malformed, whose message begins with `what`. The caller limits the length. */
export function parsedJson(what: string, bytes: Uint8Array): unknown {
  try {
    return parseJson(bytes, { depthMax, what })
  } catch (cause) {
    throw new Malformed(messageOf(cause), { cause })
  }
}
