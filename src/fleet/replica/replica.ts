// This host's copy of the fleet's directory, in its own database. Applies changes of other hosts, and dry-runs local
// changes to compute the rows that they would write. Effects: SQL on the host's database.

import { isDeepStrictEqual } from 'node:util'
import { assert } from '../../base/assert.ts'
import { Fault, systemErrorCode } from '../../base/fault.ts'
import { type DirectoryDb, type LocalDirectory, prepareRaw } from '../../store/db.ts'
import {
  type ChangedInstance,
  type InstanceBefore,
  instanceOf,
  isOtherAttempt,
  mayHaveVm,
  mergeChanges,
} from './changed-instance.ts'
import { UsageGeneration } from './generation.ts'
import { CopyProgress } from './progress.ts'
import { type Sample, sampleStatements } from './samples.ts'
import { noteOfInstances, noteOwn, outboxTriggers, triggerNames, waitingForVm } from './statements.ts'
import { prepareTable, type TableStatements } from './table-statements.ts'
import { REPLICA_TABLES, type ReplicaTable, type RowChange, type SampleTable, type WireRow } from './tables.ts'

export type ReplicaDeps = {
  readonly directory: LocalDirectory
  readonly hostId: string
  /** Called in the transaction that adds a new instance of this host. Returns its VM. */
  readonly adopt: (tx: DirectoryDb, instanceId: string) => { readonly vmId: string }
  /** While it returns false, new instances wait for `adoptWaiting`. Default: true. */
  readonly mayAdopt?: () => boolean
}

/** State of the copy. */
export type ReplicaMark = ReplicaPosition & { readonly fleetId: string }

/** A position in the history of a directory. */
export type ReplicaPosition = {
  readonly version: number
  readonly timeline: number
  /** Version and time of the newest change up to `version`. Empty if the directory has none. */
  readonly change: string
}

export type AppliedChanges = {
  readonly instances: readonly ChangedInstance[]
  /** Whether gateway keys or organizations changed. */
  readonly touchesKeys: boolean
  /** Builds whose rows have changed or were deleted. */
  readonly builds: readonly string[]
}

/** Outcome of one change of a dry run. */
export type Outcome = { readonly ok: true; readonly value: unknown } | { readonly ok: false; readonly error: unknown }

/** A timeline that no server has; forces a full copy. */
const noTimeline = 0

/** Instances per turn of the event loop. */
const ownCount = 250

export class Replica {
  readonly #deps: ReplicaDeps
  readonly #tables: ReadonlyMap<string, TableStatements>
  readonly #instance: (id: string) => InstanceBefore | null
  readonly #sql: ReturnType<typeof statementsOn>
  /** Progress of a full copy. */
  readonly progress: CopyProgress
  readonly generation: UsageGeneration

  constructor(deps: ReplicaDeps) {
    this.#deps = deps
    const { db } = deps.directory
    this.#tables = new Map(REPLICA_TABLES.map(table => [table.name, prepareTable(db, table, deps.hostId)]))
    const find = prepareRaw<InstanceBefore>(
      db,
      'SELECT host_id, desired, status, vm_id, attempt FROM instances WHERE id = ?1',
    )
    this.#instance = id => find.get(id)
    this.#sql = statementsOn(db)
    this.progress = new CopyProgress(db)
    this.generation = new UsageGeneration(deps.directory, deps.hostId)
  }

  mark(): ReplicaMark | null {
    const row = this.#sql.mark.get()
    if (row === null) return null
    return { fleetId: row.fleet_id, timeline: row.timeline, version: row.version, change: row.change }
  }

