// Ciphertexts of snapshots on this host's disk, each with its record beside it. Effects: one directory.
//
// A record is written last, so a ciphertext without one is unfinished, and the next start removes it. Records are files
// and no rows: a ciphertext and what is known of it are lost, or restored, together. A record that cannot be read keeps
// its ciphertext on the disk, counted, until the instance's own record goes. An empty file notes that the VM has signed
// a snapshot which is not kept.

import { existsSync, readdirSync, readFileSync, renameSync, rmdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { join } from 'node:path'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { resultOr } from '../../base/result-or.ts'
import { checkedJson } from '../../contract/check.ts'
import { SignedSnapshot, SnapshotNumber } from '../../contract/snapshot.ts'
import { type Static, Type } from '../../contract/type.ts'
import { ensureDir, syncDirectory, writeFileAtomic } from '../../linux/files.ts'

const instanceIdPattern = '^[0-9a-f-]{36}$'

/** Fields of later releases are ignored: a downgrade must not lose snapshots. */
export const KeptSnapshot = Type.Object({
  instanceId: Type.String({ pattern: instanceIdPattern }),
  organizationId: Type.String({ minLength: 1, maxLength: 64 }),
  /** Name of the instance. */
  name: Type.String({ pattern: '^[a-z0-9]{8}$' }),
  number: SnapshotNumber,
  bytes: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  createdAtMs: Type.Integer({ minimum: 0 }),
  signed: SignedSnapshot,
  /** No command took it: a schedule, or an idle end. Left out otherwise. */
  isUnattended: Type.Optional(Type.Literal(true)),
})
export type KeptSnapshot = Static<typeof KeptSnapshot>

export type SnapshotOwner = Pick<KeptSnapshot, 'instanceId' | 'organizationId'>

/** A ciphertext that arrives. Exactly one of `keep` and `drop` ends it. */
export type Arriving = {
  readonly bytes: () => number
  /** Rejects with the failure of the disk. */
  readonly write: (chunk: Uint8Array) => Promise<void>
  /** Notes that the VM, which counts from what it signs, has signed it. Lasts until one is kept. Never throws. */
  readonly noteSigned: () => void
  /** Makes it a snapshot. Durable once it resolves. */
  readonly keep: (record: Omit<KeptSnapshot, 'bytes' | keyof SnapshotOwner>) => Promise<KeptSnapshot>
  readonly drop: () => Promise<void>
}

/** Unreadable records of an instance. The bytes of a directory that cannot be listed are unknown, and count as 0. */
type Unreadable = { readonly newest: number; readonly bytes: number }

const arrivingName = 'arriving.age'
const signedName = 'signed'

export class SnapshotFiles {
  readonly #directory: string
  readonly #log: Logger
  /** By instance, the oldest first. */
  readonly #kept = new Map<string, KeptSnapshot[]>()
  /** By instance. */
  readonly #arriving = new Map<string, SnapshotOwner & Pick<Arriving, 'bytes'>>()
  /** By instance. */
  readonly #unreadable = new Map<string, Unreadable>()
  /** Instances whose VMs have signed one since the last one was kept. */
  readonly #signed = new Set<string>()
  /** Bytes on the disk, arriving ones included. `all` has the unreadable ones, whose organization is unknown. */
  readonly #bytes = { all: 0, organizations: new Map<string, number>(), instances: new Map<string, number>() }

  /** Reads the directory and removes what is unfinished. */
  constructor(directory: string, log: Logger) {
    this.#directory = directory
    this.#log = log
    for (const id of existsSync(directory) ? readdirSync(directory) : [])
      if (new RegExp(instanceIdPattern).test(id)) this.#load(id)
  }

  list(organizationId: string): readonly KeptSnapshot[] {
    return [...this.#kept.values()].flat().filter(record => record.organizationId === organizationId)
  }

  of(instanceId: string): readonly KeptSnapshot[] {
    return this.#kept.get(instanceId) ?? []
  }

  /** Instances with anything on the disk. */
  instances(): readonly string[] {
    return [...new Set([...this.#kept.keys(), ...this.#unreadable.keys(), ...this.#signed])]
  }

  count(): number {
    return [...this.#kept.values()].reduce((sum, { length }) => sum + length, 0)
  }

  /** Instances with records that cannot be read. */
  unreadable(): readonly string[] {
    return [...this.#unreadable.keys()]
  }

  /** Reports whether the last one whose signature was noted was not kept. */
  isLost(instanceId: string): boolean {
    return this.#signed.has(instanceId)
  }

  /** Bytes on the disk, arriving ones included: of an organization, or of all if null; without those of `except`. */
  bytes(organizationId: string | null, except: string | null = null): number {
    const { all, organizations, instances } = this.#bytes
    const whole = organizationId === null ? all : (organizations.get(organizationId) ?? 0)
    return whole - (except === null ? 0 : (instances.get(except) ?? 0))
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
    let isClosed = false
    const end = async () => {
      this.#arriving.delete(instanceId)
      if (isClosed) return
      isClosed = true
      await file.close()
    }
    return {
      bytes,
      write: async chunk => {
        for (let at = 0; at < chunk.length; ) at += (await file.write(chunk, at)).bytesWritten
        sizeBytes += chunk.length
        this.#add(owner, chunk.length)
      },
      noteSigned: () => {
        this.#signed.add(instanceId)
        try {
          writeFileSync(join(directory, signedName), '')
        } catch (error) {
          this.#log.warn('that a snapshot was signed is not on record', { reason: messageOf(error) })
        }
      },
      keep: async facts => {
        const record: KeptSnapshot = { ...facts, ...owner, bytes: sizeBytes }
        const newest = Math.max(this.of(instanceId).at(-1)?.number ?? 0, this.#unreadable.get(instanceId)?.newest ?? 0)
        if (newest >= record.number)
          throw new Fault('conflict', `Snapshot ${record.number} is not newer than the last one of this instance.`)
        await file.sync()
        try {
          renameSync(path, this.path(record))
          syncDirectory(directory)
          writeFileAtomic(this.#recordPath(record), JSON.stringify(record), { mode: 0o600 })
        } catch (error) {
          rmSync(this.path(record), { force: true })
          rmSync(this.#recordPath(record), { force: true })
          throw error
        }
        this.#kept.set(instanceId, [...this.of(instanceId), record])
        this.#signed.delete(instanceId)
        resultOr(() => rmSync(join(directory, signedName), { force: true }), null)
        // A failing close does not undo it.
        await end().catch(error => this.#log.warn('a snapshot was not closed', { reason: messageOf(error) }))
        return record
      },
      drop: async () => {
        await end().catch(error => this.#log.warn('a snapshot was not closed', { reason: messageOf(error) }))
        this.#add(owner, -sizeBytes)
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
    this.#add(record, -record.bytes)
    this.#removeEmpty(instanceId)
  }

  /** Removes all of an instance whose own record is gone, also what cannot be read; not what arrives. */
  removeAll(instanceId: string): void {
    for (const record of this.of(instanceId)) this.remove(record)
    const unreadable = this.#unreadable.get(instanceId)
    if ((unreadable === undefined && !this.#signed.has(instanceId)) || this.#arriving.has(instanceId)) return
    rmSync(join(this.#directory, instanceId), { recursive: true, force: true })
    this.#unreadable.delete(instanceId)
    this.#signed.delete(instanceId)
    this.#bytes.all -= unreadable?.bytes ?? 0
  }

  #recordPath({ instanceId, number }: Pick<KeptSnapshot, 'instanceId' | 'number'>): string {
    return join(this.#directory, instanceId, `${number}.json`)
  }

  /** Never removes files. */
  #removeEmpty(instanceId: string): void {
    const isUsed = this.#kept.has(instanceId) || this.#arriving.has(instanceId) || this.#unreadable.has(instanceId)
    if (!isUsed) resultOr(() => rmdirSync(join(this.#directory, instanceId)), null)
  }

  #add({ instanceId, organizationId }: SnapshotOwner, bytes: number): void {
    const { organizations, instances } = this.#bytes
    this.#bytes.all += bytes
    add(organizations, organizationId, bytes)
    add(instances, instanceId, bytes)
  }

  #load(instanceId: string): void {
    const directory = join(this.#directory, instanceId)
    try {
      const names = readdirSync(directory)
      const numbers = names.flatMap(name => /^([1-9]\d{0,15})\.json$/.exec(name)?.slice(1).map(Number) ?? [])
      const wanted = new Set([signedName, ...numbers.flatMap(number => [`${number}.json`, `${number}.age`])])
      if (names.includes(signedName)) this.#signed.add(instanceId)
      for (const name of names) if (!wanted.has(name)) rmSync(join(directory, name), { recursive: true, force: true })
      const kept = numbers.toSorted((a, b) => a - b).flatMap(number => this.#read({ instanceId, number }) ?? [])
      if (kept.length > 0) this.#kept.set(instanceId, kept)
      for (const record of kept) this.#add(record, record.bytes)
      this.#removeEmpty(instanceId)
    } catch (error) {
      this.#noteUnreadable(instanceId, 0, error)
    }
  }

  /** Null if the record or its ciphertext cannot be used. */
  #read(pair: Pick<KeptSnapshot, 'instanceId' | 'number'>): KeptSnapshot | null {
    const path = this.#recordPath(pair)
    try {
      const record = checkedJson(KeptSnapshot, readFileSync(path), { what: path, code: 'internal' })
      if (record.instanceId !== pair.instanceId || record.number !== pair.number)
        throw new Fault('internal', `${path}: it is the record of another snapshot`)
      const { size } = statSync(this.path(record))
      if (size !== record.bytes)
        throw new Fault('internal', `${this.path(record)}: ${size} bytes instead of ${record.bytes}`)
      return record
    } catch (error) {
      this.#noteUnreadable(pair.instanceId, pair.number, error)
      return null
    }
  }

  /** `number`: 0 for the whole directory. */
  #noteUnreadable(instanceId: string, number: number, error: unknown): void {
    this.#log.error('a snapshot cannot be read; its files stay as they are', {
      path: number === 0 ? join(this.#directory, instanceId) : this.#recordPath({ instanceId, number }),
      reason: messageOf(error),
    })
    const { newest, bytes } = this.#unreadable.get(instanceId) ?? { newest: 0, bytes: 0 }
    const size = number === 0 ? 0 : resultOr(() => statSync(this.path({ instanceId, number })).size, 0)
    this.#unreadable.set(instanceId, { newest: Math.max(newest, number), bytes: bytes + size })
    this.#bytes.all += size
  }
}

/** Adds to a sum; a sum of 0 is removed. */
function add(sums: Map<string, number>, key: string, bytes: number): void {
  const sum = (sums.get(key) ?? 0) + bytes
  if (sum === 0) sums.delete(key)
  else sums.set(key, sum)
}
