// Forbidden texts and code in the project's files, and the goal that every test must state. Pure.

import { codeOf } from './source.ts'
import type { Tree } from './tree.ts'

/** Words are put together from parts so that this file does not find itself. */
const unfinished = new RegExp(`\\b(?:${['TO' + 'DO', 'FIX' + 'ME', 'X' + 'XX', 'HA' + 'CK'].join('|')})\\b`)
const silenced = new RegExp(`@ts-(?:${['ig' + 'nore', 'no' + 'check', 'expect-' + 'error'].join('|')})\\b`)
/** Hosts that serve packages, by how such hosts are called. Reserved example names are nobody's host. */
const packageHost =
  /\b(?:registry|packages?|mirrors?|deb|ftp|pypi|crates|snapshot|archive|security|proxy|files|static)\.(?!example\b|invalid\b|test\b|localhost\b)[a-z0-9-]+\.(?:org|com|io|net|dev)\b/i
/** The login user's home inside a guest is no path of a machine. */
const home = /(?:^|[\s'"`(=])\/(?:home|Users)\/(?!agent\b)[a-z]/

/** Lines that name a package host or a path of one machine, or that say the work is not finished. */
export function textFaults(tree: Tree, ownPaths: readonly string[]): string[] {
  const faults: string[] = []
  for (const [path, text] of tree) {
    text.split('\n').forEach((line, i) => {
      const where = `${path}:${i + 1}: `
      if (unfinished.test(line)) faults.push(`${where}unfinished work`)
      if (silenced.test(line)) faults.push(`${where}a silenced type error`)
      if (packageHost.test(line)) faults.push(`${where}the name of a package host`)
      if (home.test(line) || ownPaths.some(own => namesPath(line, own))) faults.push(`${where}a path of one machine`)
    })
  }
  return faults
}

/** Whether the path begins there, rather than being the end of a relative one. */
function namesPath(line: string, path: string): boolean {
  const at = line.indexOf(path)
  return at >= 0 && !/[\w.]/.test(line.charAt(at - 1))
}

/** Casts to any, and tests that are narrowed down or left out in silence. */
export function codeFaults(tree: Tree): string[] {
  const faults: string[] = []
  for (const [path, text] of tree) {
    const code = codeOf(text)
    code.split('\n').forEach((line, i) => {
      const where = `${path}:${i + 1}: `
      if (/\bas\s+any\b|<any>|:\s*any\b/.test(line)) faults.push(`${where}any`)
      if (!/\.test\.ts$/.test(path)) return
      if (/\b(?:test|it|describe)(?:\.\w+)*\.only\b/.test(line)) faults.push(`${where}.only`)
      if (/\b(?:test|it|describe)(?:\.\w+)*\.(?:skip|todo|failing)\b/.test(line)) faults.push(`${where}a test left out`)
    })
    const conditional = /\b(?:test|it|describe)(?:\.\w+)*\.(?:skipIf|todoIf|if)\b/.test(code)
    if (conditional && !/\b(?:skipUnless|needsRoot|needsHost)\b|not run: /.test(text)) {
      faults.push(`${path}: a test left out on a condition without printing \`not run: REASON\``)
    }
  }
  return faults
}

const testStart = /^\s*(?:test|it)(?:\.\w+)*\s*[(<`]/
const describeStart = /^\s*describe(?:\.\w+)*\s*[(<`]/

/** Tests without a goal: above, in the body's first line, as `goal: …` in the title, or for the describe block. */
export function goalFaults(tree: Tree): string[] {
  const faults: string[] = []
  for (const [path, text] of tree) {
    const lines = text.split('\n')
    const code = codeOf(text).split('\n')
    const tests = code.flatMap((line, i) => (testStart.test(line) ? [i] : []))
    if (tests.length === 0) faults.push(`${path}: no test in a test file`)
    for (const at of tests) {
      const blocks = enclosingBlocks(code, at)
      if (!hasGoal(lines, at) && !blocks.some(start => hasGoalAbove(lines, start)))
        faults.push(`${path}:${at + 1}: no \`// Goal:\``)
    }
  }
  return faults
}

function hasGoal(lines: readonly string[], at: number): boolean {
  // Where the arguments stand on lines of their own, the title is on the next one.
  const start = lines[at] ?? ''
  const title = start.endsWith('(') ? `${start}${(lines[at + 1] ?? '').trim()}` : start
  const isInTitle = /^\s*(?:test|it)[^'"`]*['"`][Gg]oal: \S/.test(title)
  return isInTitle || hasGoalAbove(lines, at) || isGoal(lines[bodyOf(lines, at)])
}

/** First line of a test's body: the next one, or the one after the arrow where arguments have lines of their own. */
function bodyOf(lines: readonly string[], at: number): number {
  if (!/\($/.test(lines[at] ?? '')) return at + 1
  const arrow = lines.slice(at, at + argumentLinesMax).findIndex(line => /=> \{$/.test(line))
  return arrow < 0 ? at + 1 : at + arrow + 1
}

const argumentLinesMax = 5

/** The first line of the comment right above says a goal. */
function hasGoalAbove(lines: readonly string[], at: number): boolean {
  let top = at
  while (top > 0 && /^\s*\/\//.test(lines[top - 1] ?? '')) top -= 1
  return top < at && isGoal(lines[top])
}

function isGoal(line: string | undefined): boolean {
  return /^\s*\/\/ Goal: \S/.test(line ?? '')
}

/** Lines on which the describe blocks around a line begin, by indentation. */
function enclosingBlocks(code: readonly string[], at: number): number[] {
  const found: number[] = []
  let indent = indentOf(code[at] ?? '')
  for (let i = at - 1; i >= 0 && indent > 0; i -= 1) {
    const line = code[i] ?? ''
    if (line.trim() === '' || indentOf(line) >= indent) continue
    indent = indentOf(line)
    if (describeStart.test(line)) found.push(i)
  }
  return found
}

function indentOf(line: string): number {
  return line.length - line.trimStart().length
}

/** Codes that no source line outside of tables of them names in quotes. `tables` are the files with such tables. */
export function unusedCodes(codes: readonly string[], tree: Tree, tables: readonly string[]): string[] {
  const texts = [...tree].map(([path, text]) => (tables.includes(path) ? withoutTables(text) : text))
  return codes.filter(code => !texts.some(text => text.includes(`'${code}'`)))
}

/** The file without its object literals `= {` to the closing brace. */
function withoutTables(text: string): string {
  return text.replace(/^export const \w+ = \{\n(?:(?!^\}).*\n)*^\}.*$/gm, '')
}