  /**
   * Begins a copy of a fleet at version 0, unless there is one of this fleet, and records local changes from now on.
   * Reports get a number far from the former ones, and sums a generation if the directory's schema has them, because an
   * older copy of this database may have been restored.
   * Forces a full copy if an executable with other tables or columns made it. `isSeeding`: the records here will become
   * the directory's. Fault `conflict` if there are records that a copy would replace.
   */
  begin(fleetId: string, { isSeeding = false } = {}): void {
    this.#deps.directory.transact(tx => {
      const at = this.mark()
      if (at !== null && at.fleetId !== fleetId) {
        throw new Fault('conflict', `the records of this host are a copy of the fleet ${at.fleetId}, not of ${fleetId}`)
      }
      if (at === null) {
        if (!isSeeding) this.refuseOwn()
        run(tx, 'DELETE FROM outbox')
        run(tx, 'DELETE FROM outbox_held')
        this.#sql.begin.run(fleetId, isSeeding ? 1 : 0)
      }
      if (!isSeeding) this.generation.renew()
      const before = this.#triggers()
      const known = new Set(before.map(({ name }) => name))
      dropTriggers(tx)
      for (const table of REPLICA_TABLES) for (const sql of outboxTriggers(table)) run(tx, sql)
      // The triggers' text contains every column.
      const isOtherwise = before.length > 0 && !isDeepStrictEqual(before, this.#triggers())
      if (isOtherwise && at !== null && at.version > 0 && !this.isSeeding())
        this.setMark({ ...at, timeline: noTimeline })
      if (isOtherwise) run(tx, `UPDATE copy_progress SET timeline = ${noTimeline} WHERE to_version IS NULL`)
      // A table that was local until now: report this host's own rows to the directory.
      if (!isSeeding) {
        for (const table of REPLICA_TABLES) if (!triggerNames(table).some(name => known.has(name))) this.#noteOwn(table)
      }
    })
  }

  #triggers(): readonly Trigger[] {
    return this.#sql.triggers.all()
  }

  isEmpty(): boolean {
    return (this.#sql.organizations.get()?.count ?? 0) === 0
  }

  /** Throws Fault `conflict` if there are records that a copy would replace. */
  refuseOwn(): void {
    if (this.isEmpty()) return
    const message = 'this host has organizations of its own, which a fleet it enters would replace'
    throw new Fault('conflict', `${message}; \`strongroom fleet init\` makes a fleet of them`)
  }

  #noteOwn(table: ReplicaTable): void {
    const sql = noteOwn(table)
    if (sql !== null) prepareRaw(this.#deps.directory.db, sql).run(this.#deps.hostId)
  }

  /** Reports whether the local records are still being copied to the directory. */
  isSeeding(): boolean {
    return this.#sql.seeding.get()?.is_seeding === 1
  }

  /** Counts the rows that the directory lacks in their current form. */
  unreported(): number {
    return this.#sql.unreported.get()?.count ?? 0
  }

  endSeeding(): void {
    this.#sql.endSeeding.run()
  }

  /**
   * Reports everything again that only this host has written, because another server may have lost the newest part.
   * `turn`: called between parts, so that other work can run.
   */
  async reportOwn(turn: () => Promise<void>): Promise<void> {
    const { directory, hostId } = this.#deps
    directory.transact(() => {
      for (const note of this.#sql.noteOthers) note.run(hostId)
    })
    for (let after = ''; ; await turn()) {
      const ids = this.#sql.ownIds.all(hostId, after, ownCount).map(({ id }) => id)
      const last = ids.at(-1)
      if (last === undefined) return
      directory.transact(() => {
        for (const note of this.#sql.noteOfInstances) note.run(JSON.stringify(ids))
        this.#sql.noteEgress.run(JSON.stringify(ids))
      })
      after = last
    }
  }

  /** Runs `work` in one transaction, for example together with `setMark`. */
  transact(work: () => void): void {
    this.#deps.directory.transact(work)
  }

  /** Applies changes in their order, after which the copy is at `to`. Idempotent. */
  apply(changes: readonly RowChange[], to: ReplicaPosition): AppliedChanges {
    return this.#copying(tx => {
      const at = this.mark()
      assert(at !== null, 'a copy has begun')
      if (to.timeline === at.timeline && to.version <= at.version) return []
      const changed = changes.flatMap(change => this.#take(tx, change) ?? [])
      this.setMark(to)
      const until = this.progress.read()?.toVersion ?? null
      if (until !== null && to.version >= until) this.progress.end()
      return changed
    }, changes)
  }

  /** Applies rows of a full copy in parts, without changing the mark. `alongside` runs in the same transaction. */
  applyPart(changes: readonly RowChange[], alongside: () => void = () => {}): AppliedChanges {
    return this.#copying(tx => {
      const changed = changes.flatMap(change => this.#take(tx, change, 'upsertPart') ?? [])
      alongside()
      return changed
    }, changes)
  }

  /** Takes later samples than those here; of this host's own, as after a restore, those with more bytes. */
  takeSamples(table: SampleTable, samples: readonly Sample[]): void {
    if (samples.length === 0) return
    const take = this.#sql.takeSample[table]
    this.#copying(() => {
      for (const { key, hostId, bytes, atMs } of samples) take.run(key, hostId, bytes, atMs, this.#deps.hostId)
      return []
    }, [])
  }

  /**
   * Runs each change in a savepoint, and rolls all of them back. Returns their outcomes and the rows that they would
   * have written. These go to the directory first, and only then to this copy.
   */
  dryRun(works: readonly ((tx: DirectoryDb) => unknown)[]): {
    outcomes: readonly Outcome[]
    changes: readonly RowChange[]
  } {
    let result: { outcomes: readonly Outcome[]; changes: readonly RowChange[] } | null = null
    try {
      this.#deps.directory.transact(tx => {
        // Use the sequence's own number, because the newest entry may have been deleted.
        const since = this.#sql.sequence.get()?.seq ?? 0
        const outcomes = works.map(work => runInSavepoint(tx, work))
        result = { outcomes, changes: this.changesBetween(since, Number.MAX_SAFE_INTEGER).changes }
        throw new RollbackSignal()
      })
    } catch (error) {
      if (!(error instanceof RollbackSignal)) throw error
    }
    assert(result !== null, 'what was tried has outcomes')
    return result
  }

  /**
   * Returns the current rows of outbox entries after `afterSeq` and through `throughSeq`; at most the first `limit`.
   */
  changesBetween(
    afterSeq: number,
    throughSeq: number,
    limit = Number.MAX_SAFE_INTEGER,
  ): { changes: readonly RowChange[]; throughSeq: number } {
    const lines = this.#sql.lines.all(afterSeq, throughSeq, limit)
    const changes = lines.map(({ table_name: table, row_key }) => {
      const key: WireRow = JSON.parse(row_key)
      return { table, key, row: this.#of(table).select(key) }
    })
    return { changes, throughSeq: lines.at(-1)?.seq ?? afterSeq }
  }

  #of(table: string): TableStatements {
    const found = this.#tables.get(table)
    assert(found !== undefined, `${table} is copied`)
    return found
  }

  /** Sets the state of the copy, or of the records that became the directory. */
  setMark({ version, timeline, change }: ReplicaPosition): void {
    this.#sql.setMark.run(version, timeline, change)
  }

  /**
   * Applies changes in one transaction that reports nothing back. A power cut may undo it; the changes are then read
   * again from the directory, after the mark that remains.
   */
  #copying(work: (tx: DirectoryDb) => ChangedInstance[], changes: readonly RowChange[]): AppliedChanges {
    this.#sql.syncLater.run()
    let changed: readonly ChangedInstance[]
    try {
      changed = this.#deps.directory.transact(tx => {
        this.#sql.setApplying.run(1)
        const result = work(tx)
        this.#sql.setApplying.run(0)
        return result
      })
    } finally {
      this.#sql.syncAtOnce.run()
    }
    const last = new Map<string, ChangedInstance>()
    for (const touch of changed) last.set(touch.id, mergeChanges(last.get(touch.id), touch))
    const touchesKeys = changes.some(({ table }) => table === 'gateway_keys' || table === 'organizations')
    const builds = changes.flatMap(({ table, key }) => (table === 'builds' ? [String(key.id)] : []))
    return { instances: [...last.values()], touchesKeys, builds: [...new Set(builds)] }
  }

  #take(
    tx: DirectoryDb,
    { table, key, row }: RowChange,
    how: 'upsert' | 'upsertPart' = 'upsert',
  ): ChangedInstance | null {
    const found = this.#tables.get(table)
    // A table of a newer host.
    if (found === undefined) return null
    const id = instanceOf(table, row ?? key)
    const before = id === null ? null : this.#instance(id)
    if (row === null) found.remove(key)
    else this.#upsert(found[how], row)
    if (id === null) return null
    const after = this.#instance(id)
    const { hostId } = this.#deps
    const isOwn = (after ?? before)?.host_id === hostId
    const isAnew = before !== null && after !== null && isOtherAttempt(before, after)
    if (isAnew) this.#beginAnew(id)
    const isLeft = before?.host_id === hostId && before.vm_id !== null && (!isOwn || !mayHaveVm(after))
    if (isLeft) this.#leaveVm(id, before.vm_id)
    const isNew = table === 'instances' && after !== null && (before === null || (isAnew && isOwn))
    if (isNew && isOwn && after.status === 'provisioning') this.#adopt(tx, id, this.#deps.mayAdopt?.() ?? true)
    return {
      id,
      isOwn,
      isNew,
      isLeft,
      isDismissed: before?.desired === 'present' && after?.desired !== 'present',
      isFailed: before !== null && before.status !== 'failed' && after?.status === 'failed',
    }
  }

  /**
   * Writes a row. While parts of a copy reflect different moments, a row may refer to one that is missing; skips it
   * then.
   */
  #upsert(upsert: TableStatements['upsert'], row: WireRow): void {
    try {
      upsert(row)
    } catch (error) {
      if (systemErrorCode(error) !== 'SQLITE_CONSTRAINT_FOREIGNKEY' || this.progress.read() === null) throw error
    }
  }

  #adopt(tx: DirectoryDb, id: string, may: boolean): void {
    this.#sql.setVm.run(may ? this.#deps.adopt(tx, id).vmId : null, id)
  }

  /** Adopts the new instances of this host that came while it might not. */
  adoptWaiting(): AppliedChanges {
    const same = { isOwn: true, isNew: true, isLeft: false, isDismissed: false, isFailed: false }
    return this.#copying(tx => {
      const waiting = this.#sql.waiting.all(this.#deps.hostId).map(({ id }) => ({ ...same, id }))
      for (const { id } of waiting) this.#adopt(tx, id, true)
      return waiting
    }, [])
  }

  /** Deletes what the instance's previous host reported, because the instance has moved. */
  #beginAnew(id: string): void {
    for (const statement of this.#sql.beginAnew) statement.run(id)
  }

  #leaveVm(id: string, vmId: string): void {
    this.#sql.leaveVm.run(vmId)
    this.#sql.setVm.run(null, id)
  }
}

