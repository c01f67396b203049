// The Markdown that help topics are written in: headings, paragraphs, lists, fenced code and tables. Pure.
// Rendered for a terminal, and as a man page (man(7) macros).

import type { Paint } from '../../terminal/render.ts'

export type Block =
  | { readonly kind: 'heading'; readonly level: number; readonly text: string }
  | { readonly kind: 'paragraph'; readonly text: string }
  /** `firstNumber`: of the first item; null for a list with bullets. */
  | { readonly kind: 'list'; readonly firstNumber: number | null; readonly items: readonly string[] }
  | { readonly kind: 'code'; readonly lines: readonly string[] }
  | { readonly kind: 'table'; readonly head: readonly string[]; readonly rows: readonly (readonly string[])[] }

type BlockKind = Block['kind']

/** Blocks of a topic, in order. Blank lines part them; the lines of a paragraph and of a list item are joined. */
export function readMarkdown(markdown: string): Block[] {
  const blocks: Block[] = []
  let lines: string[] = []
  let kind: BlockKind | null = null
  const close = () => {
    if (kind !== null) blocks.push(blockOf(kind, lines))
    lines = []
    kind = null
  }
  for (const line of markdown.split('\n')) {
    const isFence = line.startsWith('```')
    if (kind === 'code') {
      if (isFence) close()
      else lines.push(line)
      continue
    }
    const next: BlockKind | null = isFence ? 'code' : kindOf(line, kind)
    if (next !== kind || next === 'heading') {
      close()
      kind = next
    }
    if (kind !== null && !isFence) lines.push(line)
  }
  close()
  return blocks
}

