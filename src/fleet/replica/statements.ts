// SQLite statements for a table that hosts copy: triggers that record changes, reading a row, applying a row from
// another host. Text only, pure.

import { isSumOf, ownHost } from '../../store/directory/usage/usage-month.query.ts'
import { buildStage, type Column, type ReplicaTable, statusRank } from './tables.ts'

/**
 * Returns a table's triggers that record changes in `outbox`, or `outbox_held`. They are inactive while changes of
 * others are applied.
 */
export function outboxTriggers(table: ReplicaTable): string[] {
  if (table.isSum === true) return sumTriggers(table)
  const { name } = table
  const silent = '(SELECT is_applying FROM replica) = 0'
  const note = (row: 'NEW' | 'OLD') => {
    const key = jsonOf(table.key, column => `${row}.${column}`)
    // Not OR REPLACE, because a clause of the outer statement would override it.
    return `DELETE FROM outbox WHERE table_name = '${name}' AND row_key = ${key};
      INSERT INTO outbox (table_name, row_key) VALUES ('${name}', ${key});`
  }
  const changes = (isSampled: boolean) =>
    table.columns
      .filter(column => (column.isSampled === true) === isSampled)
      .map(differs)
      .join(' OR ')
  const sampled = jsonOf(table.key, column => `NEW.${column}`)
  const sampleTriggers =
    table.samples === undefined
      ? []
      : [
          `CREATE TRIGGER outbox_${name}_sample AFTER UPDATE ON ${name} WHEN ${silent} AND (${changes(true)})
           BEGIN INSERT INTO outbox_held (table_name, row_key) SELECT '${table.samples}', ${sampled} WHERE NOT EXISTS (
             SELECT 1 FROM outbox_held WHERE table_name = '${table.samples}' AND row_key = ${sampled}); END`,
        ]
  return [
    ...sampleTriggers,
    `CREATE TRIGGER outbox_${name}_insert AFTER INSERT ON ${name} WHEN ${silent} BEGIN ${note('NEW')} END`,
    `CREATE TRIGGER outbox_${name}_update AFTER UPDATE ON ${name} WHEN ${silent} AND (${changes(false)}) BEGIN ${note('NEW')} END`,
    `CREATE TRIGGER outbox_${name}_delete AFTER DELETE ON ${name} WHEN ${silent} BEGIN ${note('OLD')} END`,
  ]
}

/** A sum changes with every request, so its own row stores whether it has an entry: `is_held`. */
function sumTriggers({ name, key, columns }: ReplicaTable): string[] {
  const silent = '(SELECT is_applying FROM replica) = 0'
  const keyOf = (row: 'NEW' | 'OLD') => jsonOf(key, column => `${row}.${column}`)
  const note = (row: 'NEW' | 'OLD') => {
    const isHeld = `EXISTS (SELECT 1 FROM outbox_held WHERE table_name = '${name}' AND row_key = ${keyOf(row)})`
    return `INSERT INTO outbox_held (table_name, row_key) SELECT '${name}', ${keyOf(row)} WHERE NOT ${isHeld};`
  }
  const hold = `UPDATE ${name} SET is_held = 1 WHERE ${key.map(column => `${column} = NEW.${column}`).join(' AND ')};`
  const isReleased = key.map(column => `${column} = OLD.row_key ->> '${column}'`).join(' AND ')
  const changed = columns.map(differs).join(' OR ')
  return [
    `CREATE TRIGGER outbox_${name}_insert AFTER INSERT ON ${name} WHEN ${silent} BEGIN ${note('NEW')} ${hold} END`,
    `CREATE TRIGGER outbox_${name}_update AFTER UPDATE ON ${name} WHEN NEW.is_held = 0 AND ${silent} AND (${changed})
     BEGIN ${note('NEW')} ${hold} END`,
    `CREATE TRIGGER outbox_${name}_delete AFTER DELETE ON ${name} WHEN ${silent} BEGIN ${note('OLD')} END`,
    `CREATE TRIGGER outbox_${name}_release AFTER DELETE ON outbox_held WHEN OLD.table_name = '${name}'
     BEGIN UPDATE ${name} SET is_held = 0 WHERE ${isReleased}; END`,
  ]
}

