// Halves of surrogate pairs in JSON: agents cut texts between two code units, and engines fail on the half. Pure.

/** Name in `x-strongroom-ignored` of a request in which U+FFFD stands for half a pair. */
export const halfPairsName = 'text.surrogates'

const replacement = '\\ufffd'

/** Returns the JSON with U+FFFD for each half of a pair. In text from UTF-8 only an escape can make one. */
export function replaceHalfPairs(json: string): string {
  if (!/\\u[dD]/.test(json)) return json
  const pieces: string[] = []
  let kept = 0
  let escapeChars = 2
  for (let at = json.indexOf('\\'); at >= 0; at = json.indexOf('\\', at + escapeChars)) {
    const half = halfAt(json, at)
    escapeChars = half === null ? 2 : 6
    if (half === null) continue
    if (half === 'high' && halfAt(json, at + 6) === 'low') {
      escapeChars = 12
      continue
    }
    pieces.push(json.slice(kept, at), replacement)
    kept = at + 6
  }
  if (pieces.length === 0) return json
  pieces.push(json.slice(kept))
  return pieces.join('')
}

/** Returns which half of a pair the escape stands for; null for other text. */
function halfAt(json: string, at: number): 'high' | 'low' | null {
  if (json.charCodeAt(at) !== 0x5c || json.charCodeAt(at + 1) !== 0x75) return null
  if (digitAt(json, at + 2) !== 0xd || digitAt(json, at + 4) < 0 || digitAt(json, at + 5) < 0) return null
  const digit = digitAt(json, at + 3)
  if (digit < 8) return null
  return digit < 0xc ? 'high' : 'low'
}

/** Returns the value of a hexadecimal digit; -1 for other text. */
function digitAt(json: string, at: number): number {
  const code = json.charCodeAt(at)
  if (code >= 0x30 && code <= 0x39) return code - 0x30
  const letter = code | 0x20
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1
}