function kindOf(line: string, open: BlockKind | null): BlockKind | null {
  if (line.trim() === '') return null
  if (/^#{1,4} /.test(line)) return 'heading'
  if (line.startsWith('|')) return 'table'
  if (/^(- |\d{1,2}\. )/.test(line) || (line.startsWith('  ') && open === 'list')) return 'list'
  return 'paragraph'
}

function blockOf(kind: BlockKind, lines: readonly string[]): Block {
  const [first = ''] = lines
  switch (kind) {
    case 'heading':
      return { kind, level: first.indexOf(' '), text: first.slice(first.indexOf(' ') + 1) }
    case 'paragraph':
      return { kind, text: joined(lines) }
    case 'code':
      return { kind, lines }
    case 'list': {
      const items = lines
        .join('\n')
        .split(/^(?:- |\d{1,2}\. )/m)
        .slice(1)
      const [number] = /^\d+/.exec(first) ?? []
      return {
        kind,
        firstNumber: number === undefined ? null : Number(number),
        items: items.map(item => joined(item.split('\n'))),
      }
    }
    case 'table': {
      const [head = [], , ...rows] = lines.map(cellsOf)
      return { kind, head, rows }
    }
  }
}

function joined(lines: readonly string[]): string {
  return lines
    .map(line => line.trim())
    .join(' ')
    .trim()
}

function cellsOf(line: string): string[] {
  return line
    .replace(/^\||\|$/g, '')
    .split('|')
    .map(cell => cell.trim())
}

export type TerminalStyle = { readonly columns: number; readonly paint: Pick<Paint, 'strong' | 'weak'> }

/** Text for a terminal. Code keeps its lines; a row of a table is its first cell with the others below. */
export function terminalText(blocks: readonly Block[], style: TerminalStyle): string {
  return `${blocks.map(block => terminalBlock(block, style)).join('\n\n')}\n`
}

function terminalBlock(block: Block, { columns, paint }: TerminalStyle): string {
  const plain = { columns, first: '', next: '' }
  switch (block.kind) {
    case 'heading':
      return paint.strong(block.text)
    case 'paragraph':
      return wrapped(block.text, plain)
    case 'list':
      return block.items
        .map((item, at) => {
          const first = block.firstNumber === null ? '- ' : `${block.firstNumber + at}. `
          return wrapped(item, { columns, first, next: ' '.repeat(first.length) })
        })
        .join('\n')
    case 'code':
      return block.lines.map(line => paint.weak(`    ${line}`.trimEnd())).join('\n')
    case 'table': {
      const head = wrapped(block.head.filter(cell => cell !== '').join(' | '), plain)
      return [paint.weak(head), ...labelled(block).map(row => rowText(row, columns))].join('\n')
    }
  }
}

/** Rows of a table; the cells of more than two columns name theirs. Empty cells are left out, except the first. */
function labelled({ head, rows }: Extract<Block, { kind: 'table' }>): string[][] {
  const label = (cell: string, at: number) => (head.length > 2 && head[at] !== '' ? `${head[at]}: ${cell}` : cell)
  return rows.map(([first = '', ...cells]) => [
    first,
    ...cells.flatMap((cell, at) => (cell === '' ? [] : [label(cell, at + 1)])),
  ])
}

function rowText([name = '', ...cells]: readonly string[], columns: number): string {
  const below = cells.map(cell => wrapped(cell, { columns, first: '    ', next: '    ' }))
  return [...(name === '' ? [] : [wrapped(name, { columns, first: '  ', next: '  ' })]), ...below].join('\n')
}

/** A link to another topic becomes the command that prints it; any other has its address behind it. */
function withoutLinks(text: string): string {
  return text.replace(/\[([^\]`]+)\]\(([^)\s]+)\)/g, (_, words: string, target: string) => {
    const [, topic] = /^([\w-]+)\.md$/.exec(target) ?? []
    const place = topic === undefined ? target : `\`strongroom help ${topic}\``
    return words === topic ? place : `${words} (${place})`
  })
}

type Wrapping = { readonly columns: number; readonly first: string; readonly next: string }

function wrapped(text: string, { columns, first, next }: Wrapping): string {
  const lines: string[] = []
  let line = first
  for (const word of withoutLinks(text).split(/\s+/)) {
    const isEmpty = line === (lines.length === 0 ? first : next)
    if (!isEmpty && line.length + 1 + word.length > columns) {
      lines.push(line)
      line = `${next}${word}`
    } else line = isEmpty ? `${line}${word}` : `${line} ${word}`
  }
  return [...lines, line].join('\n')
}

export type ManPage = {
  readonly title: string
  readonly section: number
  readonly summary: string
  readonly version: string
}

/** A man page. A leading heading of level 1 is dropped, because NAME repeats it. */
export function manText(blocks: readonly Block[], { title, section, summary, version }: ManPage): string {
  const body = blocks.filter(block => block.kind !== 'heading' || block.level > 1).map(manBlock)
  return [
    `.TH ${title.toUpperCase()} ${section} "" "strongroom ${version}" "Strongroom"`,
    `.SH NAME\n${title} \\- ${roff(summary)}`,
    '.SH DESCRIPTION',
    ...body,
    '',
  ].join('\n')
}

function manBlock(block: Block): string {
  switch (block.kind) {
    case 'heading':
      return `${block.level === 2 ? '.SH' : '.SS'} "${roff(block.text).replaceAll('"', '\\(dq')}"`
    case 'paragraph':
      return `.PP\n${roffLine(block.text)}`
    case 'list':
      return block.items
        .map(
          (item, at) =>
            `.IP ${block.firstNumber === null ? '\\(bu 2' : `${block.firstNumber + at}. 4`}\n${roffLine(item)}`,
        )
        .join('\n')
    case 'code':
      return `.PP\n.nf\n.RS 4\n${block.lines.map(roffLine).join('\n')}\n.RE\n.fi`
    case 'table':
      return labelled(block).map(manRow).join('\n')
  }
}

function manRow([term = '', ...cells]: readonly string[]): string {
  return `.TP\n${roffLine(term)}\n${cells.map(roffLine).join('\n.br\n')}`
}

function roff(text: string): string {
  return text.replaceAll('\\', '\\e').replaceAll('-', '\\-').replaceAll('`', '')
}

/** A line of text; a leading dot or apostrophe would be a request. */
function roffLine(text: string): string {
  return roff(withoutLinks(text)).replace(/^(?=[.'])/, '\\&')
}