export function triggerNames({ name }: ReplicaTable): string[] {
  return ['insert', 'update', 'delete', 'release', 'sample'].map(event => `outbox_${name}_${event}`)
}

function differs({ name, reportedEveryMs }: Column): string {
  const every = reportedEveryMs === undefined ? '' : ` / ${reportedEveryMs}`
  return `NEW.${name}${every} IS NOT OLD.${name}${every}`
}

/** Adds the sums of this host's present generation to those of another (parameter ?1: its `host_id`). */
export function addSumsTo({ name, key, columns }: ReplicaTable): string {
  const names = columns.map(column => column.name)
  const added = names
    .filter(column => !key.includes(column))
    .map(column => `${column} = min(${Number.MAX_SAFE_INTEGER}, ${column} + excluded.${column})`)
  const values = names.map(column => (column === 'host_id' ? '?1' : column))
  return `INSERT INTO ${name} (${names}) SELECT ${values} FROM ${name} WHERE host_id = ${ownHost}
    ON CONFLICT (${key}) DO UPDATE SET ${added}`
}

export function deleteOwnSums({ name }: ReplicaTable): string {
  return `DELETE FROM ${name} WHERE host_id = ${ownHost}`
}

/** Reads the row of a key (its columns as parameters, in order) as JSON text. */
export function selectRow(table: ReplicaTable): string {
  const where = table.key.map((column, index) => `${column} = ?${index + 1}`).join(' AND ')
  return `SELECT ${rowJson(table)} AS row FROM ${table.name} WHERE ${where}`
}

/**
 * Adds entries for this host's own rows, including those of its instances (?1: the host); null if the table has none.
 */
export function noteOwn(table: ReplicaTable): string | null {
  if (table.isSum === true) {
    return `INSERT OR IGNORE INTO outbox_held (table_name, row_key) SELECT '${table.name}', ${keyJson(table)} FROM ${table.name} WHERE ${isSumOf('?1')}`
  }
  if (table.name === 'build_nonces') {
    return `INSERT OR IGNORE INTO outbox (table_name, row_key) SELECT '${table.name}', ${keyJson(table)} FROM ${table.name}
    WHERE build_id IN (SELECT id FROM builds WHERE host_id = ?1)`
  }
  if (table.isHeld === true) {
    return `INSERT OR IGNORE INTO outbox (table_name, row_key) SELECT '${table.name}', ${keyJson(table)} FROM ${table.name}
    WHERE host_id = ?1`
  }
  const column = table.name === 'instances' ? 'id' : table.columns.find(({ name }) => name === 'instance_id')?.name
  if (column === undefined) return null
  return `INSERT OR IGNORE INTO outbox (table_name, row_key) SELECT '${table.name}', ${keyJson(table)} FROM ${table.name}
    WHERE ${column} IN (SELECT id FROM instances WHERE host_id = ?1)`
}

/** Adds entries for the rows of some instances (?1: their ids, as JSON); null if the table has none. */
export function noteOfInstances(table: ReplicaTable): string | null {
  const column = table.name === 'instances' ? 'id' : table.columns.find(({ name }) => name === 'instance_id')?.name
  if (column === undefined) return null
  return `INSERT OR IGNORE INTO outbox (table_name, row_key) SELECT '${table.name}', ${keyJson(table)} FROM ${table.name}
    WHERE ${column} IN (SELECT value FROM json_each(?1))`
}

export function countUnnoted(table: ReplicaTable): string {
  const noted = (notes: string) =>
    `EXISTS (SELECT 1 FROM ${notes} WHERE table_name = '${table.name}' AND row_key = ${keyJson(table)})`
  return `SELECT count(*) AS count FROM ${table.name} WHERE NOT ${noted('outbox')} AND NOT ${noted('outbox_held')}`
}

