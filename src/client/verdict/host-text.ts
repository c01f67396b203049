// Names and addresses chosen by a host, for a line of a verdict: none can end the line, fill it, or look like other
// words of it. Pure.

/** Longest name that is shown whole. */
const nameCharsMax = 64
/** Longest address that is shown whole. */
const addressCharsMax = 256
const listedMax = 8

/** Returns printable ASCII unchanged; anything else, and longer text, as a JSON string without blanks. */
export function hostName(text: string): string {
  return shown(text, nameCharsMax)
}

export function hostAddress(text: string): string {
  return shown(text, addressCharsMax)
}

export function hostNames(names: readonly string[]): string {
  const more = names.length - listedMax
  return `${names.slice(0, listedMax).map(hostName).join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

function shown(text: string, charsMax: number): string {
  if (/^[\x21-\x7e]+$/.test(text) && text.length <= charsMax) return text
  const cut = text.length <= charsMax ? text : `${text.slice(0, charsMax)}…`
  return JSON.stringify(cut).replaceAll(' ', '\\u0020')
}

/** Returns at most as many lines as a person reads; the last one then counts the others. */
export function listed(lines: readonly string[], what: string): string[] {
  if (lines.length <= listedMax) return [...lines]
  const shownLines = lines.slice(0, listedMax - 1)
  return [...shownLines, `and ${lines.length - shownLines.length} more ${what}; --verbose prints each`]
}
