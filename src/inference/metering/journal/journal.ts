// Usage rows in a preallocated file from the end of a request until the database has them, so that a kill of the daemon
// loses none. Effects: the file.
//
// The file is a ring of slots; a row takes as many adjacent slots as its text needs. A position counts slots from the
// first row ever written, and each record contains its own position, so records of an earlier round are recognized. A
// checksum detects torn records: a daemon killed during a write loses only that row. The header stores the position
// up to which the database has all rows. It is written late, and a row that is read twice is recorded once by its id.
//
// The ledger's thread writes new rows to the disk every 100 ms (`JournalReader.sync`), so a power cut loses no more.
// The database may therefore get them later, and many at a time.
//
// The file is memory-mapped, so a row costs no system call. A store into a mapping kills the process with SIGBUS if
// the disk is full. So the whole file is written first, and copy-on-write file systems are refused.

import {
  closeSync,
  constants,
  existsSync,
  fdatasyncSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readFileSync,
  statfsSync,
  writeSync,
} from 'node:fs'
import { matches } from '../../../contract/check.ts'
import { Type } from '../../../contract/type.ts'
import { errnoName, flock, LOCK } from '../../../linux/libc.ts'
import type { Usage } from '../../../store/directory/usage/usage.table.ts'

/** `place`: the row's position. */
export type JournalRow = { readonly row: Usage; readonly place: number }

/** Rows at positions of [from, to). */
export type JournalRange = { readonly from: number; readonly to: number }

const slotBytes = 256
/** 16 MiB: as many rows of usual size. */
export const slotCount = 65_536
export const headerBytes = 4_096
const fileBytes = headerBytes + slotCount * slotBytes

/**
 * Offsets in the header: the format marker, the position up to which the database has all rows, and the checksum of
 * both; then the position after the newest row, for the ledger's thread.
 */
const HEADER = { mark: 0, booked: 8, checksum: 16, end: 24 } as const
/** Offsets in a record. JSON text has no byte 0x01, so no text of a client looks like a record. */
const RECORD = { mark: 0, checksum: 4, length: 8, position: 12, text: 20 } as const
const headerMark = 0x4a53_5201
const recordMark = 0x5253_5201
const textBytesMax = 65_536
/** linux/magic.h and OpenZFS: btrfs, bcachefs, ZFS. */
const COPY_ON_WRITE: readonly number[] = [0x9123_683e, 0xca45_1a4e, 0x2fc1_2fc1]

/** The database accepts no larger amounts, and a row that it refuses would stop every backup. */
const Amount = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })

const UsageSchema = Type.Object({
  id: Type.String(),
  atMs: Type.Integer(),
  organizationId: Type.String(),
  keyPrefix: Type.String(),
  instanceId: Type.Union([Type.String(), Type.Null()]),
  model: Type.String(),
  upstream: Type.String(),
  promptTokens: Amount,
  completionTokens: Amount,
  cachedTokens: Amount,
  costNanoUsd: Amount,
  outcome: Type.Union([Type.Literal('completed'), Type.Literal('aborted'), Type.Literal('failed')]),
  tokensSource: Type.Union([Type.Literal('reported'), Type.Literal('estimated'), Type.Literal('implausible')]),
  endUser: Type.Union([Type.String(), Type.Null()]),
  tags: Type.Union([Type.String(), Type.Null()]),
})

export class UsageJournal {
  readonly path: string
  readonly #fd: number
  readonly #bytes: Buffer
  #booked: number
  #end: number
  #isOpen = true
  #found: readonly JournalRow[]

