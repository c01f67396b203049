// How comments read: which openings and phrases they do not have, and how long a line may be. Pure, but as a program:
// `bun test/meta/words.ts PATH…` lists the faults of the files below these paths.

import { codeOf } from './source.ts'
import { readTree, type Tree } from './tree.ts'

export const commentColumnsMax = 120

/** A sentence begins with its subject, its verb or a condition, never with a pronoun that leaves the subject out. */
const opening =
  /(?:^|[.:;!?] )(?:Of|What|Who|Whoever|Whatever|Whose|Whom|(?:That|Those|These) (?:of|that|who|which|are|were|have|can|may|must)) /
const told = /\b(?:is|are|was|were|be|been|being|gets?|get) told\b|\btold (?:of|to|by)\b/
const oneAsName = /(?<![.\w$])one\b(?!\s*:)/

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
  const tree = readTree('src/**/*.{ts,tsx}', 'scripts/**/*.ts', 'test/**/*.ts')
  const faults = wordFaults(new Map([...tree].filter(([path]) => wanted.some(prefix => path.startsWith(prefix)))))
  process.stdout.write(faults.map(fault => `${fault}\n`).join(''))
  process.exit(faults.length === 0 ? 0 : 1)
}
