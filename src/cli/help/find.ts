// Finds help for a name that is no topic: the configuration field, the sections and table rows about it (as for a
// failure code, a check of doctor or a word of the list in `pass`), or the topics that mention it. Pure.

import { configFieldText } from '../../config/reference.ts'
import type { Paint } from '../../terminal/render.ts'
import { type Block, readMarkdown, terminalText } from './markdown.ts'
import { TOPICS } from './topics.ts'

/** Null if no field, no row and no topic has the name. `columns`: width of the terminal. */
export function findInHelp(name: string, style: { readonly columns: number; readonly paint: Paint }): string | null {
  const field = configFieldText(name)
  const parts = [
    ...(field === null ? [] : [`Configuration field ${name}:\n\n${field}`]),
    ...TOPICS.flatMap(topic => {
      const blocks = partsAbout(name, readMarkdown(topic.text))
      return blocks.length === 0 ? [] : [`${style.paint.strong(topic.name)}\n\n${terminalText(blocks, style)}`]
    }),
  ]
  if (parts.length > 0) return parts.map(part => `${part.trimEnd()}\n`).join('\n')
  const mentions = TOPICS.filter(({ text }) => isNamedIn(name, text)).map(topic => topic.name)
  return mentions.length === 0 ? null : `These topics mention ${name}: ${mentions.join(', ')}\n`
}

/** The sections whose heading names it, and of other tables the rows whose first cell does. */
function partsAbout(name: string, blocks: readonly Block[]): Block[] {
  const found: Block[] = []
  /** Level of the heading whose section is being taken; 0 outside of such a section. */
  let level = 0
  for (const block of blocks) {
    if (block.kind === 'heading') {
      if (level === 0 || block.level <= level) level = block.level > 1 && isNamedIn(name, block.text) ? block.level : 0
    }
    if (level > 0) {
      found.push(block)
    } else if (block.kind === 'table') {
      const rows = block.rows.filter(([first = '']) => isNamedIn(name, first))
      if (rows.length > 0) found.push({ ...block, rows })
    }
  }
  return found
}

/** Reports whether inline code of the text has the name as whole words; `no-padding` does not name `padding`. */
function isNamedIn(name: string, text: string): boolean {
  if (!/^\w[\w .-]{1,63}$/.test(name)) return false
  const words = new RegExp(`(?<![\\w.-])${name.replaceAll('.', '\\.')}(?![\\w.-])`, 'i')
  return [...text.matchAll(/`([^`\n]+)`/g)].some(([, code = '']) => words.test(code))
}