/** Returns the fleet whose directory this host copies; null if it copies none. */
export function copiedFleetOf({ db }: Pick<LocalDirectory, 'db'>): string | null {
  return db.all<{ fleet_id: string }>('SELECT fleet_id FROM replica')[0]?.fleet_id ?? null
}

/** Stops recording changes and forgets the copy's state. The records stay. */
export function endReplica(directory: Pick<LocalDirectory, 'transact'>): void {
  directory.transact(tx => {
    dropTriggers(tx)
    run(tx, 'DELETE FROM outbox')
    run(tx, 'DELETE FROM outbox_held')
    run(tx, 'DELETE FROM allowances')
    run(tx, 'DELETE FROM replica')
    run(tx, 'DELETE FROM copy_progress')
    run(tx, 'DELETE FROM instance_addresses')
  })
}

class RollbackSignal extends Error {}

type OutboxLine = { readonly seq: number; readonly table_name: string; readonly row_key: string }

function runInSavepoint(tx: DirectoryDb, work: (tx: DirectoryDb) => unknown): Outcome {
  try {
    return { ok: true, value: tx.transaction(inner => work(inner)) }
  } catch (error) {
    return { ok: false, error }
  }
}

type Trigger = { readonly name: string; readonly sql: string }

type MarkRow = ReplicaPosition & { readonly fleet_id: string }

