// Text from elsewhere, made safe to print. Pure.

/** Safe on a terminal and in a log: control characters, which could move the cursor or retitle the window, are shown as `\x1b`. */
export function harmless(text: string): string {
  return text.replace(CONTROL, char => `\\x${(char.codePointAt(0) ?? 0).toString(16).padStart(2, '0')}`)
}

/** C0 except tab, LF and a CR before an LF; DEL; C1 (ECMA-48 5.2, 5.3). */
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)/g
