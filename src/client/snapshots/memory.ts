// Remembers each instance's SSH host key, which signs its snapshots, and its newest snapshot. Detects older snapshots
// and those of other instances. Effects: files below ~/.config/strongroom/snapshots.
//
// A file outlives its instance, whose snapshots are restored after its end.

import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { utf8 } from '../../base/bytes.ts'
import { parseJson } from '../../base/json.ts'
import { resultOr } from '../../base/result-or.ts'
import { checkValue } from '../../contract/check.ts'
import { Open, OrNull, Sha256 } from '../../contract/forms.ts'
import { type Static, Type } from '../../contract/type.ts'
import { ensureDir, writeFileAtomic } from '../../linux/files.ts'
import { InputFault } from '../../terminal/exit.ts'
import { KIB } from '../../terminal/input-file.ts'
import { readOwnFile } from '../client-config.ts'

/** Fields of later releases stay when this one writes the file. */
export const SeenSnapshots = Open({
  hostname: Type.String({ pattern: '^[a-z0-9][a-z0-9.-]{0,252}$' }),
  /** The name on this machine when it was last verified; null without one. */
  localName: OrNull(Type.String({ maxLength: 32 })),
  /** Verified host key, `ssh-ed25519 AAAA…`. */
  hostKey: Type.String({ pattern: '^ssh-ed25519 [A-Za-z0-9+/=]{68}$' }),
  /** When it was last verified or seen. */
  atMs: Type.Integer({ minimum: 0 }),
  /** The newest snapshot; null before the first. */
  newest: OrNull(Open({ number: Type.Integer({ minimum: 1 }), sha256: Sha256 })),
})
export type SeenSnapshots = Static<typeof SeenSnapshots>

const fileBytesMax = 8 * KIB
/** No share: files of one user. */
const filesMax = 10_000

export class SnapshotMemory {
  readonly #directory: string

  /** `base`: the directory of client.toml. */
  constructor(base: string) {
    this.#directory = join(base, 'snapshots')
  }

  /** Null if nothing is known. Fault invalid_request if the file is damaged. */
  find(hostname: string): SeenSnapshots | null {
    const path = this.#path(hostname)
    const text = readOwnFile(path, fileBytesMax)
    if (text === null) return null
    const parsed = checkValue(
      SeenSnapshots,
      resultOr(() => parseJson(utf8(text), { depthMax: 4 }), null),
    )
    if (parsed.ok && parsed.value.hostname === hostname) return parsed.value
    throw new InputFault(`${path}: ${parsed.ok ? 'it is of another instance' : parsed.problem}`, {
      remedy: 'restore the file, or remove it: then an older snapshot of this instance is not noticed',
    })
  }

  /** The instance that last had this name on this machine; null if none is known. */
  named(localName: string): SeenSnapshots | null {
    const named = this.#hostnames().flatMap(hostname => {
      const seen = resultOr(() => this.find(hostname), null)
      return seen?.localName === localName ? [seen] : []
    })
    return named.toSorted((a, b) => b.atMs - a.atMs)[0] ?? null
  }

  /**
   * Stores a verified host key, and forgets the newest snapshot of an earlier key of the host name. Fault
   * invalid_request if the file is damaged: replaced, it would let an older snapshot through.
   */
  verified(now: Omit<SeenSnapshots, 'newest'>): void {
    const before = this.find(now.hostname)
    this.#write({ newest: null, ...(before?.hostKey === now.hostKey ? before : {}), ...now })
  }

  /** Stores a snapshot if it is newer than the newest. */
  saw(seen: SeenSnapshots, newest: NonNullable<SeenSnapshots['newest']>): void {
    const before = this.find(seen.hostname) ?? seen
    if (before.newest === null || before.newest.number < newest.number) this.#write({ ...before, newest })
  }

  #write(seen: SeenSnapshots): void {
    ensureDir(this.#directory, { mode: 0o700 })
    writeFileAtomic(this.#path(seen.hostname), `${JSON.stringify(seen, null, 2)}\n`, { mode: 0o600 })
  }

  #path(hostname: string): string {
    return join(this.#directory, `${hostname}.json`)
  }

  #hostnames(): string[] {
    const files = resultOr(() => readdirSync(this.#directory), [])
    return files.flatMap(file => (file.endsWith('.json') ? [file.slice(0, -'.json'.length)] : [])).slice(0, filesMax)
  }
}
