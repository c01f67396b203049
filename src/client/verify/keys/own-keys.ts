// The caller's own SSH public keys, one of which an instance must accept. Effects: reads files below ~/.ssh, runs
// ssh-add. Fault invalid_request.

import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { parsed } from '../../../attest/malformed.ts'
import type { Check } from '../../../attest/verdict.ts'
import { run } from '../../../linux/command.ts'
import { InputFault } from '../../../terminal/exit.ts'
import { KIB, readTextInput } from '../../../terminal/input-file.ts'
import type { Io } from '../../../terminal/io.ts'
import { readSshKey } from '../../../verifier/ssh-key.ts'

/** Keys in OpenSSH's format. */
export type OwnKeys = {
  readonly lines: readonly string[]
  /** Origin of each line: a path, `ssh-agent`, or the option. */
  readonly sources: ReadonlyMap<string, string>
  /** False if `--public-key` or client.toml names the only key. */
  readonly isSearched: boolean
}

const keyBytesMax = 16 * KIB
/** Limit on files in ~/.ssh, and on keys of the agent, that are read. */
const keysMax = 64
const agentTimeoutMs = 10_000
const linePattern = /^(?:ssh|ecdsa|sk)-[^\s/]+[ \t]+[A-Za-z0-9+/]+=*(?:[ \t]|$)/

/**
 * Returns the key `named`: a line of OpenSSH, or its file. Otherwise returns the keys that ssh would offer: those of
 * `~/.ssh/*.pub`, of the agent, and beside the identity files in `identities`.
 */
export async function readOwnKeys(
  env: Io['env'],
  named: string | undefined,
  identities: readonly string[] = [],
): Promise<OwnKeys> {
  if (named !== undefined) {
    const line = namedKey(named)
    return { lines: [line], sources: new Map([[line, 'named by --public-key or client.toml']]), isSearched: false }
  }
  const directory = env.HOME === undefined || env.HOME === '' ? null : join(env.HOME, '.ssh')
  const files = directory === null ? [] : publicKeyFiles(directory)
  const ofIdentities = identities.map(path => (path.endsWith('.pub') ? path : `${path}.pub`)).filter(existsSync)
  const sources = new Map<string, string>()
  const add = (lines: readonly string[], source: string) => {
    for (const line of lines) if (!sources.has(line)) sources.set(line, source)
  }
  for (const path of [...ofIdentities, ...files]) add(fileLines(path), path)
  add(await agentLines(env), 'ssh-agent')
  return { lines: [...sources.keys()], sources, isSearched: true }
}

function namedKey(named: string): string {
  const isLine = linePattern.test(named)
  const text = isLine ? named : readTextInput({ path: named, param: 'public-key', bytesMax: keyBytesMax })
  const key = parsed(() => readSshKey(text.trim()))
  if (key.ok) return text.trim()
  throw new InputFault(`--public-key ${isLine ? '' : named}: ${key.reason}`, {
    param: 'public-key',
    remedy: 'give a public key as OpenSSH writes it, or the file with it',
  })
}

/** Returns the keys in the file, one a line. Fault invalid_request. */
export function readLoginKeys(path: string): readonly string[] {
  const text = readTextInput({ path, param: 'login-keys', bytesMax: keysMax * keyBytesMax })
  const lines = text.split('\n').filter(line => line.trim() !== '' && !line.startsWith('#'))
  const bad = lines.map(line => parsed(() => readSshKey(line.trim()))).find(key => !key.ok)
  if (lines.length > 0 && bad === undefined) return lines.map(line => line.trim())
  throw new InputFault(`--login-keys ${path}: ${bad?.ok === false ? bad.reason : 'it has no key'}`, {
    param: 'login-keys',
    remedy: 'give one public key a line, as OpenSSH writes them',
  })
}

function publicKeyFiles(directory: string): string[] {
  if (!existsSync(directory)) return []
  const names = readdirSync(directory).filter(name => name.endsWith('.pub'))
  return names
    .sort()
    .slice(0, keysMax)
    .map(name => join(directory, name))
}

/** Returns a file's keys; none if the file is not a public key. */
function fileLines(path: string): string[] {
  try {
    return keyLines(readTextInput({ path, param: 'public-key', bytesMax: keyBytesMax }))
  } catch (error) {
    if (error instanceof InputFault) return []
    throw error
  }
}

/** Returns the agent's keys; none if it does not respond. */
async function agentLines(env: Io['env']): Promise<string[]> {
  const { SSH_AUTH_SOCK: socket } = env
  if (socket === undefined || socket === '') return []
  try {
    const agent = { PATH: env.PATH ?? '', SSH_AUTH_SOCK: socket }
    const { stdout } = await run(['ssh-add', '-L'], {
      timeoutMs: agentTimeoutMs,
      outputBytesMax: keyBytesMax * 4,
      env: agent,
    })
    return keyLines(stdout)
  } catch {
    return []
  }
}

function keyLines(text: string): string[] {
  const lines = text.split('\n').map(line => line.trim())
  return lines.filter(line => parsed(() => readSshKey(line)).ok).slice(0, keysMax)
}

export type OwnKey = {
  readonly line: string
  /** A path, `ssh-agent`, or the option. */
  readonly source: string
}

/** Returns the own key that passed the library's check; null if none did. */
export function acceptedKey(checks: readonly Check[], { lines, sources }: OwnKeys): OwnKey | null {
  const check = checks.find(({ name, outcome }) => name === 'own-key' && outcome === 'pass')
  const line = lines.find(line => readSshKey(line).fingerprint === check?.reason)
  return line === undefined ? null : { line, source: sources.get(line) ?? '' }
}

/** Adds to the library's check of the key: which key matched, or what to do. */
export function withOwnKeyAdvice(check: Check, { isSearched, lines, sources }: OwnKeys): Check {
  if (check.name === 'own-key' && check.outcome === 'pass') {
    const found = lines.find(line => readSshKey(line).fingerprint === check.reason)
    return found === undefined ? check : { ...check, reason: `${check.reason}, ${sources.get(found)}` }
  }
  if (check.name !== 'own-key' || check.outcome !== 'fail' || !isSearched) return check
  const counted = '~/.ssh/*.pub and ssh-agent'
  const found = lines.length === 0 ? `none was found in ${counted}` : `keys of ${counted} count as yours`
  const advice = `${found}; if it is yours, name it by --public-key`
  return { ...check, reason: `${check.reason}; ${advice}` }
}

/** Options of ssh(1) that take a value. */
const valued = 'BbcDEeFIiJLlmOopQRSWw'

/** Returns the identity files that arguments of ssh(1) name with -i, up to the remote command. */
export function identitiesOf(args: readonly string[]): string[] {
  const identities: string[] = []
  for (let at = 0; at < args.length; at += 1) {
    const arg = args[at] ?? ''
    if (!arg.startsWith('-') || arg === '--') break
    const letter = [...arg.slice(1)].findIndex(option => valued.includes(option))
    if (letter === -1) continue
    const rest = arg.slice(letter + 2)
    if (rest === '') at += 1
    if (arg[letter + 1] === 'i') identities.push(rest === '' ? (args[at] ?? '') : rest)
  }
  return identities
}
