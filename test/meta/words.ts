// How comments and texts for users read: which openings and phrases they avoid, and how long a line may be. Pure,
// except as a program: `bun test/meta/words.ts PATH…` lists the faults of the files below these paths.

import { codeOf } from './source.ts'
import { readTree, type Tree } from './tree.ts'

export const commentColumnsMax = 120

/** A sentence begins with its subject, its verb or a condition, never with a pronoun that leaves the subject out. */
const opening =
  /(?:^|[.:;!?] )(?:Of|What|Who|Whoever|Whatever|Whose|Whom|(?:That|Those|These) (?:of|that|who|which|are|were|have|can|may|must)) /
const told = /\b(?:is|are|was|were|be|been|being|gets?|get) told\b|\btold (?:of|to|by)\b/
const oneAsName = /(?<![.\w$])one\b(?!\s*:)/

/**
 * Files whose texts for users are clean: string literals, text between tags, and Markdown. The list grows, and a file
 * on it stays clean. Pages for developers are missing.
 */
export const plainFiles: readonly string[] = [
  'README.md',
  'SECURITY.md',
  'src/{cli,client,terminal}/**/*.{ts,md}',
  'src/console/**/*.{ts,tsx}',
  'src/{appliance,attest,backup,base,builder,builds,config,contract,enclave,enclave-host,fleet,guest}/**/*.ts',
  'src/{host,http,inference,instances,linux,operator,store,transparency,upgrade,verifier,vm}/**/*.ts',
]

/** SQL of migrations that have run is never changed, and users do not see it. */
export const plainIgnored = /^src\/(?:fleet|store)\/migrations\//

export const markdownColumnsMax = 100
export const cellColumnsMax = 80
export const paragraphLinesMax = 5

/** The word list of the guide: a program says, knows and wants nothing, and a sentence names its subject. */
const dialect: readonly RegExp[] = [
  /\b(?:whoever|whomever|nobody|somebody)\b/i,
  /\b(?:anew|news)\b/i,
  /\bin the place of\b/i,
  /\b(?:says|tells|knows|asks|wants|believes)\b/i,
  /\b(?:is|are|was|were|be|been|being|gets?) (?:told|said|believed|asked)\b/i,
  /\bas (?:many|much) as may\b/i,
  /\b(?:vouches|vouched) for\b/i,
  /\b(?:marks of a merge|does not answer any more|which is the limit)\b/i,
  /^(?:Null|Absent):/,
]

/**
 * Words and openings that no comment of the product uses: a comment names its subject, a doc comment begins with a verb
 * before it names its Faults, and programs do not say, know or want. Names in backticks are not words: the user
 * `nobody` is one of Linux.
 */
const commentDialect: readonly RegExp[] = [
  /^(?:It|Its|So|As) /,
  /^(?:Fault |Faults?:)/,
  /(?:^|[.,:;] )[Ee]lse\b/,
  /\b(?:whoever|whomever|nobody|somebody)\b/i,
  /\b(?:anew|news)\b/i,
  /\bin the place of\b/i,
  /\b(?:says|tells|knows|asks|wants|believes)\b/i,
  /\b(?:is|are|was|were|be|been|being|gets?) (?:told|said|believed|asked)\b/i,
  /\b(?:null|undefined|true|false|empty|absent|left out) where\b/i,
  /\bPure but for\b/,
  /\bLeft out:/,
  /\bLikewise\b|\bAs above[;.]/,
  /(?:^|[.;] )(?:[Nn]ull|Absent|Undefined|False|True): /,
]

/** Comments that keep such a word, each with its reason. A text that no longer occurs is a fault. */
export const commentExceptions: readonly PlainException[] = []

/** Texts that keep a word of the list, each with its reason. A text that no longer occurs is a fault. */
export const plainExceptions: readonly PlainException[] = [
  {
    path: 'src/appliance/pool.ts',
    text: 'asks this host for names',
    reason: 'part of the stored shape of a warm VM: another text replaces every warm VM at an upgrade',
  },
  {
    path: 'src/attest/provenance/slsa.ts',
    text: 'the first level wants L2',
    reason: 'in signed provenance, which is on the wire',
  },
  {
    path: 'src/attest/provenance/slsa.ts',
    text: 'which the third level wants',
    reason: 'in signed provenance, which is on the wire',
  },
]

