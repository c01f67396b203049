// Goal: after one command in an instance Claude Code and Codex start without a question, and their prompts go to the
// gateway of the instance. The real programs, on this machine, at a terminal too; a scripted engine.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'bun:test'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { type AgentCli, installAgent } from '../../../scripts/rigs/agents/cli.ts'
import { trust } from '../../../scripts/rigs/agents/programs.ts'
import { decidingModel } from '../../../scripts/rigs/agents/script.ts'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { CALLER, KEY, MODEL, startHostGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { atTerminal } from '../../../scripts/rigs/terminal.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { Fault } from '../../../src/base/fault.ts'
import { listWithArgument, signalProcess } from '../../../src/linux/process.ts'

const script = resolve(import.meta.dir, '../../../guest-image/recipes/instance/root/usr/bin/strongroom-agents')
const turnMs = 600_000
const answer = 'zirconium'

const undo = new AsyncDisposableStack()
let origin = ''
let requests = 0
beforeAll(async () => {
  const upstream = await startUpstream(
    decidingModel(() => {
      requests += 1
      return { say: answer }
    }),
  )
  undo.defer(upstream.stop)
  const authenticate = (headers: Pick<Headers, 'get'>) => {
    const given = headers.get('x-api-key') ?? headers.get('authorization')?.replace(/^Bearer /, '')
    if (given !== KEY) throw new Fault('unauthenticated', 'The API key is missing or invalid.')
    return { ...CALLER, tokensPerMinute: 1_000_000_000 }
  }
  const limits = { bodyBytesMax: 32 * 1024 * 1024, firstByteTimeoutMs: 0 }
  origin = undo.use(startHostGateway([target(upstream.url)], { limits, host: { authenticate } })).url
})
afterAll(() => undo.disposeAsync())

let home = ''
beforeEach(() => {
  requests = 0
  home = mkdtempSync(join(tmpdir(), 'srt-agents-'))
  mkdirSync(join(home, '.config/opencode'), { recursive: true })
  writeFileSync(join(home, '.config/opencode/opencode.json'), JSON.stringify({ model: `strongroom/${MODEL}` }))
})
afterEach(() => {
  // Codex leaves a server of its own running, in its home.
  for (const found of listWithArgument(home)) signalProcess({ ...found, uuid: home }, 'SIGKILL')
  rmSync(home, { recursive: true, force: true })
})

/** As the claim sets it. */
const environment = () => ({
  PATH: `${join(home, '.local/bin')}:${process.env.PATH}`,
  HOME: home,
  LANG: 'C.UTF-8',
  NPM_CONFIG_PREFIX: join(home, '.local'),
  OPENAI_BASE_URL: `${origin}/v1`,
  OPENAI_API_KEY: KEY,
  ANTHROPIC_BASE_URL: origin,
  ANTHROPIC_API_KEY: KEY,
})

async function ran(argv: readonly string[], env: Record<string, string> = environment()) {
  const child = Bun.spawn([...argv], {
    cwd: home,
    env,
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: turnMs,
  })
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text()])
  return { code: await child.exited, stdout, stderr }
}

/** The registry is reached as npm of this machine reaches it. */
const agents = (...words: string[]) => ran([script, ...words], { ...environment(), ...trust() })

/** An npm that takes the program from this machine's cache, and writes down what it was asked. */
function cachedNpm(program: string, path: string): void {
  const bin = join(home, '.local/bin')
  mkdirSync(bin, { recursive: true })
  writeFileSync(join(bin, 'npm'), `#!/bin/sh\necho "$@" >${home}/npm.log\nln -sf ${path} ${bin}/${program}\n`)
  chmodSync(join(bin, 'npm'), 0o755)
}

const json = (path: string) => JSON.parse(readFileSync(join(home, path), 'utf8'))

