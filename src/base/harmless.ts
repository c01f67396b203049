// Text from elsewhere, made safe to print. Pure.

/**
 * Safe on a terminal and in a log. Control characters, which could move the cursor or retitle the window, become
 * `\x1b`; invisible characters that change the text around them, such as its direction, become `\u202e`.
 */
export function harmless(text: string): string {
  return text.replace(CONTROL, shown).replace(UNSEEN, shown)
}

/** The same on one line. */
export function harmlessLine(text: string): string {
  return harmless(text.replace(/[\r\n\t]+/g, ' '))
}

/** C0 except tab, LF and a CR before an LF; DEL; C1 (ECMA-48 5.2, 5.3). */
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)/g

/** Format characters (Cf), line and paragraph separators, halves of surrogate pairs (Unicode 16, 4.5; UAX 9). */
const UNSEEN = /[\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu

function shown(char: string): string {
  const code = char.codePointAt(0) ?? 0
  const digits = code.toString(16)
  if (code <= 0xff) return `\\x${digits.padStart(2, '0')}`
  return code <= 0xffff ? `\\u${digits.padStart(4, '0')}` : `\\u{${digits}}`
}

/** JSON text with invisible characters as escapes, which every reader of JSON takes for the same. */
export function harmlessJson(text: string): string {
  return text.replace(/[\x7f-\x9f\p{Cf}\p{Zl}\p{Zp}]/gu, char =>
    [...Array(char.length).keys()].map(at => `\\u${char.charCodeAt(at).toString(16).padStart(4, '0')}`).join(''),
  )
}
