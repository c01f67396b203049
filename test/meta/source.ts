// Reads TypeScript source as text: what is code and what is not, imports, function lengths. Pure.
//
// TypeScript 7 has no JavaScript API and Bun's import scanner drops type-only imports, so this is a scanner of our own.
// It knows comments, strings, templates (nested) and regular expressions; it is not a parser.

export type Import = {
  readonly specifier: string
  /** `import type`: erased at run time. An inline `type` still loads the module. */
  readonly isTypeOnly: boolean
  readonly isDynamic: boolean
  readonly line: number
}

/** `lineCount`: first to last line, nested functions included, so a factory of closures is as long as it looks. */
export type FunctionSpan = { readonly line: number; readonly lineCount: number }

/** The text with comments and contents of strings, templates and patterns blanked; same length and lines. */
export const codeOf = remembered((text: string): string => {
  const out = text.split('')
  const blank = (from: number, to: number) => {
    for (let i = from; i < to && i < out.length; i += 1) if (out[i] !== '\n') out[i] = ' '
  }
  /** Brace depths at which a template's `${` is to be closed. */
  const templates: number[] = []
  let depth = 0
  let position = 0
  while (position < text.length) {
    const here = text[position]
    const two = text.slice(position, position + 2)
    if (two === '//' || (two === '#!' && position === 0)) {
      const end = endOfLine(text, position)
      blank(position, end)
      position = end
    } else if (two === '/*') {
      const found = text.indexOf('*/', position + 2)
      const end = found < 0 ? text.length : found + 2
      blank(position, end)
      position = end
    } else if (here === "'" || here === '"') {
      const end = endOfString(text, position)
      blank(position + 1, end - 1)
      position = end
    } else if (here === '`' || (here === '}' && templates.at(-1) === depth)) {
      if (here === '}') templates.pop()
      const end = endOfTemplatePart(text, position + 1)
      const opens = text.startsWith('${', end)
      blank(position + 1, end)
      if (opens) templates.push(depth)
      position = end + (opens ? 2 : 1)
    } else if (here === '/' && startsRegExp(out, position)) {
      const end = endOfRegExp(text, position)
      blank(position + 1, end - 1)
      position = end
    } else {
      if (here === '{') depth += 1
      if (here === '}') depth -= 1
      position += 1
    }
  }
  return out.join('')
})

/** Several rules read the same files: each text is scanned once. */
function remembered<Result>(scan: (text: string) => Result): (text: string) => Result {
  const results = new Map<string, Result>()
  return text => results.getOrInsertComputed(text, scan)
}

const clause = String.raw`(?:(?!\b(?:import|export)\b)[\w$*{},\s])*?`
const staticImport = new RegExp(
  String.raw`(?<![.\w$])(?:import|export)\b(\s+type\b(?!\s*(?:,|from\b)))?${clause}\bfrom\s*(['"])`,
  'g',
)
const bareImport = /(?<![.\w$])import\s*(['"])/g
const dynamicImport = /(?<![.\w$])(?:import|require)\s*\(\s*(['"`])?/g

/** Every import and re-export, in order. A dynamic import of something computed has the specifier ''. */
export const importsOf = remembered((text: string): readonly Import[] => {
  const code = codeOf(text)
  const lineAt = (index: number) => code.slice(0, index).split('\n').length
  const quoted = (end: number) => text.slice(end, code.indexOf(code[end - 1] ?? '', end))
  const found: (Import & { index: number })[] = []
  for (const match of code.matchAll(staticImport)) {
    const end = match.index + match[0].length
    found.push({
      index: match.index,
      specifier: quoted(end),
      isTypeOnly: match[1] !== undefined,
      isDynamic: false,
      line: lineAt(match.index),
    })
  }
  for (const match of code.matchAll(bareImport)) {
    const end = match.index + match[0].length
    found.push({
      index: match.index,
      specifier: quoted(end),
      isTypeOnly: false,
      isDynamic: false,
      line: lineAt(match.index),
    })
  }
  for (const match of code.matchAll(dynamicImport)) {
    const end = match.index + match[0].length
    const specifier = match[1] === undefined ? '' : quoted(end)
    found.push({ index: match.index, specifier, isTypeOnly: false, isDynamic: true, line: lineAt(match.index) })
  }
  return found.sort((a, b) => a.index - b.index).map(({ index: _index, ...item }) => item)
})

const functionStart =
  /(?:\bfunction\b.*|=>\s*\(?|^\s*(?:(?:async|static|public|private|protected|override|get|set)\s+)*\*?#?[\w$]+(?:<.*>)?\(.*\).*|^\s*\).*)\{$/
const notFunction = /^\s*(?:\}\s*)?(?:if|for|while|switch|catch|do|else|try|with)\b/

/** Functions whose body opens at the end of a line, as the formatter lays them out, to the closing brace. */
export function functionsOf(text: string): FunctionSpan[] {
  const lines = codeOf(text).split('\n')
  return lines.flatMap((line, start) => {
    if (!functionStart.test(line.trimEnd()) || notFunction.test(line)) return []
    const indent = indentOf(line)
    const end = lines.findIndex((later, i) => i > start && later.trim() !== '' && indentOf(later) <= indent)
    return end > 0 ? [{ line: start + 1, lineCount: end - start + 1 }] : []
  })
}

/** Number of lines, without a last empty one. */
export function lineCountOf(text: string): number {
  return text.replace(/\n$/, '').split('\n').length
}

function indentOf(line: string): number {
  return line.length - line.trimStart().length
}

function endOfLine(text: string, from: number): number {
  const end = text.indexOf('\n', from)
  return end < 0 ? text.length : end
}

function endOfString(text: string, from: number): number {
  for (let i = from + 1; i < text.length; i += 1) {
    if (text[i] === '\\') i += 1
    else if (text[i] === text[from] || text[i] === '\n') return i + 1
  }
  return text.length
}

/** Where a template's text stops: at its closing backtick or at the next `${`. */
function endOfTemplatePart(text: string, from: number): number {
  for (let i = from; i < text.length; i += 1) {
    if (text[i] === '\\') i += 1
    else if (text[i] === '`' || text.startsWith('${', i)) return i
  }
  return text.length
}

const wordBeforeRegExp = /\b(?:return|typeof|case|in|of|do|else|void|delete|throw|new|await|yield|instanceof)$/

/** A slash divides after a value and opens a regular expression anywhere else. */
function startsRegExp(out: readonly string[], at: number): boolean {
  let i = at - 1
  while (i >= 0 && /\s/.test(out[i] ?? '')) i -= 1
  if (i < 0) return true
  const before = out[i] ?? ''
  if (!/[\w$)\]}'"`]/.test(before)) return true
  if (!/\w/.test(before)) return false
  return wordBeforeRegExp.test(out.slice(Math.max(0, i - 12), i + 1).join(''))
}

function endOfRegExp(text: string, from: number): number {
  let inClass = false
  for (let i = from + 1; i < text.length; i += 1) {
    if (text[i] === '\\') i += 1
    else if (text[i] === '\n') return i
    else if (text[i] === '[') inClass = true
    else if (text[i] === ']') inClass = false
    else if (text[i] === '/' && !inClass) return i + 1
  }
  return text.length
}