/** Counts the answers in the records of sessions that both programs keep in the home. */
function answersIn(directory: string): number {
  const kept = ['.codex/sessions', '.claude/projects'].map(name => join(directory, name)).filter(existsSync)
  const records = kept.flatMap(cwd => [...new Bun.Glob('**/*.jsonl').scanSync({ cwd, absolute: true })])
  const texts = records.map(path => readFileSync(path, 'utf8'))
  return texts.join('').split(answer).length - 1
}

const AGENTS = [
  { name: 'claude-code', program: 'claude', package: '@anthropic-ai/claude-code', ask: ['-p', 'Say it'] },
  { name: 'codex', program: 'codex', package: '@openai/codex', ask: ['exec', '--skip-git-repo-check', 'Say it'] },
] as const satisfies readonly { readonly name: AgentCli; readonly [field: string]: unknown }[]

const noJq = skipUnless(Bun.which('jq') !== null, 'needs jq')

describe.each(AGENTS)('$name', ({ name, program, package: registryName, ask }) => {
  /** The program in the home: out of the registry in whole runs, else out of the cache. Null if it cannot be had. */
  const install = async (): Promise<'installed' | null> => {
    if (!runsAll) {
      const cached = await installAgent(name)
      if (skipUnless('path' in cached, 'problem' in cached ? cached.problem : '') || !('path' in cached)) return null
      cachedNpm(program, cached.path)
    }
    const { code, stdout, stderr } = await agents('install', name)
    expect([code, stdout.trim().split('\n').at(-1)], stderr).toEqual([
      0,
      `${program} is installed, with the model ${MODEL}. Start it by: ${program}`,
    ])
    if (!runsAll) expect(readFileSync(join(home, 'npm.log'), 'utf8')).toContain(` ${registryName}\n`)
    return 'installed'
  }

  test.skipIf(noJq)(
    'goal: a command, and a person at a terminal, get an answer and no question',
    async () => {
      if ((await install()) === null) return
      const { code, stdout, stderr } = await ran([program, ...ask])
      expect([code, stdout], stderr).toEqual([0, expect.stringContaining(answer)])
      const before = requests

      const project = join(home, 'project')
      mkdirSync(project)
      const variables = Object.entries({ ...environment(), TERM: 'xterm-256color' }).map(
        ([key, value]) => `${key}=${value}`,
      )
      for (const directory of [home, project]) {
        const terminal = atTerminal(['env', '--ignore-environment', `--chdir=${directory}`, ...variables, program])
        try {
          await terminal.printed(MODEL, turnMs)
          // Codex lists its commands at some starts: "/model - choose what model …".
          expect(terminal.screen()).not.toMatch(/trust|sign ?in|log ?in|choose(?! what)|api ?key/i)
          terminal.type('Say it again')
          await terminal.printed('again', turnMs)
          const answered = answersIn(home)
          terminal.type('\r')
          // Programs redraw only what changes on the screen, so the answer need not be printed in one piece.
          await until('the program has the answer', turnMs, () => answersIn(home) > answered)
        } finally {
          terminal.kill()
          await terminal.exited
        }
      }
      expect(requests).toBeGreaterThan(before)
    },
    turnMs,
  )
})