  /**
   * Opens or creates the file. Throws if another process has it open, the disk has no room for all of it, or the file
   * system is copy-on-write.
   */
  constructor(path: string) {
    this.path = path
    this.#fd = openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o600)
    try {
      const locked = flock(this.#fd, LOCK.exclusive | LOCK.nonBlocking)
      if (!locked.ok) throw new Error(`another process uses it: ${errnoName(locked.errno)}`)
      if (COPY_ON_WRITE.includes(statfsSync(path).type)) throw new Error('its file system is copy-on-write')
      preallocate(this.#fd)
      this.#bytes = mapped(path)
      const booked = bookedOf(this.#bytes)
      const records = unbookedIn(this.#bytes, booked)
      this.#booked = booked
      this.#end = records.reduce((end, { position, slots }) => Math.max(end, position + slots), booked)
      this.#found = rowsOf(records)
      this.#noteEnd(this.#end)
    } catch (error) {
      closeSync(this.#fd)
      throw error
    }
  }

  /** Returns the rows that an earlier daemon wrote and did not book, oldest first; once. */
  takeFound(): readonly JournalRow[] {
    const found = this.#found
    this.#found = []
    return found
  }

  /** Position after the newest row. */
  get end(): number {
    return this.#end
  }

  /** Reports whether so many rows wait for the database that rows of running requests may not fit. */
  isHalfFull(): boolean {
    return this.#end - this.#booked > slotCount / 2
  }

  /** Writes a row and returns its position. Returns -1 if there is no room. */
  append(row: Usage): number {
    const text = textOf(row)
    // A character has at most three bytes.
    if (!this.#isOpen || 3 * text.length > textBytesMax) return -1
    const length = Buffer.byteLength(text)
    const slots = Math.ceil((RECORD.text + length) / slotBytes)
    // A record does not wrap around the end of the ring.
    const left = slotCount - (this.#end % slotCount)
    const position = slots > left ? this.#end + left : this.#end
    if (position + slots - this.#booked > slotCount) return -1
    const bytes = this.#bytes
    const at = offsetOf(position)
    bytes.write(text, at + RECORD.text)
    bytes.writeUInt32LE(recordMark, at + RECORD.mark)
    bytes.writeUInt32LE(length, at + RECORD.length)
    bytes.writeDoubleLE(position, at + RECORD.position)
    const covered = bytes.subarray(at + RECORD.length, at + RECORD.text + length)
    bytes.writeUInt32LE(checksum(covered), at + RECORD.checksum)
    this.#noteEnd(position + slots)
    return position
  }

  #noteEnd(position: number): void {
    this.#end = position
    this.#bytes.writeDoubleLE(position, HEADER.end)
  }

  /** Records that the database has every row before `position`, whose slots may then be reused. */
  release(position: number): void {
    if (!this.#isOpen || position <= this.#booked) return
    const bytes = this.#bytes
    bytes.writeUInt32LE(headerMark, HEADER.mark)
    bytes.writeDoubleLE(position, HEADER.booked)
    bytes.writeUInt32LE(checksum(bytes.subarray(0, HEADER.checksum)), HEADER.checksum)
    this.#booked = position
  }

  close(): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    closeSync(this.#fd)
  }
}

/** Reads rows of a journal that another thread writes. */
export class JournalReader {
  readonly #fd: number
  readonly #bytes: Buffer
  #synced = -1

  constructor(path: string) {
    this.#fd = openSync(path, constants.O_RDONLY)
    this.#bytes = mapped(path)
  }

  /** Writes new rows to the disk. Returns false if there are none. Throws if the disk fails. */
  sync(): boolean {
    const end = this.#bytes.readDoubleLE(HEADER.end)
    if (end === this.#synced) return false
    fdatasyncSync(this.#fd)
    this.#synced = end
    return true
  }

  close(): void {
    closeSync(this.#fd)
  }

  /** Returns the rows of the range, without torn records. */
  rows({ from, to }: JournalRange): Usage[] {
    const rows: Usage[] = []
    for (let at = from; at < to; ) {
      const slot = at % slotCount
      const slots = Math.min(to - at, slotCount - slot)
      for (const { position, text } of recordsOf(this.#bytes, { from: slot, slots })) {
        if (position >= from && position < to) rows.push(rowOf(JSON.parse(text())) as Usage)
      }
      at += slots
    }
    return rows
  }
}

/**
 * Returns the rows that the database may lack, oldest first, also while a daemon writes. Empty if there is no complete
 * file.
 */
export function readUnbooked(path: string): readonly Usage[] {
  if (!existsSync(path)) return []
  const bytes = readFileSync(path)
  return bytes.length < fileBytes ? [] : rowsOf(unbookedIn(bytes, bookedOf(bytes))).map(({ row }) => row)
}

/** Returns the complete records at or after the position `booked`, oldest first. */
function unbookedIn(bytes: Buffer, booked: number): readonly JournalRecord[] {
  return [...recordsOf(bytes, { from: 0, slots: slotCount })]
    .filter(({ position }) => position >= booked)
    .sort((a, b) => a.position - b.position)
}

function rowsOf(records: readonly JournalRecord[]): readonly JournalRow[] {
  return records.flatMap(({ position, text }) => {
    const row = rowOfText(text())
    return row === null ? [] : [{ row, place: position }]
  })
}

function mapped(path: string): Buffer {
  const bytes = Bun.mmap(path, { shared: true })
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/** Writes zeros, for which the file system allocates room at once, so no later write needs any. */
function preallocate(fd: number): void {
  const { size } = fstatSync(fd)
  if (size >= fileBytes) return
  const zeros = Buffer.alloc(fileBytes - size)
  try {
    for (let at = 0; at < zeros.length; ) at += writeSync(fd, zeros, at, zeros.length - at, size + at)
  } catch (error) {
    ftruncateSync(fd, size)
    throw error
  }
}

/**
 * Returns the position up to which the database has all rows. 0 for a new file, and for a torn header; then every
 * record counts as not recorded.
 */
function bookedOf(bytes: Buffer): number {
  const isWhole =
    bytes.readUInt32LE(HEADER.mark) === headerMark &&
    bytes.readUInt32LE(HEADER.checksum) === checksum(bytes.subarray(0, HEADER.checksum))
  return isWhole ? bytes.readDoubleLE(HEADER.booked) : 0
}

type JournalRecord = { readonly position: number; readonly slots: number; readonly text: () => string }

type SlotRange = { readonly from: number; readonly slots: number }

/** Yields the complete records in these slots of the ring. */
function* recordsOf(bytes: Buffer, { from, slots }: SlotRange): Generator<JournalRecord> {
  for (let slot = from; slot < from + slots; ) {
    const record = recordAt(bytes, slot)
    if (record !== null) yield record
    slot += record?.slots ?? 1
  }
}

function recordAt(bytes: Buffer, slot: number): JournalRecord | null {
  const at = offsetOf(slot)
  if (bytes.readUInt32LE(at + RECORD.mark) !== recordMark) return null
  const end = at + RECORD.text + bytes.readUInt32LE(at + RECORD.length)
  const position = bytes.readDoubleLE(at + RECORD.position)
  if (end > fileBytes || position % slotCount !== slot) return null
  const stated = bytes.readUInt32LE(at + RECORD.checksum)
  if (checksum(bytes.subarray(at + RECORD.length, end)) !== stated) return null
  const text = () => bytes.toString('utf8', at + RECORD.text, end)
  return { position, slots: Math.ceil((end - at) / slotBytes), text }
}

/** Encodes the row as a list, because with field names a common row takes two slots instead of one. */
function textOf(row: Usage): string {
  return JSON.stringify([
    row.id,
    row.atMs,
    row.organizationId,
    row.keyPrefix,
    row.instanceId,
    row.model,
    row.upstream,
    row.promptTokens,
    row.completionTokens,
    row.cachedTokens,
    row.costNanoUsd,
    row.outcome,
    row.tokensSource,
    row.endUser,
    row.tags,
  ])
}

/** Returns the row of a parsed text, unchecked. Earlier releases wrote objects. */
function rowOf(value: unknown): unknown {
  if (!Array.isArray(value)) return value
  return {
    id: value[0],
    atMs: value[1],
    organizationId: value[2],
    keyPrefix: value[3],
    instanceId: value[4],
    model: value[5],
    upstream: value[6],
    promptTokens: value[7],
    completionTokens: value[8],
    cachedTokens: value[9],
    costNanoUsd: value[10],
    outcome: value[11],
    tokensSource: value[12],
    endUser: value[13],
    tags: value[14],
  }
}

/** Parses a row; null for a text that another release wrote. */
function rowOfText(text: string): Usage | null {
  try {
    const row = rowOf(JSON.parse(text))
    return matches(UsageSchema, row) ? row : null
  } catch {
    return null
  }
}

function checksum(bytes: Uint8Array): number {
  return Bun.hash.crc32(bytes)
}

function offsetOf(position: number): number {
  return headerBytes + (position % slotCount) * slotBytes
}
