// Ciphertexts of snapshots on this host's disk, each with its record beside it. Effects: one directory.
//
// A record is written last, so a ciphertext without one is unfinished, and the next start removes it. Records are files
// and no rows: a ciphertext and what is known of it are lost, or restored, together.

import { existsSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { join } from 'node:path'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { checkedJson } from '../../contract/check.ts'
import { Closed } from '../../contract/forms.ts'
import { SignedSnapshot, SnapshotNumber } from '../../contract/snapshot.ts'
import { type Static, Type } from '../../contract/type.ts'
import { ensureDir, syncDirectory, writeFileAtomic } from '../../linux/files.ts'

export const KeptSnapshot = Closed({
  instanceId: Type.String({ pattern: '^[0-9a-f-]{36}$' }),
  organizationId: Type.String({ minLength: 1, maxLength: 64 }),
  /** Name of the instance. */
  name: Type.String({ pattern: '^[a-z0-9]{8}$' }),
  number: SnapshotNumber,
  bytes: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  createdAtMs: Type.Integer({ minimum: 0 }),
  signed: SignedSnapshot,
})
export type KeptSnapshot = Static<typeof KeptSnapshot>

export type SnapshotOwner = Pick<KeptSnapshot, 'instanceId' | 'organizationId'>

/** A ciphertext that arrives. Exactly one of `keep` and `drop` ends it. */
export type Arriving = {
  readonly bytes: () => number
  /** Rejects with the failure of the disk. */
  readonly write: (chunk: Uint8Array) => Promise<void>
  /** Makes it a snapshot. Durable once it resolves. */
  readonly keep: (record: Omit<KeptSnapshot, 'bytes' | keyof SnapshotOwner>) => Promise<KeptSnapshot>
  readonly drop: () => Promise<void>
}

const arrivingName = 'arriving.age'

export class SnapshotFiles {
  readonly #directory: string
  readonly #log: Logger
  /** By instance, the oldest first. */
  readonly #kept = new Map<string, KeptSnapshot[]>()
  /** By instance. */
  readonly #arriving = new Map<string, SnapshotOwner & Pick<Arriving, 'bytes'>>()

  /** Reads the directory and removes what is unfinished. */
  constructor(directory: string, log: Logger) {
    this.#directory = directory
    this.#log = log
    for (const id of existsSync(directory) ? readdirSync(directory) : []) this.#load(id)
  }

  list(organizationId: string): readonly KeptSnapshot[] {
    return [...this.#kept.values()].flat().filter(record => record.organizationId === organizationId)
  }

  of(instanceId: string): readonly KeptSnapshot[] {
    return this.#kept.get(instanceId) ?? []
  }

  instances(): readonly string[] {
    return [...this.#kept.keys()]
  }

  /** Bytes on the disk, those that arrive included: of an organization (null: of all), without those of an instance. */
  bytes(organizationId: string | null, except: string | null = null): number {
    const counts = (owner: SnapshotOwner) =>
      (organizationId === null || owner.organizationId === organizationId) && owner.instanceId !== except
    const kept = [...this.#kept.values()].flat().filter(counts)
    const arriving = [...this.#arriving.values()].filter(counts)
    return kept.reduce((sum, { bytes }) => sum + bytes, 0) + arriving.reduce((sum, { bytes }) => sum + bytes(), 0)
  }

  arriving(organizationId: string | null): number {
    const owners = [...this.#arriving.values()]
    return owners.filter(owner => organizationId === null || owner.organizationId === organizationId).length
  }

  arrivingBytes(instanceId: string): number {
    return this.#arriving.get(instanceId)?.bytes() ?? 0
  }

  path({ instanceId, number }: Pick<KeptSnapshot, 'instanceId' | 'number'>): string {
    return join(this.#directory, instanceId, `${number}.age`)
  }

  /** Begins a ciphertext. At most one of an instance. */
  async begin(owner: SnapshotOwner): Promise<Arriving> {
    const { instanceId } = owner
    if (this.#arriving.has(instanceId)) throw new Fault('conflict', 'A snapshot of this instance is under way.')
    let sizeBytes = 0
    const bytes = () => sizeBytes
    this.#arriving.set(instanceId, { ...owner, bytes })
    const directory = join(this.#directory, instanceId)
    const path = join(directory, arrivingName)
    let file: FileHandle
    try {
      ensureDir(directory, { mode: 0o700 })
      file = await open(path, 'w', 0o600)
    } catch (error) {
      this.#arriving.delete(instanceId)
      throw error
    }
    const end = async () => {
      await file.close()
      this.#arriving.delete(instanceId)
    }
    return {
      bytes,
      write: async chunk => {
        for (let at = 0; at < chunk.length; ) at += (await file.write(chunk, at)).bytesWritten
        sizeBytes += chunk.length
      },
      keep: async facts => {
        const record: KeptSnapshot = { ...facts, ...owner, bytes: sizeBytes }
        if (this.of(instanceId).some(({ number }) => number >= record.number))
          throw new Fault('conflict', `Snapshot ${record.number} is not newer than the last one of this instance.`)
        await file.sync()
        renameSync(path, this.path(record))
        syncDirectory(directory)
        writeFileAtomic(this.#recordPath(record), JSON.stringify(record), { mode: 0o600 })
        await end()
        this.#kept.set(instanceId, [...this.of(instanceId), record])
        return record
      },
      drop: async () => {
        await end()
        rmSync(path, { force: true })
        this.#removeEmpty(instanceId)
      },
    }
  }

  /** Removes a snapshot: its record first, so that no start finds half of it. */
  remove(record: KeptSnapshot): void {
    const { instanceId } = record
    rmSync(this.#recordPath(record), { force: true })
    rmSync(this.path(record), { force: true })
    const left = this.of(instanceId).filter(({ number }) => number !== record.number)
    if (left.length > 0) this.#kept.set(instanceId, left)
    else this.#kept.delete(instanceId)
    this.#removeEmpty(instanceId)
  }

  #recordPath({ instanceId, number }: Pick<KeptSnapshot, 'instanceId' | 'number'>): string {
    return join(this.#directory, instanceId, `${number}.json`)
  }

  #removeEmpty(instanceId: string): void {
    const directory = join(this.#directory, instanceId)
    const isUsed = this.#kept.has(instanceId) || this.#arriving.has(instanceId)
    if (!isUsed) rmSync(directory, { recursive: true, force: true })
  }

  #load(instanceId: string): void {
    const directory = join(this.#directory, instanceId)
    try {
      const names = new Set(readdirSync(directory))
      const records = [...names].flatMap(name => (name.endsWith('.json') ? [this.#read(directory, name)] : []))
      const kept = records.filter(record => record.instanceId === instanceId).sort((a, b) => a.number - b.number)
      const wanted = new Set(kept.flatMap(({ number }) => [`${number}.json`, `${number}.age`]))
      for (const name of names) if (!wanted.has(name)) rmSync(join(directory, name), { recursive: true, force: true })
      if (kept.length > 0) this.#kept.set(instanceId, kept)
      else rmSync(directory, { recursive: true, force: true })
    } catch (error) {
      this.#log.error('snapshots of an instance cannot be read; they are left as they are', {
        directory,
        reason: messageOf(error),
      })
    }
  }

  #read(directory: string, name: string): KeptSnapshot {
    const path = join(directory, name)
    const record = checkedJson(KeptSnapshot, readFileSync(path), { what: path, code: 'internal' })
    const { size } = statSync(this.path(record))
    if (size !== record.bytes)
      throw new Fault('internal', `${this.path(record)}: ${size} bytes instead of ${record.bytes}`)
    return record
  }
}
