// Man pages of the package: strongroom(1) from the command tree, strongroom.toml(5) from the configuration's schema,
// and the help topics (7). Pure.

import { manText, readMarkdown } from '../../src/cli/help/markdown.ts'
import { TOPICS } from '../../src/cli/help/topics.ts'
import { configReference } from '../../src/config/reference.ts'
import { EXIT_HELP } from '../../src/terminal/exit.ts'
import type { CommandNode } from './command-tree.ts'

export type ManFile = { readonly name: string; readonly text: string }

export function manPages(tree: readonly CommandNode[], version: string): ManFile[] {
  const topics = TOPICS.map(({ name, summary, text }): ManFile => {
    const page = { title: `strongroom-${name}`, section: 7, summary, version }
    return { name: `strongroom-${name}.7`, text: manText(readMarkdown(text), page) }
  })
  return [programPage(tree, version), configPage(version), ...topics]
}

function programPage(tree: readonly CommandNode[], version: string): ManFile {
  const rows = tree
    .slice(1)
    .map(({ path, usage, description }) => row([`${path.slice(1).join(' ')} ${usage}`, description]))
  const globals = (tree[0]?.options ?? []).map(({ flag, description }) => row([flag, description]))
  const topics = TOPICS.map(({ name, summary }) => row([`strongroom-${name}(7)`, summary]))
  const markdown = [
    tree[0]?.description ?? '',
    '`strongroom COMMAND --help` lists the options of a command.',
    '## Commands',
    table(rows),
    '## Options',
    'They hold for every command.',
    table(globals),
    '## Exit status',
    `\`\`\`\n${EXIT_HELP.split('\n').slice(1).join('\n')}\n\`\`\``,
    '## Files',
    table([
      row(['/etc/strongroom/strongroom.toml', 'the configuration: strongroom.toml(5)']),
      row(['/var/lib/strongroom', 'the state directory: strongroom-backup(7)']),
    ]),
    '## See also',
    table(topics),
  ].join('\n\n')
  const page = { title: 'strongroom', section: 1, summary: 'confidential-compute appliance', version }
  return { name: 'strongroom.1', text: manText(readMarkdown(markdown), page) }
}

function configPage(version: string): ManFile {
  const markdown = [
    'An empty file works. `strongroom config check` names file, line and field of what is wrong.',
    'Every field with its meaning, what is allowed, and its default:',
    `\`\`\`\n${configReference().trimEnd()}\n\`\`\``,
  ].join('\n\n')
  const page = { title: 'strongroom.toml', section: 5, summary: 'configuration of strongroom', version }
  return { name: 'strongroom.toml.5', text: manText(readMarkdown(markdown), page) }
}

function row(cells: readonly string[]): string {
  return `| ${cells.map(cell => cell.replaceAll('|', '/').replaceAll(/\s+/g, ' ').trim()).join(' | ')} |`
}

function table(rows: readonly string[]): string {
  return ['| a | b |', '| - | - |', ...rows].join('\n')
}