/**
 * Reads a page of rows with their keys, in the order of keys, after the key in ?1 to ?n. The last value is the limit.
 * `has`: a row may have half a MiB, so keys alone can be read.
 */
export function selectPage(table: ReplicaTable, isFirst: boolean, has: 'rows' | 'keys' = 'rows'): string {
  const { name, key } = table
  const columns = key.join(', ')
  const after = isFirst ? '' : `WHERE (${columns}) > (${key.map((_, index) => `?${index + 1}`).join(', ')})`
  const limit = isFirst ? 1 : key.length + 1
  const row = has === 'rows' ? `, ${rowJson(table)} AS row` : ''
  return `SELECT ${keyJson(table)} AS row_key${row} FROM ${name} ${after} ORDER BY ${columns} LIMIT ?${limit}`
}

/**
 * Gives the row of a log that is here the directory's values: the directory keeps the first row that it has of a key. A
 * host that was taken for lost ended its instance at another time. Parameters: as `upsertRow`.
 */
export function updateLogRow({ name, key, columns }: ReplicaTable): string {
  const equal = columns.map(column => `${column.name} = ?${columns.indexOf(column) + 1}`)
  const isKey = equal.filter((_, index) => key.includes(columns[index]?.name ?? ''))
  const others = equal.filter(text => !isKey.includes(text))
  return `UPDATE ${name} SET ${others.join(', ')} WHERE ${isKey.join(' AND ')} AND NOT (${others.join(' AND ')})
    AND ?${columns.length + 1} IS NOT NULL`
}

/**
 * Applies a row. Parameters: the columns in order, then this host's id. A row of this host keeps this host's own
 * values, and state never moves backwards. `isPart`: in a full copy, rows of other hosts take the directory's values,
 * even if that moves state backwards, because a failover may have lost what was copied from the previous server. A row
 * that only this host writes, and that it has removed without a report yet, is not written: the report would say that
 * the row exists.
 */
export function upsertRow(table: ReplicaTable, isPart: boolean): string {
  const { name, key, columns } = table
  const names = columns.map(column => column.name).join(', ')
  const values = columns
    .map(({ otherwise }, index) =>
      otherwise === undefined ? `?${index + 1}` : `coalesce(?${index + 1}, ${otherwise})`,
    )
    .join(', ')
  const me = `?${columns.length + 1}`
  const keyValue = (column: string) => `?${columns.findIndex(found => found.name === column) + 1}`
  const isHere = `EXISTS (SELECT 1 FROM ${name} WHERE ${key.map(column => `${column} = ${keyValue(column)}`).join(' AND ')})`
  const isNoted = (notes: string) =>
    `EXISTS (SELECT 1 FROM ${notes} WHERE table_name = '${name}' AND row_key = ${jsonOf(key, keyValue)})`
  const isRemoved = `NOT ${isHere} AND (${isNoted('outbox')} OR ${isNoted('outbox_held')})`
  // The parameter must occur, even if no column uses it.
  const isOfHost = table.isSum === true || table.isHeld === true
  const isWanted = `${me} IS NOT NULL${isOfHost ? ` AND NOT (${isRemoved})` : ''}`
  if (table.isLog === true) {
    return `INSERT INTO ${name} (${names}) SELECT ${values} WHERE ${isWanted} AND NOT ${isHere}`
  }
  const isOwn =
    table.ofInstance === undefined
      ? `${name}.host_id = ${me}`
      : `(SELECT host_id FROM instances WHERE id = excluded.${table.ofInstance}) = ${me}`
  const isAnew = columns.some(({ merge }) => merge === 'attempt') ? `excluded.attempt > ${name}.attempt` : null
  const isOthers = isPart ? othersRow(name, me) : null
  const isHolder = `${name}.host_id = ${me} AND excluded.host_id = ${me}`
  const sets = columns.filter(({ merge }) => merge !== 'fixed').map(column => `${column.name} = ${chosen(column)}`)
  return `INSERT INTO ${name} (${names}) SELECT ${values} WHERE ${isWanted}
    ON CONFLICT (${key.join(', ')}) ${sets.length === 0 ? 'DO NOTHING' : `DO UPDATE SET ${sets.join(', ')}`}`

  function chosen(column: Column): string {
    const isTaken = column.isSampled === true ? null : isOthers
    const conditions = [isAnew, isTaken].flatMap(condition => (condition === null ? [] : `(${condition})`))
    return conditions.length === 0
      ? merged(column)
      : `CASE WHEN ${conditions.join(' OR ')} THEN excluded.${column.name} ELSE ${merged(column)} END`
  }

  function merged({ name: column, merge }: Column): string {
    const [here, other] = [`${name}.${column}`, `excluded.${column}`]
    switch (merge) {
      case 'attempt':
        return here
      case 'fixed':
      case 'wish':
        return other
      case 'first':
        return `coalesce(${other}, ${here})`
      case 'latest':
        return `CASE WHEN ${here} IS NULL OR ${other} > ${here} THEN ${other} ELSE ${here} END`
      case 'owner':
        return `CASE WHEN ${isOwn} THEN ${here} ELSE ${other} END`
      case 'sampled':
        return `CASE WHEN ${isOwn} OR ${name}.egress_bytes > excluded.egress_bytes THEN ${here} ELSE ${other} END`
      case 'status':
        return `CASE WHEN ${statusRank(here)} > ${statusRank(other)} THEN ${here} ELSE ${other} END`
      case 'desired':
        return `CASE WHEN ${here} = 'absent' THEN ${here} ELSE ${other} END`
      case 'stage':
        return `CASE WHEN ${buildStage(name)} > ${buildStage('excluded')} OR (${isHolder}
          AND ${buildStage(name)} = ${buildStage('excluded')}) THEN ${here} ELSE ${other} END`
      case 'holder':
        return `CASE WHEN ${name}.claims > excluded.claims OR (${isHolder}
          AND ${name}.claims = excluded.claims) THEN ${here} ELSE ${other} END`
    }
  }
}

