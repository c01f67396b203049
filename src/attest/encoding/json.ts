// JSON on which trust is decided: strict, as base/json.ts says, so that no name stands twice. Pure.

import { messageOf } from '../../base/fault.ts'
import { parseJson } from '../../base/json.ts'
import { Malformed } from '../malformed.ts'

const depthMax = 16

/** Throws Malformed, whose message begins with `what`. The caller limits the length. */
export function parsedJson(what: string, bytes: Uint8Array): unknown {
  try {
    return parseJson(bytes, { depthMax, what })
  } catch (cause) {
    throw new Malformed(messageOf(cause), { cause })
  }
}
