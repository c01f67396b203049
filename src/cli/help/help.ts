// strongroom help: lists the topics, prints one, or writes all as man pages. Effects: a pager, files with --man.

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Fault } from '../../base/fault.ts'
import { version } from '../../base/version.ts'
import type { Command, Run } from '../operator-run.ts'
import { findInHelp } from './find.ts'
import { manText, readMarkdown, terminalText } from './markdown.ts'
import { READERS, type Reader, TOPICS, type Topic } from './topics.ts'

/** Every terminal has as many. */
const columnsMax = 80
const titles: Readonly<Record<Reader, string>> = {
  operator: 'For operators',
  client: 'For clients',
  reference: 'Reference',
  threats: 'Security',
}

type Options = { man?: string }

export function addHelp(program: Command): void {
  program.helpCommand(false)
  program
    .command('help')
    .argument(
      '[topic...]',
      'topic, command, configuration field, failure code, problem, doctor check or any word; none lists the topics',
    )
    .option('--man <directory>', 'write every topic as a man page (section 7) into the directory')
    .description('print a help topic, or the list of them')
    .examples(
      'strongroom help',
      'strongroom help 3am',
      'strongroom help key add',
      'strongroom help ssh_unreachable',
      'strongroom help problem disk',
      'strongroom help witness',
      'strongroom help credentials',
      'strongroom help network.tap_prefix',
      'strongroom help --man ./man7',
    )
    .runs(async (run, names: readonly string[], { man }: Options) => {
      if (man !== undefined) return await writeManPages(man, run)
      const name = names.join(' ')
      if (name === '') return await run.result({ topics: TOPICS.map(summaryOf) }, listText(run))
      const topic = TOPICS.find(candidate => candidate.name === name)
      if (topic !== undefined) return await printTopic(topic, run)
      const command = commandOf(program, names)
      if (command !== null) return await run.result({ command: name, help: command }, command)
      const found = findInHelp(name, { columns: columnsMax, paint: run.paint })
      if (found === null) throw unknownTopic(name)
      await run.result({ name, found }, found)
    })
}

/** Usage of the command that these words name, as `key add` does; null if none does. */
function commandOf(program: Command, names: readonly string[]): string | null {
  let command: Pick<Command, 'commands' | 'helpInformation'> | undefined = program
  for (const name of names) command = command?.commands.find(candidate => candidate.name() === name)
  return command?.helpInformation() ?? null
}

function summaryOf({ name, reader, summary }: Topic) {
  return { name, reader, summary }
}

function listText({ paint }: Run): string {
  const width = Math.max(...TOPICS.map(({ name }) => name.length))
  const groups = READERS.map(reader => {
    const lines = TOPICS.filter(topic => topic.reader === reader).map(
      ({ name, summary }) => `  ${name.padEnd(width)}  ${summary}`,
    )
    const others = TOPICS.filter(topic => topic.alsoFor === reader).map(({ name }) => name)
    const more = others.length === 0 ? [] : [`  See also ${others.join(' and ')}, above.`]
    return [paint.strong(titles[reader]), ...lines, ...more].join('\n')
  })
  const usage =
    'strongroom help NAME explains a topic, a command, a configuration field, a failure code, a problem of status,\na check of doctor, or a word such as witness or credentials. What is for clients comes first.'
  return `${groups.join('\n\n')}\n\n${usage}\n`
}

async function printTopic(topic: Topic, run: Run): Promise<void> {
  const blocks = readMarkdown(topic.text)
  const text = terminalText(blocks, { columns: columnsMax, paint: run.paint })
  if (!run.json && run.io.stdoutIsTerminal && (await paged(text, run.io.env))) return
  await run.result({ ...summaryOf(topic), markdown: topic.text }, text)
}

/** Through $PAGER, or less. False if there is no pager, or it failed before it read the text. */
async function paged(text: string, env: Run['io']['env']): Promise<boolean> {
  const pager = env.PAGER ?? 'less'
  const path = pager === '' || pager.includes(' ') ? null : Bun.which(pager, { PATH: env.PATH ?? '' })
  if (path === null) return false
  const child = Bun.spawn([path], {
    stdin: 'pipe',
    stdout: 'inherit',
    stderr: 'inherit',
    // Colour passes, and a text that fits the screen ends the pager.
    env: { LESS: '-FRX', ...env },
  })
  try {
    child.stdin.write(text)
    await child.stdin.end()
  } catch {
    // The reader quit before the end.
  }
  return (await child.exited) === 0
}

/** Writes the manual pages. Throws Fault internal if a page cannot be written. */
async function writeManPages(directory: string, run: Run): Promise<void> {
  mkdirSync(directory, { recursive: true })
  const files = TOPICS.map(({ name, summary, text }) => {
    const file = join(directory, `strongroom-${name}.7`)
    writeFileSync(file, manText(readMarkdown(text), { title: `strongroom-${name}`, section: 7, summary, version }))
    return file
  })
  await run.result({ files }, `${files.length} man pages in ${directory}\n`)
}

function unknownTopic(name: string): Fault {
  const near = TOPICS.filter(topic => topic.name.startsWith(name.slice(0, 3))).map(topic => topic.name)
  const hint = near.length > 0 ? `did you mean ${near.join(' or ')}?` : '`strongroom help` lists the topics'
  return new Fault(
    'invalid_request',
    `no help topic, command, field, code, check or word is called "${name}"; ${hint}`,
    {
      param: 'topic',
    },
  )
}