/** A type names a thing. These say that something happened, and each has meant several things at a time. */
const participles =
  /\b(?:type|interface|class)\s+(?:Asked|Found|Held|Kept|Known|Told|Said|Heard|Taken|Wanted|Shown|Made|Given|Placed?|Tried)\b/g

/** Words of our own that have had the field's name since: declarations with the old one are faults. */
const retired =
  /\b(?:type|interface|class|function|const|let)\s+(?:Wish(?:es)?|News|news|Books|Desk|Wants?|Places|Ages|KeptTexts|TurnEnd|Beside|tryOut|passedOn|handleTwice|overUpstreams|misfit|lookAt[A-Z]\w*|VmGateways|ServedGateway|Gateway(?:Service|Supervisor|Session)|(?:list|move)Gateways?)\b/g

/** Declarations that keep such a name, each with its reason. */
export const nameExceptions: readonly PlainException[] = []

/** Folders beside each other whose names differ by one letter, each pair with its reason. */
export const folderExceptions: readonly PlainException[] = [
  { path: 'src/attest', text: 'verify verity', reason: 'dm-verity is the name of the field, and so is verify' },
]

export type PlainException = { readonly path: string; readonly text: string; readonly reason: string }

type Comment = { readonly line: number; readonly columns: number; readonly text: string }

/** Comment lines that are too long, and sentences in comments that read as riddles. */
export function wordFaults(tree: Tree): string[] {
  const faults: string[] = []
  for (const [path, text] of tree) {
    const lines = commentLines(text)
    for (const { line, columns } of lines) {
      if (columns > commentColumnsMax) faults.push(`${path}:${line}: a comment of ${columns} columns`)
    }
    for (const { line, text: sentence } of paragraphs(lines)) {
      const found = opening.exec(sentence) ?? told.exec(sentence)
      if (found !== null) faults.push(`${path}:${line}: "${found[0].replace(/^[.:;!?] /, '').trim()}" in a comment`)
    }
    codeOf(text)
      .split('\n')
      .forEach((code, at) => {
        // In a page's markup it is text.
        if (!path.endsWith('.tsx') && oneAsName.test(code)) faults.push(`${path}:${at + 1}: \`one\` as a name`)
      })
  }
  return faults
}

/** Phrases of the guide's list in texts for users, and Markdown that is too wide; stale exceptions. */
export function plainFaults(tree: Tree, exceptions = plainExceptions): string[] {
  const faults: string[] = []
  const unused = new Set(exceptions)
  for (const [path, text] of tree) {
    if (path.endsWith('.md')) faults.push(...layoutFaults(path, text))
    for (const { line, text: sentence } of path.endsWith('.md') ? proseOf(text) : literalsOf(text, path)) {
      const match = dialect.map(pattern => pattern.exec(sentence)).find(found => found !== null)
      if (match === undefined) continue
      const exception = exceptions.find(candidate => candidate.path === path && sentence.includes(candidate.text))
      if (exception === undefined) faults.push(`${path}:${line}: "${match?.[0]}" in "${sentence.trim()}"`)
      else unused.delete(exception)
    }
  }
  return [...faults, ...[...unused].map(({ path, text }) => `${path}: no text has the exception "${text}"`)]
}

