// Finds help for a name that is no topic: the passages that the index lists, the sections and table rows with that name
// (a failure code, a check of doctor, a word of `pass`), a configuration field, or the passages that mention the word.
// Passages for clients come first. Pure.

import { configFieldText } from '../../config/reference.ts'
import { PROBLEM_NAMES } from '../../contract/admin/problems.ts'
import type { Paint } from '../../terminal/render.ts'
import { type Block, terminalText } from './markdown.ts'
import { AUDIENCES, type Audience, type Passage, passagesOf } from './passages.ts'
import { TOPICS } from './topics.ts'
import { type IndexPlace, WORD_INDEX } from './word-index.ts'

const titles: Readonly<Record<Audience, string>> = {
  client: 'For clients',
  both: 'For clients and operators',
  reference: 'Reference',
  threats: 'Security',
  operator: 'For operators',
}
/** Parts that are printed for a word that only texts mention. No share: words of the help itself. */
const partsMax = 4
/** Topics that are listed below these parts. No share: words of the help itself. */
const listedMax = 8
/** Shorter words, such as `the`, name no passage by being a piece of its name. No share: words of the help itself. */
const pieceCharsMin = 4
/** A word in more topics than these leads nowhere. No share: words of the help itself. */
const mentionsMax = 20

let passagesOfAll: readonly Passage[] | null = null

/** Read at the first use, because other commands load this module too. */
function allPassages(): readonly Passage[] {
  passagesOfAll ??= TOPICS.flatMap(passagesOf)
  return passagesOfAll
}

/** Null if the name leads nowhere. `columns`: width of the terminal. */
export function findInHelp(name: string, style: { readonly columns: number; readonly paint: Paint }): string | null {
  if (!/^[\w/][\w ./-]{1,63}$/.test(name)) return null
  const problem = problemNamed(name)
  if (problem !== null)
    return `${style.paint.strong(runbookTitle)}\n\n${terminalText(problem.blocks, style).trimEnd()}\n`
  const field = configFieldText(name)
  const named = [...indexedUnder(name), ...clientsFirst(namedBy(name))]
  const mentions = named.length > 0 || field !== null ? [] : mentioning(name)
  const parts = named.length > 0 ? partsOf(named) : partsOf(mentions).slice(0, partsMax)
  const textOf = ({ audience, topic, section, blocks }: Part) => {
    const where = section === null || blocks[0]?.kind === 'heading' ? '' : `, "${section}"`
    const title = style.paint.strong(`${titles[audience]}: strongroom help ${topic}${where}`)
    return `${title}\n\n${terminalText(blocks, style)}`
  }
  const shown = new Set(parts.map(({ topic }) => topic))
  const others = [...new Set(mentions.map(({ topic }) => topic))].filter(topic => !shown.has(topic))
  const texts = [
    ...parts.filter(({ audience }) => audience !== 'operator').map(textOf),
    ...(field === null ? [] : [`Configuration field ${name}:\n\n${field}`]),
    ...parts.filter(({ audience }) => audience === 'operator').map(textOf),
    ...(others.length === 0 || others.length > listedMax ? [] : [`These topics mention it too: ${others.join(', ')}`]),
  ]
  return texts.length === 0 ? null : texts.map(text => `${text.trimEnd()}\n`).join('\n')
}

const runbookTitle = `${titles.operator}: strongroom help 3am`

/** Returns the section of the runbook for `problem NAME`. Null if there is no such problem. */
function problemNamed(words: string): Passage | null {
  const [, name] = /^problem (\w+)$/i.exec(words) ?? []
  if (!PROBLEM_NAMES.some(known => known === name)) return null
  const isTitle = ({ topic, kind, title }: Passage) =>
    topic === '3am' && kind === 'section' && (title ?? '').includes(`\`${name}\``)
  return allPassages().find(isTitle) ?? null
}

/** Null if the topic has no passage with this title. */
export function passageAt({ topic, title }: IndexPlace): Passage | null {
  return allPassages().find(passage => passage.topic === topic && passage.title === title) ?? null
}

