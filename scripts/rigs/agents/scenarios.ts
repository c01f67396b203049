// Parts of a working day with each agent of the command line. A scenario throws with the reason if it fails. Effects:
// through its day.

import { readdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { AgentCli } from './cli.ts'
import { type Day, mcpServer, type Turn } from './day.ts'
import { pieceChars } from './mcp-server.ts'
import type { Surroundings } from './programs.ts'
import type { Decision, Situation } from './script.ts'

export type Scenario = {
  readonly program: AgentCli
  readonly name: string
  readonly surroundings?: Surroundings
  /** The engine's side of it. */
  readonly decide: (situation: Situation) => Decision
  readonly run: (day: Day) => Promise<void>
}

/** Our own texts, which recorded requests may have as they are. */
export const SAYINGS = {
  mcp: 'Look the word seven up and weigh it',
  delegate: 'Give the count to a sub-agent',
  count: 'Count the files as sub-agent',
  remember: 'Remember the number 4711',
  again: 'And which number was it?',
  look: 'Look at picture.png',
  dump: 'Print the whole table',
  compacted: 'SUMMARY: the number is 4711',
  counted: 'the sub-agent counted 3',
  seen: 'a red dot',
  done: 'all done',
  remembered: 'It was 4711',
} as const

/** Texts that recorded requests have as they are: of this file, of our MCP servers, and of the gateway. */
export const OWN: readonly string[] = [
  ...Object.values(SAYINGS),
  ...['Looks a word up.', 'Weighs a thing.', 'Prints a table.', 'the page of seven', 'seven weighs 12 grams'],
  `strongroom.summary:${SAYINGS.compacted}`,
]

/** A red dot. */
const picture =
  'iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAABJRU5ErkJggg=='

const bothServers: Surroundings = { mcp: { alpha: mcpServer('lookup'), beta: mcpServer('weigh') } }
const weekMs = 7 * 86_400_000

/** Calls both MCP servers one after the other; `names` are those of the agent. */
function usesBoth({ names, text, done }: Situation): Decision {
  const named = (end: string) => names.find(name => name.endsWith(end))
  const [lookup, weigh] = [named('lookup'), named('weigh')]
  if (!text.includes(SAYINGS.mcp)) return { say: SAYINGS.done }
  const search = names.find(name => /^tool_?search$/i.test(name))
  if ((lookup === undefined || weigh === undefined) && search !== undefined && done === 0) {
    const query = /ToolSearch/.test(search) ? 'select:mcp__alpha__lookup,mcp__beta__weigh' : 'lookup weigh'
    return { calls: [{ name: search, args: { query } }] }
  }
  if (lookup !== undefined && !text.includes('the page of'))
    return { calls: [{ name: lookup, args: { word: 'seven' } }] }
  if (weigh !== undefined && !text.includes('weighs 12')) return { calls: [{ name: weigh, args: { thing: 'seven' } }] }
  return { say: SAYINGS.done }
}

async function runsBoth(day: Day, argv: readonly string[], env?: Readonly<Record<string, string>>): Promise<void> {
  endsWith(await day.run(argv, env), SAYINGS.done)
  reached(day, 'the page of seven')
  reached(day, 'seven weighs 12 grams')
}

const remembers = ({ text, names }: Situation): Decision => {
  if (names.length === 0 && !text.includes(SAYINGS.again)) return { say: SAYINGS.compacted }
  return { say: text.includes(SAYINGS.again) ? SAYINGS.remembered : SAYINGS.done }
}

/** Calls the tool for each name, one after the other. */
function dumps(tables: readonly string[]): Scenario['decide'] {
  return ({ text, names, done }) => {
    const name = names.find(known => known.endsWith('dump'))
    const table = tables[done]
    if (!text.includes(SAYINGS.dump) || name === undefined || table === undefined) return { say: SAYINGS.done }
    return { calls: [{ name, args: { name: table } }] }
  }
}

const DUMP_ENV = { MAX_MCP_OUTPUT_TOKENS: '4000000', ENABLE_TOOL_SEARCH: 'false' }

const CLAUDE_CODE: readonly Omit<Scenario, 'program'>[] = [
  {
    name: 'mcp',
    surroundings: bothServers,
    decide: usesBoth,
    run: day =>
      runsBoth(day, claude(SAYINGS.mcp, mcpFlags(day, 'mcp__alpha__lookup', 'mcp__beta__weigh')), {
        ENABLE_TOOL_SEARCH: 'false',
      }),
  },
  {
    name: 'tool-search',
    surroundings: bothServers,
    decide: usesBoth,
    run: day =>
      runsBoth(day, claude(SAYINGS.mcp, mcpFlags(day, 'mcp__alpha__lookup', 'mcp__beta__weigh')), {
        ENABLE_TOOL_SEARCH: 'true',
      }),
  },
  {
    name: 'sub-agents',
    decide: ({ text, names, messages }) => {
      const isSub = JSON.stringify(messages.filter(({ role }) => role === 'user')).includes(SAYINGS.count)
      if (isSub) return { say: SAYINGS.counted }
      const name = names.find(known => known === 'Agent' || known === 'Task')
      if (text.includes(SAYINGS.counted) || name === undefined) return { say: SAYINGS.done }
      const args = { description: 'Count', prompt: SAYINGS.count, subagent_type: 'general-purpose' }
      return { calls: [{ name, args: { ...args, run_in_background: false } }] }
    },
    run: async day => {
      endsWith(await day.run(claude(SAYINGS.delegate)), SAYINGS.done)
      reached(day, SAYINGS.counted)
    },
  },
  {
    name: 'compact',
    decide: remembers,
    run: async day => {
      endsWith(await day.run(claude(SAYINGS.remember)), SAYINGS.done)
      const before = day.upstream.seen.length
      isWell(await day.run(claude('/compact', ['--continue'])))
      must(day.upstream.seen.length > before, 'no request of /compact reached the engine')
      endsWith(await day.run(claude(SAYINGS.again, ['--continue'])), SAYINGS.remembered)
    },
  },
  {
    name: 'resume',
    decide: remembers,
    run: async day => {
      endsWith(await day.run(claude(SAYINGS.remember)), SAYINGS.done)
      const [file = ''] = ageSessions(join(day.home, '.claude/projects'), '.jsonl')
      const id = /([^/]+)\.jsonl$/.exec(file)?.[1] ?? ''
      endsWith(await day.run(claude(SAYINGS.again, ['--resume', id])), SAYINGS.remembered)
      reached(day, SAYINGS.again, SAYINGS.remember)
    },
  },
  {
    name: 'image',
    decide: ({ text, done }) => {
      if (!text.includes(SAYINGS.look)) return { say: SAYINGS.done }
      return done === 0 ? { calls: [{ name: 'Read', args: { file_path: 'picture.png' } }] } : { say: SAYINGS.seen }
    },
    run: async day => {
      writeFileSync(join(day.work, 'picture.png'), Buffer.from(picture, 'base64'))
      endsWith(await day.run(claude(SAYINGS.look, ['--allowedTools', 'Read'])), SAYINGS.seen)
      reached(day, 'data:image/')
    },
  },
  {
    // Claude Code writes a result of 2 MB to a file, and sends the model the beginning.
    name: 'large-result',
    surroundings: { mcp: { gamma: mcpServer('dump') } },
    decide: dumps(['whole']),
    run: async day => {
      endsWith(await day.run(claude(SAYINGS.dump, mcpFlags(day, 'mcp__gamma__dump')), DUMP_ENV), SAYINGS.done)
      reached(day, 'whole 0123456789')
    },
  },
  {
    name: 'large-results',
    surroundings: { mcp: { gamma: mcpServer('dump') } },
    decide: dumps(['a', 'b', 'c', 'd']),
    run: async day => {
      endsWith(await day.run(claude(SAYINGS.dump, mcpFlags(day, 'mcp__gamma__dump')), DUMP_ENV), SAYINGS.done)
      const largest = Math.max(...day.upstream.seen.map(({ body }) => JSON.stringify(body).length))
      must(largest > 4 * pieceChars, `the largest request has ${largest} characters`)
    },
  },
]

const CODEX: readonly Omit<Scenario, 'program'>[] = [
  { name: 'mcp', surroundings: bothServers, decide: usesBoth, run: day => runsBoth(day, codex(SAYINGS.mcp)) },
  {
    name: 'compaction',
    surroundings: { codex: ['model_auto_compact_token_limit = 1000'] },
    decide: compacts,
    run: runsCompaction,
  },
  {
    name: 'compaction-by-server',
    surroundings: { codex: ['model_auto_compact_token_limit = 1000'], provider: 'OpenAI' },
    decide: compacts,
    run: runsCompaction,
  },
  {
    name: 'resume',
    decide: remembers,
    run: async day => {
      endsWith(await day.run(codex(SAYINGS.remember)), SAYINGS.done)
      const [file = ''] = ageSessions(join(day.home, '.codex/sessions'), '.jsonl')
      const id = /([0-9a-f-]{36})\.jsonl$/.exec(file)?.[1] ?? ''
      endsWith(await day.run(['exec', '--skip-git-repo-check', 'resume', id, SAYINGS.again]), SAYINGS.remembered)
      reached(day, SAYINGS.again, SAYINGS.remember)
    },
  },
]

const OPENCODE: readonly Omit<Scenario, 'program'>[] = [
  { name: 'mcp', surroundings: bothServers, decide: usesBoth, run: day => runsBoth(day, opencode(SAYINGS.mcp)) },
  {
    name: 'second-turn',
    decide: remembers,
    run: async day => {
      endsWith(await day.run(opencode(SAYINGS.remember)), SAYINGS.done)
      endsWith(await day.run(day.program.argv(SAYINGS.again, 'next')), SAYINGS.remembered)
      reached(day, SAYINGS.again, SAYINGS.remember)
    },
  },
]

export const SCENARIOS: readonly Scenario[] = [
  ...CLAUDE_CODE.map(row => ({ program: 'claude-code' as const, ...row })),
  ...CODEX.map(row => ({ program: 'codex' as const, ...row })),
  ...OPENCODE.map(row => ({ program: 'opencode' as const, ...row })),
]

/** The agent compacts when the usage is above its limit. */
function compacts({ text, messages }: Situation): Decision {
  const last = JSON.stringify(messages.at(-1) ?? '')
  const usage = { prompt_tokens: 5_000, completion_tokens: 3, total_tokens: 5_003 }
  if (last.includes(SAYINGS.again)) return { say: SAYINGS.remembered }
  return {
    say: text.includes(SAYINGS.remember) && last.includes(SAYINGS.remember) ? SAYINGS.done : SAYINGS.compacted,
    usage,
  }
}

async function runsCompaction(day: Day): Promise<void> {
  endsWith(await day.run(codex(SAYINGS.remember)), SAYINGS.done)
  endsWith(await day.run(day.program.argv(SAYINGS.again, 'next')), SAYINGS.remembered)
  reached(day, SAYINGS.again, SAYINGS.compacted)
}

function claude(prompt: string, more: readonly string[] = []): string[] {
  return ['-p', prompt, ...more]
}

function mcpFlags({ home }: Day, ...tools: readonly string[]): string[] {
  return ['--mcp-config', join(home, 'mcp.json'), '--strict-mcp-config', '--allowedTools', tools.join(',')]
}

function codex(prompt: string): string[] {
  return ['exec', '--skip-git-repo-check', prompt]
}

function opencode(prompt: string): string[] {
  return ['run', prompt]
}

/** Makes the files of sessions below `folder` a week older, their texts too; returns their paths. */
function ageSessions(folder: string, end: string): string[] {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(name => name.endsWith(end))
  return files.map(name => {
    const path = join(folder, name)
    const aged = readFileSync(path, 'utf8').replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z/g, date =>
      new Date(Date.parse(date) - weekMs).toISOString(),
    )
    writeFileSync(path, aged)
    const at = new Date(Date.now() - weekMs)
    utimesSync(path, at, at)
    return path
  })
}

function isWell({ exit, out, err }: Turn): void {
  must(exit === 0, `exit ${exit}\n${out.slice(-3_000)}\n${err.slice(-3_000)}`)
}

function endsWith(turn: Turn, text: string): void {
  isWell(turn)
  must(turn.out.includes(text), `it did not print ${text}\n${turn.out.slice(-3_000)}\n${turn.err.slice(-3_000)}`)
}

/** One request that the engine got has all the texts. */
function reached({ upstream }: Day, ...texts: readonly string[]): void {
  const isThere = upstream.seen.some(({ body }) => texts.every(text => JSON.stringify(body.messages).includes(text)))
  must(isThere, `no request at the engine has ${texts.join(' and ')}`)
}

function must(holds: boolean, problem: string): void {
  if (!holds) throw new Error(problem)
}