/** SQL: whether, in a full copy, a row is not this host's own; null if the table has separate rows for each host. */
function othersRow(name: string, me: string): string | null {
  switch (name) {
    case 'organizations':
    case 'keys':
      return 'true'
    // A host revokes the keys of its own instances before the directory does.
    case 'gateway_keys':
      return `(SELECT host_id FROM instances WHERE id = excluded.instance_id) IS NOT ${me}`
    case 'instances':
    case 'builds':
      return `${name}.host_id IS NOT ${me} OR excluded.host_id IS NOT ${me}`
    default:
      return null
  }
}

/**
 * Deletes a row. Parameters: the key's columns, then this host's id. Keeps rows that this host writes for its own
 * instance.
 */
export function deleteRow({ name, key, ofInstance }: ReplicaTable): string {
  const where = key.map((column, index) => `${column} = ?${index + 1}`).join(' AND ')
  const me = `?${key.length + 1}`
  const others =
    ofInstance === undefined
      ? `${me} IS NOT NULL`
      : `(SELECT host_id FROM instances WHERE id = ${name}.${ofInstance}) IS NOT ${me}`
  return `DELETE FROM ${name} WHERE ${where} AND ${others}`
}

/** Returns an expression: the key of a row as in the outbox. */
export function keyJson({ key }: ReplicaTable): string {
  return jsonOf(key, column => column)
}

function rowJson({ columns }: ReplicaTable): string {
  const byName = new Map(columns.map(column => [column.name, column]))
  return jsonOf(
    columns.map(({ name }) => name),
    name => (byName.get(name)?.type === 'bytes' ? `'\\x' || lower(hex(${name}))` : name),
  )
}

function jsonOf(names: readonly string[], expression: (name: string) => string): string {
  return `json_object(${names.map(name => `'${name}', ${expression(name)}`).join(', ')})`
}

/** New instances of a host (?1) without a VM, in their order. */
export const waitingForVm = `SELECT id FROM instances
  WHERE host_id = ?1 AND status = 'provisioning' AND vm_id IS NULL ORDER BY created_at_ms, id`
