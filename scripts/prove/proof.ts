// Shared by the parts of the proof: the booted Debian, findings of earlier parts for later ones, and short commands.
// Effects: those of `ProvedHost`.

import { readFileSync, writeFileSync } from 'node:fs'
import { editToml, type Setting } from '../../src/config/edit.ts'
import type { AdminStatus } from '../../src/contract/admin/admin.ts'
import type { Steps } from '../lib/steps.ts'
import type { Release } from '../rigs/booted/tree.ts'
import { until } from '../rigs/until.ts'
import type { ScriptedEngine } from './engine.ts'
import type { ProvedHost, Session } from './host.ts'
import type { Monitoring } from './monitoring.ts'
import type { ProvedPackages } from './packages.ts'
import type { Row } from './rows.ts'

/** Findings of earlier parts that later ones use. */
export type ProofState = {
  engine: ScriptedEngine
  key: string
  name: string
  session: Session
  monitoring: Monitoring
  bare: ReadonlySet<string>
  /** When the first package was requested; monotonic milliseconds. */
  startedMs: number
}

export type Proof = Pick<Steps, 'step' | 'note' | 'defer'> & {
  readonly host: ProvedHost
  readonly packages: ProvedPackages
  readonly release: Release
  /** A directory of this machine, which the container reads under the same path. */
  readonly directory: string
  readonly state: Partial<ProofState>
}

/** `run` returns a text where nothing was tried: why. */
export type Part = {
  readonly row: Row
  readonly name: string
  /** Nothing after it can be tried without it. */
  readonly isGround?: true
  readonly run: (proof: Proof) => Promise<undefined | string>
}

export const service = 'strongroom.service'
export const configFile = '/etc/strongroom/strongroom.toml'
export const stateDir = '/var/lib/strongroom'
export const commandTimeoutMs = 480_000
export const initTimeoutMs = 900_000

/** A finding of an earlier part. Throws where that part has failed. */
export function stateOf<Name extends keyof ProofState>({ state }: Proof, name: Name): ProofState[Name] {
  const found = state[name]
  if (found === undefined) throw new Error(`an earlier part has left no ${name}`)
  return found as ProofState[Name]
}

export async function succeed(host: ProvedHost, words: readonly string[], timeoutMs?: number): Promise<string> {
  const { exitCode, stdout, stderr } = await host.strongroom(words, timeoutMs)
  if (exitCode !== 0) throw new Error(`strongroom ${words.join(' ')}: ${exitCode}: ${stderr}${stdout}`)
  return stdout
}

/** A command that must fail; returns what it said. */
export async function refused(host: ProvedHost, words: readonly string[], timeoutMs?: number): Promise<string> {
  const { exitCode, stdout, stderr } = await host.strongroom(words, timeoutMs)
  if (exitCode === 0) throw new Error(`strongroom ${words.join(' ')} was not refused: ${stdout}`)
  return `${stderr}${stdout}`
}

/** The document of a command with --json, whatever its exit status. */
export async function documentOf<T>(host: ProvedHost, ...words: string[]): Promise<T> {
  const { stdout, stderr } = await host.strongroom([...words, '--json'], commandTimeoutMs)
  try {
    return JSON.parse(stdout) as T
  } catch {
    throw new Error(`strongroom ${words.join(' ')} --json: ${stderr}${stdout}`)
  }
}

export function statusOf(host: ProvedHost): Promise<AdminStatus> {
  return documentOf<AdminStatus>(host, 'status')
}

/** Names of the problems, in the order of their severity. */
export async function problemNames(host: ProvedHost): Promise<string[]> {
  return (await statusOf(host)).problems.map(({ name }) => name)
}

/** Sets fields of the configuration, and restarts the service. */
export async function configure(host: ProvedHost, settings: readonly Setting[]): Promise<void> {
  const file = `${host.debian.root}${configFile}`
  writeFileSync(file, editToml(readFileSync(file, 'utf8'), settings))
  await host.systemctl('restart', service)
  await host.answers()
}

export function setting(path: string, value: unknown): Setting {
  return { path: path.split('.'), value }
}

export function pidOf(host: ProvedHost): Promise<string> {
  return host.systemctl('show', '--value', '--property=MainPID', service)
}

/** Process ids of QEMU inside. */
export async function qemuPids({ debian }: ProvedHost): Promise<string[]> {
  const { stdout } = await debian.exec(['pgrep', '--full', 'qemu-system-x86_64.*-name'], { check: false })
  return stdout.split('\n').filter(Boolean)
}

/** The session of before answers, and the instance is ready. */
export async function stillThere(proof: Proof, line: string): Promise<void> {
  const [session, key, name] = [stateOf(proof, 'session'), stateOf(proof, 'key'), stateOf(proof, 'name')]
  await session.echoes(line)
  const { data } = await proof.host.api('GET', `/v1/instances/${name}`, key)
  expectEqual('status of the instance', data.status, 'ready')
}

export function expectEqual(what: string, found: string, expected: string): void {
  if (found !== expected) throw new Error(`${what}: ${found}, not ${expected}`)
}

export function expectText(what: string, text: string, ...expected: readonly (string | RegExp)[]): void {
  for (const pattern of expected) {
    const isThere = typeof pattern === 'string' ? text.includes(pattern) : pattern.test(text)
    if (!isThere) throw new Error(`${what} lacks ${pattern}: ${text}`)
  }
}

/** The commands at the beginning of a remedy, for a shell. */
export function commandsOf(remedy: string): string {
  const [list = ''] = /^run `[^`]+`(?:; `[^`]+`)*/.exec(remedy) ?? []
  return [...list.matchAll(/`([^`]+)`/g)].map(([, command]) => command).join('; ')
}

/** Waits, and says at the end what there was instead. */
export async function awaited(what: string, timeoutMs: number, look: () => Promise<string | null>): Promise<void> {
  let last: string | null = 'nothing'
  await until(what, timeoutMs, async () => {
    last = await look()
    return last === null
  }).catch(error => {
    throw new Error(`${error}: ${last}`)
  })
}
