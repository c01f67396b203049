// Agents of the command line, unchanged out of the registry, against the gateway with a scripted model: a first answer
// after a tool loop of five steps over streams, a second turn, and an abort.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { installAgent } from '../../../scripts/rigs/agents/cli.ts'
import { PROGRAMS, type Program, trust } from '../../../scripts/rigs/agents/programs.ts'
import { agentModel, PROMPTS } from '../../../scripts/rigs/agents/script.ts'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { startGateway, type TestGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'

/** On a machine with ten times its load, too. */
const turnMs = 720_000

/** The tool for commands of each agent. */
const model = agentModel((names, step) => {
  const command = `echo step-${step}`
  if (names.includes('exec_command')) return { name: 'exec_command', args: { cmd: command } }
  const name = names.find(known => known === 'Bash' || known === 'bash')
  return name === undefined ? null : { name, args: { command, description: 'one step' } }
})

describe.each(Object.values<Program>(PROGRAMS))('$name', agent => {
  const undo = new AsyncDisposableStack()
  let upstream: TestUpstream
  let gateway: TestGateway
  let start: (argv: readonly string[]) => Bun.Subprocess<'ignore', 'pipe', 'pipe'>
  let problem: string | null = null

  beforeAll(async () => {
    const installed = await installAgent(agent.name)
    if ('problem' in installed) {
      problem = installed.problem
      return
    }
    upstream = await startUpstream(model)
    undo.defer(upstream.stop)
    const patient = {
      bodyBytesMax: 4_194_304,
      bodyTimeoutMs: 60_000,
      firstByteTimeoutMs: 0,
      idleTimeoutMs: 120_000,
    }
    gateway = undo.use(await startGateway([target(upstream.url)], { limits: patient }))
    const home = mkdtempSync(join(tmpdir(), 'srt-agent-'))
    undo.defer(() => rmSync(home, { recursive: true, force: true }))
    const work = join(home, 'work')
    mkdirSync(work)
    const env = { PATH: process.env.PATH ?? '', HOME: home, ...trust(), ...agent.configure(home, gateway.url) }
    start = argv =>
      Bun.spawn([installed.path, ...argv], { cwd: work, env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
  }, 300_000)

  afterAll(() => undo.disposeAsync())

  const answered = async (prompt: string, turn: 'first' | 'next') => {
    const child = start(agent.argv(prompt, turn))
    using _late = {
      timer: setTimeout(() => child.kill('SIGKILL'), turnMs),
      [Symbol.dispose]() {
        clearTimeout(this.timer)
      },
    }
    const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()])
    return { exit: await child.exited, out, err: err.slice(-2_000) }
  }

  // Goal: the agent works as it comes: five tools one after the other, then the answer; the next turn knows them all.
  test(
    'five steps, and a second turn',
    async () => {
      if (skipUnless(problem === null, `${agent.name}: ${problem}`)) return
      const first = await answered(PROMPTS.steps, 'first')
      expect(first).toMatchObject({ exit: 0, out: expect.stringContaining('after 5 steps') })
      const results = upstream.seen.flatMap(({ body }) =>
        (body.messages as { role: string; content: unknown }[]).filter(({ role }) => role === 'tool'),
      )
      for (let step = 1; step <= 5; step += 1) expect(JSON.stringify(results)).toContain(`step-${step}`)
      const second = await answered(PROMPTS.again, 'next')
      expect(second).toMatchObject({ exit: 0, out: expect.stringContaining('after 5 steps') })
      const records = await gateway.records()
      expect(records.length).toBeGreaterThanOrEqual(7)
      expect(new Set(records.map(({ outcome }) => outcome))).toEqual(new Set(['completed']))
    },
    2 * turnMs,
  )

  // Goal: the engine reads the first prompt for longer than agents and gateways used to wait, and gets it once.
  test(
    'a first prompt that takes 310 seconds',
    async () => {
      if (skipUnless(problem === null, `${agent.name}: ${problem}`)) return
      if (skipUnless(runsAll, '310 seconds of silence are tried only by scripts/test --all')) return
      const asked: string[] = []
      upstream.behave = async (response, seen, gone) => {
        const isMain = JSON.stringify(seen.body.tools ?? []).length > 1_000
        if (isMain) asked.push(seen.path)
        if (isMain && asked.length === 1) await Bun.sleep(310_000)
        await model(response, seen, gone)
      }
      const { exit, out, err } = await answered(PROMPTS.again, 'first')
      upstream.behave = model
      expect([exit, out.trim(), asked.length], err).toEqual([0, expect.stringContaining('after 0 steps') as never, 1])
    },
    2 * turnMs,
  )

  // Goal: an agent that is ended frees the upstream at once, and the request is accounted. The connection ends as the
  // kernel ends it, whichever agent had it; the other two abort under scripts/test --all.
  test(
    'an abort',
    async () => {
      if (skipUnless(problem === null, `${agent.name}: ${problem}`)) return
      if (skipUnless(runsAll || agent.name === 'codex', `${agent.name} aborts only by scripts/test --all`)) return
      const child = start(agent.argv(PROMPTS.wait, 'first'))
      try {
        await until('the upstream is asked', turnMs, () => upstream.active() > 0)
      } finally {
        child.kill('SIGKILL')
        await child.exited
      }
      await until('the upstream is free', 60_000, () => upstream.active() === 0)
      await until('the request is accounted', 60_000, async () =>
        (await gateway.records()).some(({ outcome }) => outcome === 'aborted'),
      )
    },
    2 * turnMs,
  )
})
