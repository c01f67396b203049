// On which line each key of a TOML text stands, so that a wrong value can be reported there. Pure. TOML 1.0.0.
//
// Reads text that a TOML parser has already accepted: here nothing is checked, only walked.

/** Line (from 1) per path: `tls.names`, and `tls.names.0` for elements of arrays. Tables are in it with their header's line. */
export type Lines = ReadonlyMap<string, number>

export function scanLines(text: string): Lines {
  const scanner: Scanner = { text, at: 0, line: 1, lines: new Map(), arrayLengths: new Map() }
  let table: readonly string[] = []
  for (skipBlank(scanner); scanner.at < text.length; skipBlank(scanner)) {
    if (text[scanner.at] === '[') table = readHeader(scanner)
    else readPair(scanner, table)
  }
  return scanner.lines
}

/** The line of the path, or of the nearest table that holds it; 1 when not even that is in the text. */
export function lineOf(lines: Lines, path: readonly string[]): number {
  for (let length = path.length; length > 0; length -= 1) {
    const line = lines.get(path.slice(0, length).join('.'))
    if (line !== undefined) return line
  }
  return 1
}

type Scanner = {
  readonly text: string
  at: number
  line: number
  readonly lines: Map<string, number>
  /** How many [[name]] headers there were so far. */
  readonly arrayLengths: Map<string, number>
}

function readHeader(scanner: Scanner): readonly string[] {
  const isArray = scanner.text.startsWith('[[', scanner.at)
  scanner.at += isArray ? 2 : 1
  const line = scanner.line
  let path = readKey(scanner)
  scanner.at += isArray ? 2 : 1
  if (isArray) {
    const name = path.join('.')
    const index = scanner.arrayLengths.get(name) ?? 0
    scanner.arrayLengths.set(name, index + 1)
    note(scanner, path, line)
    path = [...path, String(index)]
  }
  note(scanner, path, line)
  return path
}

function readPair(scanner: Scanner, table: readonly string[]): void {
  const line = scanner.line
  const path = [...table, ...readKey(scanner)]
  for (let length = table.length + 1; length <= path.length; length += 1) note(scanner, path.slice(0, length), line)
  if (scanner.text[scanner.at] === '=') scanner.at += 1
  skipSpace(scanner)
  readValue(scanner, path)
}

function readValue(scanner: Scanner, path: readonly string[]): void {
  const first = scanner.text[scanner.at]
  if (first === '"' || first === "'") {
    readString(scanner)
  } else if (first === '[') {
    scanner.at += 1
    for (let index = 0; toNextElement(scanner, ']'); index += 1) {
      note(scanner, [...path, String(index)], scanner.line)
      readValue(scanner, [...path, String(index)])
    }
  } else if (first === '{') {
    scanner.at += 1
    while (toNextElement(scanner, '}')) readPair(scanner, path)
  } else {
    const before = scanner.at
    skipWhile(scanner, char => !',]}#\n'.includes(char))
    // Text that is no TOML may have no value here; the walk must end on that too.
    if (scanner.at === before) advance(scanner)
  }
}

/** False behind the closing bracket, or at the end of the text. */
function toNextElement(scanner: Scanner, closing: string): boolean {
  skipBlank(scanner)
  while (scanner.text[scanner.at] === ',') {
    scanner.at += 1
    skipBlank(scanner)
  }
  if (scanner.at >= scanner.text.length) return false
  if (scanner.text[scanner.at] !== closing) return true
  scanner.at += 1
  return false
}

/** A dotted key, up to the character behind it. */
function readKey(scanner: Scanner): string[] {
  const parts: string[] = []
  for (;;) {
    skipSpace(scanner)
    const start = scanner.at
    const quote = scanner.text[start]
    if (quote === '"' || quote === "'") {
      readString(scanner)
      parts.push(unquote(scanner.text.slice(start, scanner.at)))
    } else {
      skipWhile(scanner, char => /[A-Za-z0-9_-]/.test(char))
      parts.push(scanner.text.slice(start, scanner.at))
    }
    skipSpace(scanner)
    if (scanner.text[scanner.at] !== '.') return parts
    scanner.at += 1
  }
}

function unquote(quoted: string): string {
  if (quoted.startsWith("'")) return quoted.slice(1, -1)
  try {
    return String(JSON.parse(quoted))
  } catch {
    return quoted.slice(1, -1)
  }
}

function readString(scanner: Scanner): void {
  const quote = scanner.text[scanner.at] ?? '"'
  const isLong = scanner.text.startsWith(quote.repeat(3), scanner.at)
  const end = isLong ? quote.repeat(3) : quote
  scanner.at += end.length
  while (scanner.at < scanner.text.length && !scanner.text.startsWith(end, scanner.at)) {
    if (quote === '"' && scanner.text[scanner.at] === '\\') advance(scanner)
    advance(scanner)
  }
  scanner.at += end.length
  // Up to two quotes may stand right before the closing three.
  for (let extra = 0; isLong && extra < 2 && scanner.text[scanner.at] === quote; extra += 1) scanner.at += 1
}

function note(scanner: Scanner, path: readonly string[], line: number): void {
  const name = path.join('.')
  if (!scanner.lines.has(name)) scanner.lines.set(name, line)
}

function skipSpace(scanner: Scanner): void {
  skipWhile(scanner, char => char === ' ' || char === '\t')
}

/** White space, line ends and comments. */
function skipBlank(scanner: Scanner): void {
  for (;;) {
    skipWhile(scanner, char => /\s/.test(char))
    if (scanner.text[scanner.at] !== '#') return
    skipWhile(scanner, char => char !== '\n')
  }
}

function skipWhile(scanner: Scanner, wanted: (char: string) => boolean): void {
  for (let char = scanner.text[scanner.at]; char !== undefined && wanted(char); char = scanner.text[scanner.at]) {
    advance(scanner)
  }
}

function advance(scanner: Scanner): void {
  if (scanner.text[scanner.at] === '\n') scanner.line += 1
  scanner.at += 1
}
