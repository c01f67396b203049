// Runs the program for the commands that need no daemon, as a process without a terminal.

import { expect } from 'bun:test'
import { join } from 'node:path'
import { phaseOf } from '../../scripts/lib/phases.ts'
import { runCli } from '../../src/cli/index.ts'
import { builtProgram } from './built/program.ts'
import { documentFaults } from './verdict-document.ts'

export const main = join(import.meta.dir, '../../src/main.ts')
export const vectors = join(import.meta.dir, '../vectors')

export type Result = { readonly code: number; readonly stdout: string; readonly stderr: string }

/** State directory and configuration do not exist: a command that uses either fails. */
const env = {
  PATH: process.env.PATH ?? '',
  STRONGROOM_STATE_DIR: '/nonexistent/state',
  STRONGROOM_CONFIG: '/nonexistent/strongroom.toml',
}

export function run(...argv: string[]): Promise<Result> {
  return runWith(env, argv)
}

/**
 * The command line that starts the program: from sources in unit tests, which need Bun alone, otherwise from the built
 * executable. The build runs at import, so that it takes no test's time.
 */
export const programArgv: readonly string[] =
  phaseOf(Bun.main) === 'unit' ? [process.execPath, main] : [await builtProgram()]

/** With this environment, and nothing else but the path of programs. */
export async function runWith(variables: Readonly<Record<string, string>>, argv: readonly string[]): Promise<Result> {
  const env = { PATH: process.env.PATH ?? '', ...variables }
  const child = Bun.spawn([...programArgv, ...argv], { env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { code, stdout, stderr }
}

/** One document on stdout, nothing on stderr. */
export async function runJson(...argv: string[]): Promise<{ code: number; document: Record<string, unknown> }> {
  const { code, stdout, stderr } = await run(...argv, '--json')
  expect([argv, stderr]).toEqual([argv, ''])
  return { code, document: JSON.parse(stdout) }
}

/**
 * Exit code 2, nothing on stdout, message and remedy on stderr; with --json the same as a document. Runs in this
 * process: to start another one takes as long as many of these checks.
 */
export async function expectUsageError(argv: readonly string[], message: string): Promise<void> {
  const people = await runHere(argv)
  expect([argv, people.code, people.stdout]).toEqual([argv, 2, ''])
  expect([argv, people.stderr]).toEqual([argv, expect.stringContaining(message)])
  expect(people.stderr).toContain('strongroom: ')
  expect(people.stderr).toMatch(/\nremedy: .+\n$/)
  const programs = await runHere([...argv, '--json'])
  expect([argv, programs.code, programs.stderr]).toEqual([argv, 2, ''])
  const { error } = JSON.parse(programs.stdout)
  expect([argv, error]).toMatchObject([argv, { code: 'invalid_request', message: expect.stringContaining(message) }])
}

/** `answer`: to each question; undefined if no person is there. */
type HereOptions = { isTerminal?: boolean; variables?: Record<string, string>; answer?: string }

/** The command line without a process around it. A verdict that it prints with --json meets its published schema. */
export async function runHere(
  argv: readonly string[],
  { isTerminal = false, variables = {}, answer }: HereOptions = {},
): Promise<Result> {
  const written = { stdout: '', stderr: '' }
  const code = await runCli(argv, {
    stdout: async text => {
      written.stdout += text
    },
    stderr: async text => {
      written.stderr += text
    },
    stdoutIsTerminal: isTerminal,
    stderrIsTerminal: isTerminal,
    ...(answer === undefined ? {} : { ask: async () => answer }),
    env: { ...env, ...variables },
    onSignal: () => () => {},
  })
  expect([argv, documentFaults(argv, written.stdout)]).toEqual([argv, []])
  return { code, ...written }
}

/** Names of the checks with this result, out of a --json document. */
export function checksOf(document: Record<string, unknown>, result: 'PASS' | 'FAIL' | 'NOT CHECKED'): string[] {
  const checks = document.checks as { name: string; result: string }[]
  return checks.filter(check => check.result === result).map(check => check.name)
}

/** The lines of `try next` in a verdict. */
export function commandsIn(stdout: string): string[] {
  const [, commands = ''] = /^try next +([\s\S]*?)\n(?! )/m.exec(stdout) ?? []
  return commands.split('\n').map(line => line.trim())
}

/** The words that a POSIX shell hands to `strongroom` for this command. */
export function pastedWords(command = 'false'): string[] {
  const script = `strongroom() { for word in "$@"; do printf '%s\\0' "$word"; done; }\n${command}`
  const { stdout, exitCode } = Bun.spawnSync(['sh', '-c', script], { env: {} })
  expect(exitCode).toBe(0)
  return stdout.toString().split('\0').slice(0, -1)
}