/** Comments in the dialect of the guide's list; stale exceptions. */
export function commentFaults(tree: Tree, exceptions = commentExceptions): string[] {
  const faults: string[] = []
  const unused = new Set(exceptions)
  for (const [path, text] of tree) {
    for (const { line, text: comment } of paragraphs(commentLines(text))) {
      const prose = comment.replaceAll(/`[^`]*`/g, '`…`')
      const match = commentDialect.map(pattern => pattern.exec(prose)).find(found => found !== null)
      if (match === undefined) continue
      const exception = exceptions.find(candidate => candidate.path === path && comment.includes(candidate.text))
      if (exception === undefined) faults.push(`${path}:${line}: "${match?.[0].trim()}" in a comment`)
      else unused.delete(exception)
    }
  }
  return [...faults, ...[...unused].map(({ path, text }) => `${path}: no comment has the exception "${text}"`)]
}

/** Declarations with a retired name or a participle; sibling folders that differ by one letter; stale exceptions. */
export function nameFaults(tree: Tree, exceptions = nameExceptions, folders = folderExceptions): string[] {
  const unused = new Set([...exceptions, ...folders])
  const faults: string[] = []
  const report = (list: readonly PlainException[], path: string, text: string, fault: string) => {
    const exception = list.find(candidate => candidate.path === path && candidate.text === text)
    if (exception === undefined) faults.push(fault)
    else unused.delete(exception)
  }
  for (const [path, text] of tree) {
    const code = codeOf(text)
    for (const match of [...code.matchAll(participles), ...code.matchAll(retired)]) {
      const line = code.slice(0, match.index).split('\n').length
      report(exceptions, path, match[0], `${path}:${line}: \`${match[0]}\` as a name`)
    }
  }
  for (const [parent, names] of foldersOf(tree)) {
    for (const [first, second] of pairsOf([...names].sort())) {
      if (!differsByOneLetter(first, second)) continue
      report(
        folders,
        parent,
        `${first} ${second}`,
        `${parent}: the folders ${first} and ${second} differ by one letter`,
      )
    }
  }
  return [...faults, ...[...unused].map(({ path, text }) => `${path}: nothing has the exception "${text}"`)]
}

/** Names of folders by the folder that holds them. */
function foldersOf(tree: Tree): Map<string, Set<string>> {
  const folders = new Map<string, Set<string>>()
  for (const path of tree.keys()) {
    const parts = path.split('/').slice(0, -1)
    parts.forEach((name, at) => {
      const parent = parts.slice(0, at).join('/')
      folders.set(parent, (folders.get(parent) ?? new Set()).add(name))
    })
  }
  return folders
}

function pairsOf(names: readonly string[]): [string, string][] {
  return names.flatMap((first, at) => names.slice(at + 1).map((second): [string, string] => [first, second]))
}

/** Reports whether one letter was replaced, added or removed. */
function differsByOneLetter(a: string, b: string): boolean {
  const [short, long] = a.length <= b.length ? [a, b] : [b, a]
  if (long.length - short.length > 1) return false
  let same = 0
  while (same < short.length && short[same] === long[same]) same += 1
  return short.slice(short.length === long.length ? same + 1 : same) === long.slice(same + 1)
}

type Text = { readonly line: number; readonly text: string }

/** Parts of string literals and templates that hold a space, and in a page the text between tags. */
function literalsOf(text: string, path: string): Text[] {
  const code = codeOf(text)
  const found: Text[] = []
  const lineAt = (index: number) => text.slice(0, index).split('\n').length
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === code[at]) continue
    const isComment = /^(?:\/\/|\/\*|#!)/.test(text.slice(at, at + 2)) && !/['"`}]/.test(code[at - 1] ?? '')
    const isBlock = isComment && text[at + 1] === '*'
    const end = isComment ? endOf(text, isBlock ? '*/' : '\n', at + 2) : endOfBlank(code, at)
    const isPattern = !isComment && code[at - 1] === '/'
    if (!isComment && !isPattern && text.slice(at, end).includes(' ')) {
      found.push({ line: lineAt(at), text: text.slice(at, end) })
    }
    at = end
  }
  if (path.endsWith('.tsx')) {
    for (const match of code.matchAll(/>([^<>{}=;]*\w \w[^<>{}=;]*)</g)) {
      found.push({ line: lineAt(match.index), text: match[1] ?? '' })
    }
  }
  return found
}

function endOf(text: string, mark: string, from: number): number {
  const found = text.indexOf(mark, from)
  return found < 0 ? text.length : found + mark.length - 1
}

/** Index of the first character that the scanner did not blank: the end of a literal. */
function endOfBlank(code: string, from: number): number {
  let end = from
  while (end < code.length && /\s/.test(code[end] ?? '')) end += 1
  return end
}

