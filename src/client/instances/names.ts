// The names that this user gives to instances, one file each below ~/.config/strongroom/instances, beside the
// known_hosts file with the host keys that were verified. Effects: these files. Fault invalid_request.
//
// Service A draws the names of instances, so a name like `work` exists here alone. A file is written before the request
// that creates its instance: an interrupted command goes on with the same Idempotency-Key and creates no second VM.

import { linkSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { utf8 } from '../../base/bytes.ts'
import { systemClock } from '../../base/clock.ts'
import { Fault, systemErrorCode, wrapFault } from '../../base/fault.ts'
import { newUuid } from '../../base/ids.ts'
import { parseJson } from '../../base/json.ts'
import { resultOr } from '../../base/result-or.ts'
import { checkValue } from '../../contract/check.ts'
import { Open, OrNull } from '../../contract/forms.ts'
import { egressPolicyBytesMax } from '../../contract/http/egress-policy.ts'
import { type Static, Type } from '../../contract/type.ts'
import { ensureDir, writeFileAtomic } from '../../linux/files.ts'
import { type FileLock, lockFile } from '../../linux/lock.ts'
import { InputFault } from '../../terminal/exit.ts'
import { KIB } from '../../terminal/input-file.ts'
import type { Io } from '../../terminal/io.ts'
import { readInstanceHostname } from '../../verifier/instance.ts'
import { clientDirectory, readOwnFile } from '../client-config.ts'

/** A word that is no option, no path and no host name. */
export const localNamePattern = /^[a-z0-9][a-z0-9-]{0,31}$/

/** Fields of later releases stay when this one writes the file: two releases may share a home directory. */
export const LocalInstance = Open({
  /** Origin of service A. */
  api: Type.String({ minLength: 1, maxLength: 300 }),
  idempotencyKey: Type.String({ pattern: '^[a-z0-9-]{1,64}$' }),
  publicKey: Type.String({ minLength: 1, maxLength: 8_192 }),
  /** Null if the operator chooses. */
  model: OrNull(Type.String({ minLength: 1, maxLength: 256 })),
  /** Canonical text of the egress policy of the request; absent without one. */
  egress: Type.Optional(Type.String({ minLength: 1, maxLength: egressPolicyBytesMax })),
  requestedAtMs: Type.Integer({ minimum: 0 }),
  /** Null until service A has answered. */
  hostname: OrNull(Type.String({ maxLength: 253 })),
  /** Address in the verified claim; null before. */
  address: OrNull(Type.String({ pattern: '^[0-9a-f.:]{2,39}$' })),
  /** Snapshot that is still to be restored, as INSTANCE:NUMBER. */
  restoring: Type.Optional(Type.String({ pattern: '^[a-z0-9]{8}:[0-9]{1,9}$' })),
  /** Files beside client.toml: the manifests that it was verified with. Absent before the first PASS. */
  image: Type.Optional(Type.String({ pattern: '^instance-manifest-[0-9a-f]{16}\\.json$' })),
  gatewayImage: Type.Optional(Type.String({ pattern: '^inference-manifest-[0-9a-f]{16}\\.json$' })),
  /** Host key of the last PASS, `ssh-ed25519 AAAA…`: only the VM that has it may run these images after an upgrade. */
  hostKey: Type.Optional(Type.String({ pattern: '^ssh-ed25519 [A-Za-z0-9+/=]{68}$' })),
})
export type LocalInstance = Static<typeof LocalInstance>

const fileBytesMax = 32 * KIB
/** No share: files of one user. */
const namesMax = 10_000

export type LocalNames = {
  /** The known_hosts file with verified host keys. */
  readonly knownHosts: string
  readonly find: (name: string) => LocalInstance | null
  /** Leaves out files that cannot be read. */
  readonly list: () => readonly (readonly [name: string, instance: LocalInstance])[]
  /** Returns a fault for each file that cannot be read. */
  readonly damaged: () => readonly InputFault[]
  /** Returns the record of another command if one has begun meanwhile. */
  readonly begin: (name: string, instance: LocalInstance) => LocalInstance
  /**
   * Replaces or forgets (null) the record with the Idempotency-Key of `earlier`. Returns false, and changes nothing, if
   * another command has forgotten or replaced that meanwhile: its instance would be lost otherwise.
   */
  readonly replace: (name: string, earlier: LocalInstance, next: LocalInstance | null) => Promise<boolean>
  /** Runs work on known_hosts and on existing records while no other command does. Fault conflict after a while. */
  readonly alone: <T>(work: () => T) => Promise<T>
}

export function localNames(env: Io['env']): LocalNames {
  const base = clientDirectory(env)
  if (base === null) {
    throw new InputFault('cannot find the directory of client.toml: HOME is not set', {
      remedy: 'set HOME, or XDG_CONFIG_HOME',
    })
  }
  const directory = join(base, 'instances')
  const fileOf = (name: string) => join(directory, `${name}.json`)
  const find = (name: string) => (localNamePattern.test(name) ? readRecord(fileOf(name)) : null)
  const text = (instance: LocalInstance) => `${JSON.stringify(instance, null, 2)}\n`
  const read = (): [string, LocalInstance | InputFault][] =>
    namesIn(directory).flatMap(name => {
      const found = orFault(() => find(name))
      return found === null ? [] : [[name, found]]
    })
  const alone = async <T>(work: () => T): Promise<T> => {
    ensureDir(directory, { mode: 0o700 })
    using _ = await lockOf(join(directory, 'lock'))
    return work()
  }
  return {
    knownHosts: join(base, 'known_hosts'),
    find,
    list: () => read().flatMap(([name, found]) => (found instanceof InputFault ? [] : [[name, found] as const])),
    damaged: () => read().flatMap(([, found]) => (found instanceof InputFault ? [found] : [])),
    begin: (name, instance) => {
      ensureDir(directory, { mode: 0o700 })
      for (let attempts = 1; ; attempts += 1) {
        if (writeNew(fileOf(name), text(instance))) return instance
        const other = find(name)
        if (other !== null) return other
        if (attempts >= beginAttemptsMax) throw new Fault('conflict', `other commands begin and forget ${name}`)
      }
    },
    replace: (name, earlier, next) =>
      alone(() => {
        if (find(name)?.idempotencyKey !== earlier.idempotencyKey) return false
        if (next === null) rmSync(fileOf(name), { force: true })
        else writeFileAtomic(fileOf(name), text(next), { mode: 0o600 })
        return true
      }),
    alone,
  }
}

/** No share: attempts of one command, each of which another command has outrun. */
const beginAttemptsMax = 10

function orFault<T>(work: () => T): T | InputFault {
  try {
    return work()
  } catch (error) {
    if (error instanceof InputFault) return error
    throw error
  }
}

const lockTimeoutMs = 10_000
const lockRetryMs = 50

async function lockOf(path: string): Promise<FileLock> {
  const endMs = systemClock.monotonicMs() + lockTimeoutMs
  for (;;) {
    try {
      return lockFile(path)
    } catch (error) {
      const isHeld = error instanceof Fault && error.code === 'conflict'
      if (!isHeld || systemClock.monotonicMs() >= endMs) throw error
    }
    await systemClock.sleep(lockRetryMs)
  }
}

function readRecord(path: string): LocalInstance | null {
  const text = readOwnFile(path, fileBytesMax)
  if (text === null) return null
  const parsed = checkValue(
    LocalInstance,
    resultOr(() => parseJson(utf8(text), { depthMax: 4 }), null),
  )
  const hostname = parsed.ok ? parsed.value.hostname : null
  if (parsed.ok && (hostname === null || readInstanceHostname(hostname) !== null)) return parsed.value
  throw new InputFault(`${path}: ${parsed.ok ? '/hostname: not a host name of an instance' : parsed.problem}`, {
    remedy: 'remove the file; `strongroom ls` still shows the instance, under the name that the service gave it',
  })
}

function namesIn(directory: string): string[] {
  try {
    const names = readdirSync(directory).flatMap(file =>
      file.endsWith('.json') ? [file.slice(0, -'.json'.length)] : [],
    )
    return names
      .filter(name => localNamePattern.test(name))
      .sort()
      .slice(0, namesMax)
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return []
    throw wrapFault(error, directory)
  }
}

/** Writes a file that does not exist yet; returns false if it does. A reader finds the whole file or none. */
function writeNew(path: string, text: string): boolean {
  const staged = `${path}.${newUuid()}`
  try {
    writeFileAtomic(staged, text, { mode: 0o600 })
    linkSync(staged, path)
    return true
  } catch (error) {
    if (systemErrorCode(error) === 'EEXIST') return false
    throw wrapFault(error, path)
  } finally {
    rmSync(staged, { force: true })
  }
}
