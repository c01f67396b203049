// One agent of the command line in a home of its own, in front of a gateway in this process with a scripted engine.
// Effects: ports on loopback, a directory, processes.

import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { UsageRecord } from '../../../src/inference/metering/types.ts'
import { startHostGateway, target } from '../gateway/server.ts'
import { type Behaviour, startUpstream, type TestUpstream } from '../gateway/upstream-server.ts'
import { PROGRAMS, type Program, type Surroundings, trust } from './programs.ts'
import { type Recorder, startRecorder } from './recorder.ts'

export type Turn = { readonly exit: number; readonly out: string; readonly err: string }

export type Day = AsyncDisposable & {
  readonly program: Program
  readonly home: string
  /** The directory that the agent works in, below `home`. */
  readonly work: string
  readonly upstream: TestUpstream
  readonly recorder: Recorder
  readonly records: () => Promise<readonly UsageRecord[]>
  /** Runs the agent to its end. */
  readonly run: (argv: readonly string[], env?: Readonly<Record<string, string>>) => Promise<Turn>
}

/** Command line of an MCP server with this tool. */
export function mcpServer(tool: 'lookup' | 'weigh' | 'dump'): readonly string[] {
  return [process.execPath, resolve(import.meta.dir, 'mcp-server.ts'), tool]
}

/** On a machine with ten times its load, too. */
const turnMs = 720_000

type DayOptions = {
  readonly behave: Behaviour
  readonly surroundings?: Surroundings | undefined
}

export async function startDay(
  { name, path }: { readonly name: keyof typeof PROGRAMS; readonly path: string },
  { behave, surroundings = {} }: DayOptions,
): Promise<Day> {
  const undo = new AsyncDisposableStack()
  const upstream = await startUpstream(behave)
  undo.defer(upstream.stop)
  const limits = {
    ...{ bodyBytesMax: 32 * 1024 * 1024, bodyTimeoutMs: 60_000, firstByteTimeoutMs: 0, idleTimeoutMs: 120_000 },
    responseBytesMax: 8 * 1024 * 1024,
  }
  const engine = target(upstream.url, { content: ['image', 'file'] })
  const gateway = undo.use(startHostGateway([engine], { limits, caller: { tokensPerMinute: 1_000_000_000 } }))
  const recorder = undo.use(startRecorder(gateway.url))
  const home = mkdtempSync(join(tmpdir(), 'srt-agent-'))
  undo.defer(() => rmSync(home, { recursive: true, force: true }))
  const work = join(home, 'work')
  mkdirSync(work)
  const program: Program = PROGRAMS[name]
  const own = program.configure(home, recorder.url, surroundings)
  const env = { PATH: process.env.PATH ?? '', HOME: home, ...trust(), ...own }
  return {
    ...{ program, home, work, upstream, recorder, records: gateway.records },
    run: async (argv, more = {}) => {
      const child = Bun.spawn([path, ...argv], {
        ...{ cwd: work, env: { ...env, ...more }, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' },
        ...{ timeout: turnMs, killSignal: 'SIGKILL' },
      })
      const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()])
      return { exit: await child.exited, out, err }
    },
    [Symbol.asyncDispose]: () => undo.disposeAsync(),
  }
}