function indexedUnder(name: string): Passage[] {
  const word = name.toLowerCase()
  const entry = WORD_INDEX.find(({ words }) => words.includes(word))
  return (entry?.places ?? []).flatMap(place => passageAt(place) ?? [])
}

/** Passages whose title has the name as inline code; without one, those whose inline code has it among other words. */
function namedBy(name: string): Passage[] {
  const text = name.replaceAll('.', '\\.')
  const named = (pattern: RegExp) =>
    allPassages().filter(({ title }) =>
      [...(title ?? '').matchAll(/`([^`\n]+)`/g)].some(([, code = '']) => pattern.test(code)),
    )
  const exact = named(new RegExp(`^${text}$`, 'i'))
  // Whole words: `no-padding` does not name `padding`.
  if (exact.length > 0 || name.length < pieceCharsMin) return exact
  return named(new RegExp(`(?<![\\w.-])${text}(?![\\w.-])`, 'i'))
}

/** Passages whose title has the word, then others that mention it. Empty if nearly every topic mentions it. */
function mentioning(name: string): Passage[] {
  const pattern = wordPattern(name)
  const titled = allPassages().filter(({ kind, title }) => kind !== 'table' && pattern.test(title ?? ''))
  const found = allPassages().filter(({ text }) => pattern.test(text))
  const isGeneral = new Set(found.map(({ topic }) => topic)).size > mentionsMax
  return isGeneral ? [] : [...clientsFirst(titled), ...clientsFirst(found)]
}

/** Matches whole words, also in the other number: `submodule` and `submodules`, `policy` and `policies`. */
function wordPattern(name: string): RegExp {
  const [, stem = name, ending = ''] = /^(.{3,}?)(ies|y|s)$/i.exec(name) ?? []
  const endings = /^(?:ies|y)$/i.test(ending) ? '(?:y|ies)' : 's?'
  return new RegExp(`(?<![\\w.-])${stem.replaceAll('.', '\\.')}${endings}(?![\\w-]|\\.\\w)`, 'i')
}

/** The list of words of `pass` comes before everything else. */
function clientsFirst(found: readonly Passage[]): Passage[] {
  const rank = ({ topic, section, audience }: Passage) =>
    topic === 'pass' && section === 'Words' ? -1 : AUDIENCES.indexOf(audience)
  return found.toSorted((a, b) => rank(a) - rank(b))
}

/** Passages of one section that follow each other. */
type Part = Pick<Passage, 'topic' | 'audience' | 'section'> & { readonly blocks: readonly Block[] }

/** Each passage once: not again below a section, paragraph or table that is there already. */
function partsOf(found: readonly Passage[]): Part[] {
  const parts: Part[] = []
  const taken: Passage[] = []
  for (const passage of found) {
    if (taken.some(other => isWithin(passage, other))) continue
    taken.push(passage)
    const { topic, audience, section } = passage
    const before = parts.at(-1)
    const isSame = before !== undefined && before.topic === topic && before.section === section
    if (isSame && passage.kind !== 'section') {
      parts[parts.length - 1] = { ...before, blocks: joined(before.blocks, passage.blocks) }
    } else parts.push({ topic, audience, section, blocks: passage.blocks })
  }
  return parts
}

function isWithin(passage: Passage, other: Passage): boolean {
  if (passage.topic !== other.topic || passage.first < other.first || passage.last > other.last) return false
  const isPiece = other.kind === 'row' || other.kind === 'item'
  return !isPiece || (passage.kind === other.kind && passage.text === other.text)
}

/** Rows of one table follow each other under one head. */
function joined(before: readonly Block[], next: readonly Block[]): Block[] {
  const last = before.at(-1)
  const [first, ...rest] = next
  if (last?.kind !== 'table' || first?.kind !== 'table' || last.head !== first.head) return [...before, ...next]
  return [...before.slice(0, -1), { ...last, rows: [...last.rows, ...first.rows] }, ...rest]
}
