// Parses JSON that decides trust. Strict (base/json.ts): a duplicate name is an error. Pure.

import { messageOf } from '../../base/fault.ts'
import { parseJson } from '../../base/json.ts'
import { Malformed, wellFormed } from '../malformed.ts'

/** Parses JSON. Throws Malformed, whose message begins with `what`. The caller limits the length. */
export function parsedJson(what: string, bytes: Uint8Array): unknown {
  try {
    return parseJson(bytes, { depthMax: 16, what })
  } catch (cause) {
    throw new Malformed(messageOf(cause), { cause })
  }
}

/** Leaves out lines that begin with //. Throws Malformed for line ends that an editor hides: fields could follow. */
export function withoutComments(text: string): string {
  wellFormed(!/\r(?!\n)|[\u2028\u2029]/.test(text), 'a line ends with CR alone, U+2028 or U+2029: end it with LF')
  return text.replaceAll(/^[ \t]*[/]{2}.*$/gm, '')
}