/** Lines of Markdown outside of code, each paragraph as one text. */
function proseOf(text: string): Text[] {
  return blocksOf(text).map(({ line, lines }) => ({ line, text: lines.join(' ').replaceAll(/`[^`]*`/g, '`…`') }))
}

function layoutFaults(path: string, text: string): string[] {
  const lines = text.split('\n').flatMap((line, at) => {
    const cells = line.startsWith('|') ? line.split('|').map(cell => cell.trim()) : []
    const widest = Math.max(0, ...cells.map(cell => (/^-+$/.test(cell) ? 0 : cell.length)))
    return [
      ...(line.length > markdownColumnsMax ? [`${path}:${at + 1}: a line of ${line.length} columns`] : []),
      ...(widest > cellColumnsMax ? [`${path}:${at + 1}: a cell of ${widest} columns`] : []),
    ]
  })
  const long = blocksOf(text).filter(block => !block.isTable && block.lines.length > paragraphLinesMax)
  return [...lines, ...long.map(({ line, lines: { length } }) => `${path}:${line}: a paragraph of ${length} lines`)]
}

type MarkdownBlock = { readonly line: number; readonly isTable: boolean; readonly lines: string[] }

/** Paragraphs, list items and tables outside of fenced code. */
function blocksOf(text: string): MarkdownBlock[] {
  const blocks: MarkdownBlock[] = []
  let isCode = false
  let isOpen = false
  text.split('\n').forEach((line, at) => {
    const isFence = line.startsWith('```')
    if (isFence) isCode = !isCode
    if (isFence || isCode || line.trim() === '' || line.startsWith('#')) {
      isOpen = false
      if (line.startsWith('#') && !isCode) blocks.push({ line: at + 1, isTable: false, lines: [line] })
      return
    }
    const open = isOpen && !/^(?:- |\d+\. )/.test(line) ? blocks.at(-1) : undefined
    if (open === undefined) blocks.push({ line: at + 1, isTable: line.startsWith('|'), lines: [line.trim()] })
    else open.lines.push(line.trim())
    isOpen = true
  })
  return blocks
}

/** The lines of comments, without their marks. */
function commentLines(text: string): Comment[] {
  const code = codeOf(text).split('\n')
  return text.split('\n').flatMap((whole, at) => {
    const blank = code[at] ?? ''
    // A comment is what is blanked and is no string: everything behind the last character of code.
    const from = blank.trimEnd().length
    const mark = /^\s*(?:\/\*\*?|\*\/|\*(?= |$)|\/\/)\s?/.exec(whole.slice(from))
    if (mark === null) return []
    return [{ line: at + 1, columns: whole.length, text: whole.slice(from + mark[0].length).replace(/\s*\*\/$/, '') }]
  })
}

/** Lines that follow each other, as one text, so that a wrapped sentence is not taken for two. */
function paragraphs(lines: readonly Comment[]): { line: number; text: string }[] {
  const found: { line: number; text: string; last: number }[] = []
  for (const { line, text } of lines) {
    const open = found.at(-1)
    if (open !== undefined && open.last === line - 1 && text.trim() !== '' && open.text !== '') {
      open.text += ` ${text.trim()}`
      open.last = line
    } else found.push({ line, text: text.trim(), last: line })
  }
  return found
}

if (import.meta.main) {
  const wanted = process.argv.slice(2)
  const tree = readTree('*.md', 'src/**/*.{ts,tsx,md}', 'scripts/**/*.ts', 'test/**/*.ts')
  const below = new Map([...tree].filter(([path]) => wanted.some(prefix => path.startsWith(prefix))))
  const code = new Map([...below].filter(([path]) => !path.endsWith('.md')))
  const faults = [
    ...wordFaults(code),
    ...nameFaults(code, [], []),
    ...commentFaults(code, []),
    ...plainFaults(below, []),
  ]
  process.stdout.write(faults.map(fault => `${fault}\n`).join(''))
  process.exit(faults.length === 0 ? 0 : 1)
}