describe.skipIf(noJq)('strongroom-agents', () => {
  test('goal: settings of the user stay, and a second install changes the model alone', async () => {
    cachedNpm('claude', '/bin/true')
    mkdirSync(join(home, '.claude'))
    writeFileSync(join(home, '.claude/settings.json'), '{"theme":"light","env":{"A":"b"}}')
    writeFileSync(join(home, '.claude.json'), '{"projects":{"/x":{"a":1}},"customApiKeyResponses":{"rejected":["y"]}}')
    expect((await agents('install', 'claude-code@2.1.332', 'first')).code).toBe(0)
    expect((await agents('install', 'claude-code', 'second')).code).toBe(0)
    expect(json('.claude/settings.json')).toMatchObject({ theme: 'light', env: { A: 'b', ANTHROPIC_MODEL: 'second' } })
    expect(json('.claude.json')).toMatchObject({
      projects: { '/x': { a: 1 }, [home]: { hasTrustDialogAccepted: true } },
      customApiKeyResponses: { rejected: ['y'], approved: [KEY.slice(-20)] },
    })
    cachedNpm('codex', '/bin/true')
    expect((await agents('install', 'codex', 'first')).code).toBe(0)
    expect((await agents('install', 'codex', 'a "quoted" model')).code).toBe(0)
    const { model, model_provider } = Bun.TOML.parse(readFileSync(join(home, '.codex/config.toml'), 'utf8')) as Record<
      string,
      string
    >
    expect([model, model_provider]).toEqual(['a "quoted" model', 'strongroom'])
  })

  test('goal: what cannot be done is said with a remedy, before anything is installed', async () => {
    cachedNpm('codex', '/bin/true')
    mkdirSync(join(home, '.codex'))
    writeFileSync(join(home, '.codex/config.toml'), 'model = "mine"\n')
    const { OPENAI_BASE_URL: _, ...bare } = environment()
    const cases = [
      [await agents('install', 'codex'), 1, 'move it away and repeat'],
      [await agents('install', 'aider'), 1, 'name claude-code or codex'],
      [await agents('install', "codex@1'; touch x"), 1, 'is no version'],
      [await agents('install'), 2, 'usage: '],
      [await agents('remove', 'codex'), 2, 'usage: '],
      [await ran([script, 'install', 'claude-code'], bare), 1, 'this instance has no gateway'],
    ] as const
    for (const [{ code, stderr }, expected, text] of cases)
      expect([code, stderr]).toEqual([expected, expect.stringContaining(text)])
    expect(readFileSync(join(home, '.codex/config.toml'), 'utf8')).toBe('model = "mine"\n')
    expect(existsSync(join(home, 'npm.log'))).toBe(false)

    writeFileSync(join(home, '.local/bin/npm'), '#!/bin/sh\nexit 1\n')
    const failed = await agents('install', 'claude-code')
    expect([failed.code, failed.stderr]).toEqual([1, expect.stringContaining('the registry must be within reach')])
    expect(existsSync(join(home, '.claude.json'))).toBe(false)
  })
})

test.skipIf(noJq)(
  'goal: a second run for Codex changes the model alone, and keeps what was added to its settings',
  async () => {
    const bin = join(home, '.local/bin')
    mkdirSync(bin, { recursive: true })
    writeFileSync(join(bin, 'npm'), '#!/bin/sh\n')
    chmodSync(join(bin, 'npm'), 0o755)
    const config = join(home, '.codex/config.toml')
    expect((await agents('install', 'codex', 'first')).code).toBe(0)
    const added = '[mcp_servers.own]\nmodel = "of the server"\n'
    const before = readFileSync(config, 'utf8')
    writeFileSync(config, before + added)
    expect((await agents('install', 'codex', 'se"cond')).code).toBe(0)
    expect(readFileSync(config, 'utf8')).toBe(before.replace('model = "first"', 'model = "se\\"cond"') + added)
  },
)

test.skipIf(noJq)('goal: without the key for Claude Code it is refused before npm runs', async () => {
  const bin = join(home, '.local/bin')
  mkdirSync(bin, { recursive: true })
  writeFileSync(join(bin, 'npm'), `#!/bin/sh\ntouch ${home}/npm.log\n`)
  chmodSync(join(bin, 'npm'), 0o755)
  const { ANTHROPIC_API_KEY: _, ...env } = environment()
  const { code, stderr } = await ran([script, 'install', 'claude-code', 'm'], env)
  expect([code, stderr]).toEqual([1, expect.stringContaining('ANTHROPIC_API_KEY is not set')])
  expect(existsSync(join(home, 'npm.log'))).toBeFalse()
})
