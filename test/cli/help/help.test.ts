import { expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { manText, readMarkdown, terminalText } from '../../../src/cli/help/markdown.ts'
import { READERS, TOPICS } from '../../../src/cli/help/topics.ts'
import { runCli } from '../../../src/cli/index.ts'
import { paintFor } from '../../../src/terminal/render.ts'

async function run(...argv: string[]) {
  const out: string[] = []
  const err: string[] = []
  const exitCode = await runCli(argv, {
    stdout: async text => void out.push(String(text)),
    stderr: async text => void err.push(text),
    stdoutIsTerminal: false,
    stderrIsTerminal: false,
    env: {},
    onSignal: () => () => {},
  })
  return { exitCode, out: out.join(''), err: err.join('') }
}

const style = { columns: 100, paint: paintFor(false) }

test('goal: the list names every topic once, under its reader, and every reader has topics', async () => {
  const { exitCode, out } = await run('help')
  expect(exitCode).toBe(0)
  for (const { name, summary } of TOPICS) expect([name, out.split(`${summary}\n`).length]).toEqual([name, 2])
  expect(new Set(TOPICS.map(({ reader }) => reader))).toEqual(new Set(READERS))
  expect(new Set(TOPICS.map(({ name }) => name)).size).toBe(TOPICS.length)
})

test('goal: clients are led to the topics of operators that have a section for them', async () => {
  const [, clients = ''] = (await run('help')).out.split('For clients\n')
  expect(clients.split('\n\n')[0]).toEndWith('\n  See also egress and log, above.')
})

test('goal: every Markdown file of the folder is a topic', () => {
  const files = readdirSync(join(import.meta.dir, '../../../src/cli/help')).filter(file => file.endsWith('.md'))
  expect(files.map(file => file.slice(0, -3)).toSorted()).toEqual(TOPICS.map(({ name }) => name).toSorted())
})

test('goal: a topic is printed for a reader, and whole as a document; no line but code passes the columns', async () => {
  for (const { name, text } of TOPICS) {
    const { exitCode, out } = await run('help', name)
    expect(exitCode).toBe(0)
    const prose = out.split('\n').filter(line => !line.startsWith('    ') && !/\S{50}/.test(line))
    expect(prose.filter(line => line.length > 80)).toEqual([])
    const asJson = await run('help', name, '--json')
    expect(JSON.parse(asJson.out)).toMatchObject({ name, markdown: text })
  }
})

test('goal: a command that is no topic shows its usage; another name is refused, with what is near', async () => {
  expect((await run('help', 'org')).out).toStartWith('Usage: strongroom org ')
  const wrong = await run('help', 'instanc')
  expect([wrong.exitCode, wrong.out]).toEqual([2, ''])
  expect(wrong.err).toContain('did you mean install or instances?')
  expect((await run('help', 'zzz')).err).toContain('`strongroom help` lists the topics')
})

test('goal: a command of a command, a failure code, a field and a row of 3am are found by their names', async () => {
  expect((await run('help', 'key', 'add')).out).toStartWith('Usage: strongroom key add ')
  const failure = (await run('help', 'ssh_unreachable')).out
  expect(failure).toContain('instances')
  expect(failure).toContain('no SSH handshake with the reported key')
  // The section of 3am, and not the one after it.
  expect(failure).toContain('Usually a firewall on')
  expect(failure).not.toContain('Any other code')
  expect(failure).not.toContain('agent_unreachable')
  expect((await run('help', 'vm.paused')).out).toContain('Free some space')
  const field = (await run('help', 'network.tap_prefix')).out
  expect(field).toStartWith('Configuration field network.tap_prefix:\n')
  expect(field).toContain('tap_prefix = "')
  expect((await run('help', 'inference.upstreams.url')).out).toContain('Base URL of an OpenAI-compatible server.')
  expect((await run('help', 'inference.upstreams')).out).toContain('# [[inference.upstreams]]')
  const mentioned = (await run('help', 'x-should-retry')).out
  expect(mentioned).toStartWith('For clients: strongroom help inference, "Tool calls"\n\nArguments that are not')
  expect(mentioned).toContain('decides has `x-should-retry: false`.')
  expect((await run('help', 'key', 'nothing')).exitCode).toBe(2)
  // A part of a name is not the name.
  expect((await run('help', 'unreachable')).exitCode).toBe(2)
})

test('goal: a word of the list in `pass` is found in any case, also one of two words', async () => {
  for (const [word, meaning] of [
    ['witness', "a server outside the operator's control"],
    ['receipt', 'a signed statement about one gateway process'],
    ['ehbp', 'encryption of HTTP bodies'],
    ['vmpl', 'privilege level inside the VM'],
    ['host_data', 'the SHA-256 of'],
    ['Operator key', 'the key whose digest each launch'],
  ] as const) {
    const { exitCode, out } = await run('help', ...word.split(' '))
    expect([word, exitCode, out.includes(meaning)]).toEqual([word, 0, true])
  }
  expect((await run('help', 'attestedFetch')).out).toContain("import { attestedFetch } from '@strongroom/verifier'")
  expect((await run('help', 'security')).out).toContain('## How to report'.slice(3))
  expect((await run('help', 'operator', 'secret')).exitCode).toBe(2)
})

test('goal: headings, lists, code and tables are read as what they are', () => {
  const blocks = readMarkdown(
    '# a: b\n\none\ntwo\n\n- x\n  y\n- z\n\n```sh\nc 1\n\nc 2\n```\n\n| k | v |\n| - | - |\n| `a` | 1 |\n',
  )
  expect(blocks).toEqual([
    { kind: 'heading', level: 1, text: 'a: b' },
    { kind: 'paragraph', text: 'one two' },
    { kind: 'list', firstNumber: null, items: ['x y', 'z'] },
    { kind: 'code', lines: ['c 1', '', 'c 2'] },
    { kind: 'table', head: ['k', 'v'], rows: [['`a`', '1']] },
  ])
  expect(terminalText(blocks, style)).toBe(
    'a: b\n\none two\n\n- x y\n- z\n\n    c 1\n\n    c 2\n\nk | v\n  `a`\n    1\n',
  )
})

test('goal: steps keep their numbers, in a terminal and in a man page', () => {
  const blocks = readMarkdown('1. one\n   more\n2. two\n')
  expect(blocks).toEqual([{ kind: 'list', firstNumber: 1, items: ['one more', 'two'] }])
  expect(terminalText(blocks, { ...style, columns: 8 })).toBe('1. one\n   more\n2. two\n')
  const page = manText(blocks, { title: 'x', section: 7, summary: 'y', version: '1' })
  expect(page).toEndWith('.IP 1. 4\none more\n.IP 2. 4\ntwo\n')
  // A command may stand between two steps.
  const parted = readMarkdown('1. one\n\n```sh\nx\n```\n\n2. two\n3. three\n')
  expect(terminalText(parted, style)).toBe('1. one\n\n    x\n\n2. two\n3. three\n')
  expect(manText(parted, { title: 'x', section: 7, summary: 'y', version: '1' })).toEndWith(
    '.IP 2. 4\ntwo\n.IP 3. 4\nthree\n',
  )
})

test('goal: cells of wide tables name their columns, and empty ones are left out', () => {
  const blocks = readMarkdown('| what | is | do |\n| - | - | - |\n| a | b | |\n')
  expect(terminalText(blocks, style)).toBe('what | is | do\n  a\n    is: b\n')
})

test('goal: man pages are roff: no text starts a request by chance, backslashes and dashes are plain', () => {
  const page = manText(readMarkdown('# x: y\n\n.dot `a-b` \\n\n\n## More\n\n- one\n'), {
    title: 'strongroom-x',
    section: 7,
    summary: 'y',
    version: '1',
  })
  expect(page).toBe(
    [
      '.TH STRONGROOM-X 7 "" "strongroom 1" "Strongroom"',
      '.SH NAME',
      'strongroom-x \\- y',
      '.SH DESCRIPTION',
      '.PP',
      '\\&.dot a\\-b \\en',
      '.SH "More"',
      '.IP \\(bu 2',
      'one',
      '',
    ].join('\n'),
  )
})

test('goal: --man writes a page for each topic, of known requests alone', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'srt-man-'))
  try {
    expect((await run('help', '--man', folder)).exitCode).toBe(0)
    expect(readdirSync(folder).length).toBe(TOPICS.length)
    for (const file of readdirSync(folder)) {
      const requests = readFileSync(join(folder, file), 'utf8').match(/^\.\w+/gm) ?? []
      const known = ['.TH', '.SH', '.SS', '.PP', '.IP', '.TP', '.nf', '.fi', '.RS', '.RE', '.br']
      expect(requests.filter(request => !known.includes(request))).toEqual([])
      expect(requests.filter(request => request === '.nf').length).toBe(
        requests.filter(request => request === '.fi').length,
      )
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
