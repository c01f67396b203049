// Network namespaces for tests. Effects: creates and removes namespaces named `srt-<pid>-<n>`; needs root.
//
// Two ways:
// - `createNetns()` gives an empty namespace with loopback up; `argv()` puts a command into it, so that a test can
//   start a whole daemon there.
// - `inOwnNetns(import.meta.path, () => { test(…) … })` runs a whole test file inside one: the outer `bun test` has a
//   single test that runs the
//   file again under `ip netns exec`, and only that inner run defines the tests. In-process calls (taps, nft, sockets)
//   then see the namespace.
// Closing kills whatever still runs inside: a program that a failed test left there, too, which may hold its pipes.
// Namespaces of test processes that are gone are removed before a new one is
// made.

import { afterAll, beforeAll, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { runCommand } from '../lib/command.ts'
import { withOwnNames } from '../lib/own-names.ts'

export type Netns = {
  readonly name: string
  /** The same command inside the namespace. */
  readonly argv: (argv: readonly string[]) => string[]
  /** Runs a command inside to its end and returns stdout; throws with its stderr when it fails. */
  readonly run: (argv: readonly string[], options?: { stdin?: string; timeoutMs?: number }) => Promise<string>
  readonly close: () => void
} & Disposable

/** No test is about it: a busy machine may take long to start a program. */
const runTimeoutMs = 60_000

let count = 0
const living = new Set<string>()

/** `using ns = createNetns()`. Also closed when the process exits without closing it. */
export function createNetns(): Netns {
  removeStaleNetns()
  count += 1
  const name = `srt-${process.pid}-${count}`
  ip('netns', 'add', name)
  living.add(name)
  ip('-netns', name, 'link', 'set', 'dev', 'lo', 'up')
  const argv = (inside: readonly string[]) => ['ip', 'netns', 'exec', name, ...inside]
  const close = () => {
    if (living.delete(name)) removeNetns(name)
  }
  return {
    name,
    argv,
    run: async (inside, { stdin = '', timeoutMs = runTimeoutMs } = {}) => {
      const child = Bun.spawn(argv(inside), {
        stdin: Buffer.from(stdin),
        stdout: 'pipe',
        stderr: 'pipe',
        timeout: timeoutMs,
      })
      const [stdout, stderr, exitCode] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
      if (exitCode !== 0) throw new Error(`${inside.join(' ')}: ${child.signalCode ?? exitCode}: ${stderr}${stdout}`)
      return stdout
    },
    close,
    [Symbol.dispose]: close,
  }
}

export const isRoot = process.getuid?.() === 0

/** True when it may go on; else says why not on stderr. */
export function needsRoot(what: string): boolean {
  if (!isRoot) process.stderr.write(`not run: ${what} needs root\n`)
  return isRoot
}

type OwnNetnsOptions = {
  readonly timeoutMs: number
  /** Runs once before the namespace exists, which reaches no other machine. */
  readonly before?: { readonly run: () => Promise<void>; readonly timeoutMs: number }
}

/** Defines the tests of one file inside a namespace of its own; see above. */
export function inOwnNetns(file: string, define: () => void, { timeoutMs, before }: OwnNetnsOptions): void {
  if (process.env[insideVariable] === file) {
    define()
    return
  }
  if (!needsRoot(file)) return
  if (before !== undefined) beforeAll(before.run, before.timeoutMs)
  const netns: { current?: Netns } = {}
  // Also when the test below runs into its own timeout.
  afterAll(() => netns.current?.close())
  test(
    `${file.split('/').at(-1)}: the tests of this file pass in a namespace of their own`,
    async () => {
      const own = createNetns()
      netns.current = own
      const test = [process.execPath, 'test', '--timeout', String(timeoutMs), file]
      const argv = own.argv(withOwnNames(own.name, test))
      const { exitCode, timedOut, output } = await runCommand(argv, { timeoutMs, env: { [insideVariable]: file } })
      own.close()
      const why = timedOut ? `not done after ${timeoutMs / 1000} s` : `exit code ${exitCode}`
      if (exitCode !== 0) throw new Error(`inside ${own.name}: ${why}\n${output}`)
    },
    timeoutMs + 30_000,
  )
}

const insideVariable = 'TEST_INSIDE_NETNS'

/** Removes namespaces that were left by test processes which are gone. */
export function removeStaleNetns(): void {
  for (const name of listNetns()) {
    const pid = Number(/^srt-(\d+)-\d+$/.exec(name)?.[1] ?? Number.NaN)
    if (Number.isInteger(pid) && !isTestProcess(pid)) removeNetns(name)
  }
}

/** The owner of a namespace is a bun; another program with its number is a successor. */
function isTestProcess(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').startsWith('bun')
  } catch {
    return false
  }
}

function listNetns(): string[] {
  return ip('netns', 'list')
    .split('\n')
    .map(line => line.split(' ')[0] ?? '')
    .filter(name => name.startsWith('srt-'))
}

function removeNetns(name: string): void {
  // Processes that a test left inside hold the namespace alive, taps and all.
  for (const pid of tryIp('netns', 'pids', name).split('\n').filter(Boolean)) {
    try {
      process.kill(Number(pid), 'SIGKILL')
    } catch {
      // Gone in the meantime.
    }
  }
  tryIp('netns', 'delete', name)
}

function ip(...argv: string[]): string {
  const { exitCode, stdout, stderr } = Bun.spawnSync(['ip', ...argv])
  if (exitCode !== 0) throw new Error(`ip ${argv.join(' ')}: ${stderr.toString()}`)
  return stdout.toString()
}

function tryIp(...argv: string[]): string {
  return Bun.spawnSync(['ip', ...argv]).stdout.toString()
}

process.on('exit', () => {
  for (const name of living) removeNetns(name)
})
