// Keeps integers that are too long for a double intact through JSON.parse and JSON.stringify; ids of tools may be such.
// Pure.
//
// In a JSON value they are marked strings; in its text they become numbers again, also within a string that is itself
// JSON.

import type { Fault } from '../../base/fault.ts'
import { stringEnd } from '../../base/json.ts'

/** Characters of the private use area, which no language uses. */
const mark = '\uE000'

/** A mark costs more than a plain value. */
const markedMax = 4_096
/** Longer ones are beyond any id, and most are beyond any double. */
const digitsMax = 64

/**
 * Returns the JSON with such numbers as marked strings. Null if there are none, or if the text already contains a
 * mark, which would become a number. Throws `onTooMany` above 4,096.
 */
export function withMarkedNumbers(json: string, onTooMany: () => Fault): string | null {
  if (!/\d{16}/.test(json) || /\uE000|\\u[eE]000/.test(json)) return null
  const token = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y
  let marked = ''
  let kept = 0
  let count = 0
  for (let at = 0; at < json.length; at += 1) {
    const code = json.charCodeAt(at)
    if (code === 0x22) at = stringEnd(json, at)
    else if (code === 0x2d || (code >= 0x30 && code <= 0x39)) {
      token.lastIndex = at
      const number = token.exec(json)?.[0] ?? ''
      if (number.length <= digitsMax && /^-?\d{16,}$/.test(number) && !Number.isSafeInteger(Number(number))) {
        count += 1
        if (count > markedMax) throw onTooMany()
        marked += `${json.slice(kept, at)}"${mark}${number}"`
        kept = at + number.length
      }
      at += Math.max(0, number.length - 1)
    }
  }
  return kept === 0 ? null : marked + json.slice(kept)
}

/** Returns the JSON of a value that was parsed from marked JSON, without the marks. */
export function unmarkedJson(value: unknown): string {
  return JSON.stringify(value).replace(/(\\?)"\uE000(-?\d+)\1"/g, '$2')
}

export function hasMark(json: string): boolean {
  return json.includes(mark)
}
