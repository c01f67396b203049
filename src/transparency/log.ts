// The appliance's transparency log: an append-only Merkle tree of entries (contract/http/log-entry.ts). Effects: the
// ledger, the file of its head.
//
// An entry is durable, in the database and in the head, when `append` returns: so it stands in the log before anybody
// is served what it speaks of. A database that is older than the head has lost entries that were served, and a log that
// went on from there would be a fork: it gets another origin, and its next entry names the log before.

import { sha256 } from '../attest/hash.ts'
import { type Checkpoint, encodeCheckpoint, verifiedSigners } from '../attest/log/checkpoint.ts'
import {
  consistencyProof,
  inclusionProof,
  type LogHash,
  leafHash,
  nodeHash,
  type ReadHash,
  rootOf,
} from '../attest/log/merkle.ts'
import {
  decodeNote,
  encodeNote,
  keyIdOf,
  type Note,
  type NoteKey,
  type NoteSignature,
  signaturesOf,
} from '../attest/log/note.ts'
import { encodeLogProof } from '../attest/log/proof.ts'
import { encodeEntries, type Tile, tileHashes, tileWidth } from '../attest/log/tiles.ts'
import { concat, equalConstantTime, toHex, utf8 } from '../base/bytes.ts'
import type { Clock } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { harmlessLine } from '../base/harmless.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { encodeLogEntry, type LogFact } from '../contract/http/log-entry.ts'
import type { Ed25519Key } from '../host/ed25519-key.ts'
import type { LedgerDb, LedgerStore } from '../store/db.ts'
import {
  clearLogCosignatures,
  insertLogEntry,
  insertLogHash,
  listLogCosignatures,
  listLogEntries,
  listLogHashes,
  logSize,
  placeOfLeaf,
  putLogCosignature,
} from '../store/ledger/log.query.ts'
import type { LogCosignature, LogEntryRow } from '../store/ledger/log.table.ts'
import { readMeta, swapMeta } from '../store/ledger/meta.query.ts'
import { type LogHead, readLogHead, type StagedHead, stageLogHead } from './head.ts'

export type TransparencyLogDeps = {
  readonly ledger: LedgerStore
  readonly key: Ed25519Key
  /** First part of the origin of a log that begins now: a name of this appliance. */
  readonly name: string
  readonly headFile: string
  /** Their cosignatures count. With any, a tree is shown once one of them has cosigned it. */
  readonly witnesses: readonly NoteKey[]
  readonly clock: Pick<Clock, 'nowMs'>
  readonly random: RandomBytes
  readonly log: Logger
  /** Called when the log had to start over. */
  readonly onEvent: (kind: string, detail: Record<string, unknown>) => void
}

export type LogFailure = { readonly atMs: number; readonly reason: string }

/**
 * Beyond it nothing is appended, and what would have to be in the log is not served.
 * Share: builds make it grow, and `builds.per_day_max` limits those of one organization.
 */
export const logEntriesMax = 2 ** 24

const originName = 'log_origin'
const shownName = 'log_shown'
const originBytes = 8
const reasonCharsMax = 512
/** Clocks of witnesses may be this much ahead of ours. */
const aheadMsMax = 300_000

export class TransparencyLog {
  readonly #deps: TransparencyLogDeps
  /** Null if the log has not begun, or must not continue in its state. */
  #head: LogHead | null = null
  /** Head, its file and what is shown are those of the database. */
  #isSettled = false
  #failure: LogFailure | null = null
  readonly #listeners: (() => void)[] = []

  /** Changes nothing: `begin` does. */
  constructor(deps: TransparencyLogDeps) {
    this.#deps = deps
    this.#head = this.#found()
  }

  /** Calls `listener` after each entry. */
  onAppended(listener: () => void): void {
    this.#listeners.push(listener)
  }

