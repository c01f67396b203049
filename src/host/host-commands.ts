// Commands that change this host without its daemon, such as backup, restore, upgrade and downgrade: each leaves a file
// in the state directory, which the daemon takes into the record of commands. Effects: that directory.

import { existsSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { type Static, Type } from '@sinclair/typebox'
import { newUuid, systemRandom } from '../base/ids.ts'
import { checkedJson } from '../contract/check.ts'
import { Closed } from '../contract/forms.ts'
import { removeFile } from '../linux/files/removal.ts'
import { writeFileAtomic } from '../linux/files.ts'
import { databaseFile } from './state-files.ts'

export const HostCommand = Closed({
  atMs: Type.Integer({ minimum: 0 }),
  uid: Type.Integer({ minimum: 0 }),
  gid: Type.Integer({ minimum: 0 }),
  pid: Type.Integer({ minimum: 0 }),
  operation: Type.String({ pattern: '^[a-z]{1,32}$' }),
  arguments: Type.Record(Type.String({ maxLength: 64 }), Type.Unknown()),
  /** `ok`, a fault code, or the outcome of an upgrade. */
  result: Type.String({ pattern: '^[a-z_.]{1,64}$' }),
})
export type HostCommand = Static<typeof HostCommand>

export const hostCommandsDir = 'host-commands'
/** Files that wait for a daemon. No share: only root runs such commands; beyond it the oldest is dropped. */
const waitingMax = 1_000
const fileBytesMax = 8_192

/** Names sort by time. */
const fileName = /^\d{15}-[0-9a-f-]{36}\.json$/

/** Returns false if it could not be noted; the command itself is as good. A host without records gets no file. */
export function noteHostCommand(
  stateDir: string,
  command: Pick<HostCommand, 'operation' | 'arguments' | 'result'>,
  nowMs: number,
): boolean {
  if (!existsSync(join(stateDir, databaseFile))) return false
  try {
    const directory = join(stateDir, hostCommandsDir)
    mkdirSync(directory, { recursive: true, mode: 0o700 })
    const waiting = namesIn(directory)
    for (const name of waiting.slice(0, Math.max(0, waiting.length - waitingMax + 1))) removeFile(join(directory, name))
    const who = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0, pid: process.pid }
    const text = JSON.stringify({ atMs: Math.floor(nowMs), ...who, ...command } satisfies HostCommand)
    if (text.length > fileBytesMax) return false
    const name = `${String(Math.floor(nowMs)).padStart(15, '0')}-${newUuid(systemRandom)}.json`
    writeFileAtomic(join(directory, name), text, { mode: 0o600 })
    return true
  } catch {
    return false
  }
}

/** `command` is null for a file that holds none. */
export type WaitingCommand = { readonly name: string; readonly command: HostCommand | null }

/** Returns the commands that wait, oldest first. */
export function waitingHostCommands(stateDir: string): readonly WaitingCommand[] {
  const directory = join(stateDir, hostCommandsDir)
  if (!existsSync(directory)) return []
  return namesIn(directory).map(name => ({ name, command: read(join(directory, name)) }))
}

export function removeHostCommand(stateDir: string, name: string): void {
  removeFile(join(stateDir, hostCommandsDir, name))
}

function namesIn(directory: string): string[] {
  return readdirSync(directory)
    .filter(name => fileName.test(name))
    .toSorted()
}

function read(path: string): HostCommand | null {
  try {
    if (statSync(path).size > fileBytesMax) return null
    return checkedJson(HostCommand, readFileSync(path), { what: path, code: 'internal' })
  } catch {
    return null
  }
}