/** Prepared once, because every request of a fleet uses them. */
function statementsOn(db: DirectoryDb) {
  const noting = (textOf: (table: ReplicaTable) => string | null) =>
    REPLICA_TABLES.flatMap(table => {
      const sql = textOf(table)
      return sql === null ? [] : [prepareRaw(db, sql)]
    })
  return {
    triggers: prepareRaw<Trigger>(
      db,
      "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'outbox~_%' ESCAPE '~' ORDER BY name",
    ),
    mark: prepareRaw<MarkRow>(db, 'SELECT fleet_id, timeline, version, change FROM replica'),
    begin: prepareRaw(db, "INSERT INTO replica VALUES (1, ?1, 0, 0, 0, ?2, 0, NULL, '', '', '')"),
    organizations: prepareRaw<{ count: number }>(db, 'SELECT count(*) AS count FROM organizations'),
    seeding: prepareRaw<{ is_seeding: number }>(db, 'SELECT is_seeding FROM replica'),
    endSeeding: prepareRaw(db, 'UPDATE replica SET is_seeding = 0'),
    noteOfInstances: noting(noteOfInstances),
    noteOthers: noting(table => (noteOfInstances(table) === null ? noteOwn(table) : null)),
    ownIds: prepareRaw<{ id: string }>(
      db,
      'SELECT id FROM instances WHERE host_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3',
    ),
    ...sampleStatements(db),
    setMark: prepareRaw(db, 'UPDATE replica SET version = ?1, timeline = ?2, change = ?3'),
    syncLater: prepareRaw(db, 'PRAGMA synchronous = NORMAL'),
    syncAtOnce: prepareRaw(db, 'PRAGMA synchronous = FULL'),
    setApplying: prepareRaw(db, 'UPDATE replica SET is_applying = ?1'),
    leaveVm: prepareRaw(db, 'INSERT OR IGNORE INTO left_vms VALUES (?1)'),
    beginAnew: [
      "DELETE FROM instance_changes WHERE instance_id = ?1 AND status <> 'provisioning'",
      'DELETE FROM instance_attestations WHERE instance_id = ?1',
      'DELETE FROM instance_addresses WHERE instance_id = ?1',
    ].map(text => prepareRaw(db, text)),
    waiting: prepareRaw<{ id: string }>(db, waitingForVm),
    setVm: prepareRaw(db, 'UPDATE instances SET vm_id = ?1 WHERE id = ?2'),
    sequence: prepareRaw<{ seq: number }>(db, "SELECT seq FROM sqlite_sequence WHERE name = 'outbox'"),
    unreported: prepareRaw<{ count: number }>(
      db,
      'SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM outbox_held) AS count',
    ),
    lines: prepareRaw<OutboxLine>(
      db,
      'SELECT seq, table_name, row_key FROM outbox WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3',
    ),
  }
}

function dropTriggers(tx: DirectoryDb): void {
  for (const table of REPLICA_TABLES) for (const name of triggerNames(table)) run(tx, `DROP TRIGGER IF EXISTS ${name}`)
}

function run(tx: DirectoryDb, sql: string): void {
  tx.run(sql)
}
