// Agents of the command line, unchanged out of the registry, set as `strongroom connect --json` says: each answers
// through a gateway in an enclave that was verified, and prints why when the gateway does not verify any more.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { installAgent } from '../../../scripts/rigs/agents/cli.ts'
import { PROGRAMS } from '../../../scripts/rigs/agents/programs.ts'
import { decidingModel } from '../../../scripts/rigs/agents/script.ts'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { EnclaveBench } from '../../../scripts/rigs/enclave/enclave.ts'
import { serverAuthority, startAttestedGateway } from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { benchOptions, type Connected, policyFiles, startConnect } from '../../rigs/connect/process.ts'
import { type Relay, startRelay } from '../../rigs/tls-peers.ts'

/** Agents retry by themselves, and the machine may be busy. */
const turnMs = 720_000

const undo = new AsyncDisposableStack()
let upstream: TestUpstream
let bench: EnclaveBench
let relay: Relay
let connected: Connected
let key: string
let home: string
/** Where the gateway is. */
let port: number

beforeAll(async () => {
  upstream = await startUpstream(decidingModel(() => ({ say: 'the words of the engine' })))
  undo.defer(upstream.stop)
  bench = undo.use(await EnclaveBench.start({ upstreams: [{ url: upstream.url }] }))
  key = bench.addKey()
  const { vmId } = await bench.serve()
  port = Number(new URL(bench.url(vmId)).port)
  relay = undo.use(await startRelay(port))
  const files = undo.use(policyFiles())
  const ca = files.file('both-ca.pem', bench.caPem + (await serverAuthority()).caPem)
  connected = undo.use(await startConnect(relay.url, [...benchOptions(bench, vmId, files), '--ca', ca]))
  home = mkdtempSync(join(tmpdir(), 'srt-agent-'))
  undo.defer(() => rmSync(home, { recursive: true, force: true }))
}, 300_000)
afterAll(() => undo.disposeAsync())

/** Chooses the model of the scripted engine. */
const model = (text: string) => text.replaceAll(/\bw\b/g, 'm')

/** Writes the file that the command names; returns the environment that it names, with the key. */
function settingsOf(id: string): Record<string, string> {
  const { env = {}, file = null } = connected.ready.clients[id] ?? {}
  if (file !== null) {
    const path = join(home, file.path.replace(/^~\//, ''))
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, model(file.text))
  }
  return Object.fromEntries(Object.entries(env).map(([name, value]) => [name, value === 'KEY' ? key : model(value)]))
}

/** Keeps an agent from calls that have nothing to do with its model. */
const QUIET = {
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  DISABLE_AUTOUPDATER: '1',
  OPENCODE_DISABLE_AUTOUPDATE: '1',
  OPENCODE_DISABLE_MODELS_FETCH: '1',
  NPM_CONFIG_REGISTRY: 'http://127.0.0.1:9/',
  NPM_CONFIG_FETCH_RETRIES: '0',
}

const AGENTS = [
  { id: 'claude_code', program: PROGRAMS['claude-code'] },
  { id: 'codex', program: PROGRAMS.codex },
  { id: 'opencode', program: PROGRAMS.opencode },
] as const

describe.each(AGENTS)('$id', ({ id, program }) => {
  const ask = async (path: string) => {
    const work = mkdtempSync(join(home, 'work-'))
    const env = { PATH: process.env.PATH ?? '', HOME: home, ...QUIET, ...settingsOf(id) }
    const child = Bun.spawn([path, ...program.argv('Say hi', 'first')], {
      ...{ cwd: work, env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' },
      ...{ timeout: turnMs, killSignal: 'SIGKILL' },
    })
    const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()])
    return { exit: await child.exited, text: `${out}${err}` }
  }

  // Goal: what the command prints is all that has to be set; the prompt goes through the verified gateway.
  test(
    'answers',
    async () => {
      const installed = await installAgent(program.name)
      const problem = 'problem' in installed ? installed.problem : null
      if (skipUnless(problem === null, `${id}: ${problem}`) || 'problem' in installed) return
      relay.lead(port)
      const before = upstream.seen.length
      expect(await ask(installed.path)).toEqual({ exit: 0, text: expect.stringContaining('the words of the engine') })
      expect(upstream.seen.length).toBeGreaterThan(before)
    },
    2 * turnMs,
  )

  // Goal: another gateway stands at the address: the person reads it in the agent, with what to do. Its engine gets
  // nothing.
  test(
    'prints why nothing was sent',
    async () => {
      if (skipUnless(runsAll || id === 'codex', `${id}: its refusals are read only by scripts/test --all`)) return
      const installed = await installAgent(program.name)
      const problem = 'problem' in installed ? installed.problem : null
      if (skipUnless(problem === null, `${id}: ${problem}`) || 'problem' in installed) return
      await using other = await startAttestedGateway(upstream)
      const before = upstream.seen.length
      relay.lead(other.port)
      const { exit, text } = await ask(installed.path)
      expect(exit).not.toBe(0)
      const words = text.replaceAll(/\s+/g, ' ')
      expect(words).toMatch(/Your prompt was not sent: the .* gateway\/measurement: measurement: [0-9a-f]{96} is not /)
      expect(words).toContain(`What to do: run strongroom verify gateway ${relay.url} with the options of`)
      expect(upstream.seen.length).toBe(before)
      relay.lead(port)
    },
    2 * turnMs,
  )
})
