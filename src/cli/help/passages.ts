// The passages of a help topic that `strongroom help NAME` can print: sections, paragraphs, items of lists, rows of
// tables. Pure.

import { type Block, readMarkdown } from './markdown.ts'
import type { Topic } from './topics.ts'

/** For whom a passage is, in the order in which passages are printed. */
export const AUDIENCES = ['client', 'both', 'reference', 'threats', 'operator'] as const
export type Audience = (typeof AUDIENCES)[number]

export type Passage = {
  readonly topic: string
  readonly audience: Audience
  /** Heading of the section that contains it; of a section its own. Null before the first. */
  readonly section: string | null
  /** `table`: a whole table. */
  readonly kind: 'section' | 'paragraph' | 'item' | 'row' | 'table'
  /** A heading, the bold words that a paragraph or item begins with, or a first cell. Null if there is none. */
  readonly title: string | null
  readonly blocks: readonly Block[]
  /** Empty for sections and tables, because their parts are passages too. */
  readonly text: string
  /** Indexes of its first and last block in the topic. */
  readonly first: number
  readonly last: number
}

/** Passages in the order of the topic. */
export function passagesOf(topic: Topic): Passage[] {
  const blocks = readMarkdown(topic.text)
  let section: string | null = null
  let audience = audienceOf(topic, '')
  return blocks.flatMap((block, first) => {
    if (block.kind === 'heading' && block.level > 1) section = block.text
    if (block.kind === 'heading' && block.level === 2) audience = audienceOf(topic, block.text)
    return passagesAt(blocks, first).map(own => ({ ...own, topic: topic.name, audience, section, first }))
  })
}

type OwnFields = Omit<Passage, 'topic' | 'audience' | 'section' | 'first'>

/** The passages that begin with this block. */
function passagesAt(blocks: readonly Block[], at: number): OwnFields[] {
  const block = blocks[at]
  if (block === undefined || block.kind === 'code') return []
  if (block.kind === 'heading') {
    if (block.level === 1) return []
    const last = endOfSection(blocks, at)
    return [{ kind: 'section', title: block.text, blocks: blocks.slice(at, last + 1), text: '', last }]
  }
  if (block.kind === 'paragraph') {
    const { text } = block
    const last = announces(text, blocks[at + 1]) ? at + 1 : at
    return [{ kind: 'paragraph', title: leadOf(text), blocks: blocks.slice(at, last + 1), text, last }]
  }
  if (block.kind === 'list') {
    return block.items.map((text, index) => {
      const firstNumber = block.firstNumber === null ? null : block.firstNumber + index
      const isLast = index === block.items.length - 1
      const last = isLast && announces(text, blocks[at + 1]) ? at + 1 : at
      const shown = [{ ...block, firstNumber, items: [text] }, ...blocks.slice(at + 1, last + 1)]
      return { kind: 'item', title: leadOf(text), blocks: shown, text, last }
    })
  }
  const rows = block.rows.map((row): OwnFields => {
    return { kind: 'row', title: row[0] ?? null, blocks: [{ ...block, rows: [row] }], text: row.join(' '), last: at }
  })
  return [{ kind: 'table', title: block.head[0] ?? null, blocks: [block], text: '', last: at }, ...rows]
}

/** A topic for both readers has sections for one of them. */
function audienceOf({ reader, alsoFor }: Topic, heading: string): Audience {
  if (heading.startsWith('For the owner')) return 'client'
  if (heading.startsWith('For the operator')) return 'operator'
  return alsoFor === undefined ? reader : 'both'
}

function endOfSection(blocks: readonly Block[], at: number): number {
  const heading = blocks[at]
  const level = heading?.kind === 'heading' ? heading.level : 0
  const next = blocks.findIndex((block, index) => index > at && block.kind === 'heading' && block.level <= level)
  return next === -1 ? blocks.length - 1 : next - 1
}

/** Code or a table after a colon belongs to the text. */
function announces(text: string, next: Block | undefined): boolean {
  return text.endsWith(':') && (next?.kind === 'code' || next?.kind === 'table')
}

function leadOf(text: string): string | null {
  return /^\*\*(.+?)\*\*/.exec(text)?.[1] ?? null
}