  /** Begins a log where there is none that may go on. Safe to repeat. Faults: store.*, host.disk_full. */
  begin(): void {
    this.#noting(() => {
      if (this.#head === null) this.#beginAnew()
      this.#settle()
    })
  }

  /**
   * Puts facts into the log, each once, however often it comes. Durable when it returns. Faults: internal (it is
   * full), store.*, and of the disk.
   */
  append(...facts: readonly LogFact[]): void {
    if (this.#noting(() => this.#append(facts))) for (const listener of this.#listeners) listener()
  }

  /** Why the newest try to write failed; null if it did not. */
  failure(): LogFailure | null {
    return this.#failure
  }

  /** The key as relying parties name it; null if the log has not begun. */
  key(): NoteKey | null {
    return this.#head === null
      ? null
      : { name: this.#head.origin, type: 'ed25519', publicKey: this.#deps.key.publicKey }
  }

  /** The newest tree. */
  head(): LogHead | null {
    return this.#head
  }

  /** Size of the tree that is shown. */
  shown(): number {
    return Math.min(Number(readMeta(this.#db(), shownName) ?? 0), this.#head?.size ?? 0)
  }

  /** The signed note of the tree that is shown. */
  checkpoint(): Note | null {
    const size = this.shown()
    const cosignatures = listLogCosignatures(this.#db()).filter(row => row.size === size)
    const note = this.signed(size)
    if (note === null) return null
    const known = new Set(this.#deps.witnesses.map(({ name }) => name))
    const lines = cosignatures.filter(({ witness }) => known.has(witness)).map(({ line }) => line)
    return decodeNote(utf8(encodeNote(note) + lines.map(line => `${line}\n`).join('')))
  }

  /** The note of the first `size` entries as this log signs it. */
  signed(size: number): Note | null {
    const key = this.key()
    if (key === null) return null
    const text = this.#text(size)
    const signature = this.#deps.key.sign(utf8(text))
    return { text, signatures: [{ name: key.name, keyId: keyIdOf(key), signature }] }
  }

  /** Null if there is no such tile in the tree that is shown. */
  tile({ level, index, width }: Tile): Uint8Array | null {
    if (tileWidth(this.shown(), { level, index }) < width) return null
    const from = index * tileHashes
    if (level !== 'entries')
      return concat(...listLogHashes(this.#db(), { level: level * tileBits, from, count: width }))
    return encodeEntries(listLogEntries(this.#db(), { from, count: width }).map(({ entry }) => new Uint8Array(entry)))
  }

  /** Proof (C2SP tlog-proof) for the entry with this leaf hash. Null if it is not in the tree that is shown. */
  proof(leaf: LogHash): string | null {
    const [size, index, note] = [this.shown(), placeOfLeaf(this.#db(), leaf), this.checkpoint()]
    if (index === null || index >= size || note === null) return null
    return encodeLogProof({ index, hashes: inclusionProof(index, size, this.#read()), note })
  }

  /** At most `count` entries from a place on. */
  entries(from: number, count: number): LogEntryRow[] {
    return listLogEntries(this.#db(), { from, count })
  }

  consistency(oldSize: number, size: number): LogHash[] {
    return consistencyProof(oldSize, size, this.#read())
  }

  cosignatures(): LogCosignature[] {
    return listLogCosignatures(this.#db())
  }

  /**
   * Takes the cosignatures of a note that witnesses have signed. Returns their names. Faults: invalid_request (no note
   * of this log, or no new cosignature of a witness that is named), conflict (another tree than this log's).
   */
  async cosign(note: Note, checkpoint: Checkpoint): Promise<string[]> {
    const { ledger, witnesses, clock } = this.#deps
    const { origin, size } = checkpoint
    if (origin !== this.#head?.origin)
      throw new Fault('invalid_request', `the note is of the log ${origin}, not of ${this.#head?.origin ?? 'this one'}`)
    if (size > this.#head.size || this.#text(size) !== note.text)
      throw new Fault('conflict', `this log has no tree of ${size} entries with the root of the note`)
    const nowMs = clock.nowMs()
    const found = await Promise.all(witnesses.map(witness => newestCosignature(note, witness, nowMs + aheadMsMax)))
    const rows = found.flatMap((line, at) => {
      const witness = witnesses[at]?.name
      return line === null || witness === undefined ? [] : [{ witness, size, line, atMs: nowMs }]
    })
    const taken = ledger.transact(tx => {
      const known = new Map(listLogCosignatures(tx).map(row => [row.witness, row]))
      const newer = rows.filter(row => (known.get(row.witness)?.size ?? 0) <= row.size)
      for (const row of newer) putLogCosignature(tx, row)
      this.#show(tx, this.#head?.size ?? 0)
      return newer.map(({ witness }) => witness)
    })
    if (taken.length === 0)
      throw new Fault('invalid_request', 'the note has no new cosignature of a witness that log.witnesses names')
    return taken
  }

  #noting<T>(work: () => T): T {
    try {
      const result = work()
      this.#failure = null
      return result
    } catch (error) {
      this.#failure = {
        atMs: this.#deps.clock.nowMs(),
        reason: harmlessLine(messageOf(error)).slice(0, reasonCharsMax),
      }
      throw error
    }
  }

  /** Returns false if nothing was new. */
  #append(facts: readonly LogFact[]): boolean {
    if (this.#head === null) this.#beginAnew()
    const { ledger, clock } = this.#deps
    const entries = facts.map(encodeLogEntry)
    const fresh = entries.filter(entry => placeOfLeaf(ledger.db, leafHash(entry)) === null)
    // The usual case: no lock, no write.
    if (fresh.length === 0 && this.#isSettled) return false
    this.#isSettled = false
    this.#write(tx => {
      for (const entry of fresh) appendEntry(tx, { entry, nowMs: clock.nowMs() })
    })
    this.#isSettled = true
    return true
  }

  /**
   * Database and file of the head change together: without room for both neither does. A crash between them leaves the
   * database ahead, which `#found` takes for the log that goes on.
   */
  #write(work: (tx: LedgerDb) => void): void {
    const { ledger, headFile } = this.#deps
    let staged = null as StagedHead | null
    try {
      const head = ledger.transact(tx => {
        work(tx)
        const next = this.#treeOf(logSize(tx))
        staged = stageLogHead(headFile, next)
        this.#show(tx, next.size)
        return next
      })
      this.#head = head
    } catch (error) {
      staged?.discard()
      throw error
    }
    staged?.put()
  }

  #db(): LedgerDb {
    return this.#deps.ledger.db
  }

  #read(): ReadHash {
    const db = this.#db()
    return (level, index) => listLogHashes(db, { level, from: index, count: 1 })[0] ?? new Uint8Array(0)
  }

  #text(size: number): string {
    return encodeCheckpoint({ ...this.#treeOf(size), extensions: [] })
  }

  #treeOf(size: number): LogHead {
    return { origin: readMeta(this.#db(), originName) ?? '', size, root: rootOf(size, this.#read()) }
  }

  /** The log of this database, if it holds every entry that this host has answered for. */
  #found(): LogHead | null {
    const origin = readMeta(this.#db(), originName)
    const answered = readLogHead(this.#deps.headFile)
    if (origin === null || answered?.origin !== origin) return null
    const size = logSize(this.#db())
    if (answered.size > size || !equalConstantTime(this.#treeOf(answered.size).root, answered.root)) return null
    return this.#treeOf(size)
  }

  /** Entries of the database stay in the log; its origin is another from now on. */
  #beginAnew(): void {
    const { ledger, headFile, random, name, log, clock, onEvent } = this.#deps
    const kept = readMeta(ledger.db, originName) === null ? null : this.#treeOf(logSize(ledger.db))
    const former = readLogHead(headFile) ?? kept
    const origin = `${name}/log/${toHex(random(originBytes))}`
    this.#write(tx => {
      swapMeta(tx, originName, origin)
      swapMeta(tx, shownName, '0')
      clearLogCosignatures(tx)
      if (former === null) return
      const checkpoint = sha256(utf8(encodeCheckpoint({ ...former, extensions: [] })))
      const fact: LogFact = { kind: 'former-log', sha256: toHex(checkpoint), size: former.size }
      appendEntry(tx, { entry: encodeLogEntry(fact), nowMs: clock.nowMs() })
    })
    const detail = { origin, former: former?.origin ?? null, size: former?.size ?? null }
    onEvent('log.begun', detail)
    if (former === null) log.info('the transparency log begins', detail)
    else log.warn('the transparency log starts again: the database is older than what was served', detail)
  }

  /** The head in its file, and what may be shown, where a crash or a failure came between. */
  #settle(): void {
    this.#isSettled = false
    this.#write(() => {})
    this.#isSettled = true
  }

  /** The newest tree that a witness has cosigned; without witnesses, the newest. Never a smaller one than before. */
  #show(tx: LedgerDb, newest: number): void {
    const { witnesses } = this.#deps
    const names = new Set(witnesses.map(({ name }) => name))
    const cosigned = listLogCosignatures(tx).filter(({ witness }) => names.has(witness))
    const size = witnesses.length === 0 ? newest : Math.max(0, ...cosigned.map(row => row.size))
    if (size > Number(readMeta(tx, shownName) ?? 0)) swapMeta(tx, shownName, `${size}`)
  }
}

/** Levels of the tree in one tile. */
const tileBits = Math.log2(tileHashes)

/** False if it is already in the log. Fault internal: the log is full. */
function appendEntry(tx: LedgerDb, { entry, nowMs }: { readonly entry: Uint8Array; readonly nowMs: number }): boolean {
  const leaf = leafHash(entry)
  if (placeOfLeaf(tx, leaf) !== null) return false
  const seq = logSize(tx)
  if (seq >= logEntriesMax) throw new Fault('internal', `the transparency log is full: it has ${logEntriesMax} entries`)
  insertLogEntry(tx, { seq, entry, leaf, nowMs })
  let [level, place, hash] = [0, seq, leaf]
  // Each right child completes the subtree of its parent.
  while (place % 2 === 1) {
    const [left] = listLogHashes(tx, { level, from: place - 1, count: 1 })
    hash = nodeHash(left ?? hash, hash)
    level += 1
    place = (place - 1) / 2
    insertLogHash(tx, { level, place, hash })
  }
  return true
}

/** The line of the newest good cosignature of this witness, from no later than `untilMs`; null if there is none. */
async function newestCosignature(note: Note, witness: NoteKey, untilMs: number): Promise<string | null> {
  let newest: { readonly line: string; readonly atMs: number } | null = null
  for (const signature of signaturesOf(note, witness).slice(0, signaturesOfWitnessMax)) {
    const [signed] = await verifiedSigners({ text: note.text, signatures: [signature] }, [witness])
    const atMs = signed?.atMs ?? null
    if (atMs === null || atMs > untilMs || atMs <= (newest?.atMs ?? 0)) continue
    newest = { line: signatureLine(signature), atMs }
  }
  return newest?.line ?? null
}

/** No share: limits one note. */
const signaturesOfWitnessMax = 4

function signatureLine(signature: NoteSignature): string {
  return encodeNote({ text: '', signatures: [signature] }).trim()
}
