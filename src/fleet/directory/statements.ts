// PostgreSQL statements for a table that hosts copy. Text only, pure. $1 is JSON of an array of rows or keys; for
// reports, $2 is the reporting host.

import { buildStage, type Column, type ReplicaTable, statusRank } from '../replica/tables.ts'

/**
 * `wish`: by an owner or operator, based on the directory's state. `report`: by a host, based on an older state.
 * `seed`: like a wish, but skips rows whose organization or instance is missing; both are reported later.
 */
export type Writing = 'wish' | 'report' | 'seed'

/**
 * Writes rows, never moving state backwards. A report does not restore a deleted row, except a build reported by its
 * own host, and does not change an instance that has moved to another host.
 */
export function writeRows(table: ReplicaTable, writing: Writing): string {
  const { name, key, columns } = table
  const names = columns.map(column => column.name).join(', ')
  const sets = columns.flatMap(column => assignment(table, column, writing))
  const conflict = table.isLog === true || sets.length === 0 ? 'DO NOTHING' : `DO UPDATE SET ${sets.join(', ')}`
  const where = { wish: '', report: `WHERE ${mayReport(table)}`, seed: `WHERE ${refersToKnown(table)}` }[writing]
  return `INSERT INTO ${name} (${names}) SELECT ${names} FROM ${given(table)} ${where}
    ON CONFLICT (${key.join(', ')}) ${conflict}`
}

export function deleteRows(table: ReplicaTable, writing: Writing): string {
  const same = table.key.map(column => `${table.name}.${column} = given.${column}`).join(' AND ')
  const ofInstance = table.ofInstance === undefined ? '' : ` AND ${hasInstance(table.ofInstance)}`
  const isOfHost = table.isHeld === true || table.isSum === true
  // The generation of a sum follows its host.
  const isOwn = writing === 'wish' ? '' : isOfHost ? ` AND split_part(${table.name}.host_id, '/', 1) = $2` : ofInstance
  return `DELETE FROM ${table.name} USING ${given(table)} WHERE ${same}${isOwn}`
}

/** Returns the positions (from 1) of the keys in $1 without a row. */
export function whichAreGone({ name, key }: ReplicaTable): string {
  const same = key.map(column => `${name}.${column} = asked.key ->> '${column}'`).join(' AND ')
  return `SELECT asked.i FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY AS asked (key, i)
    WHERE NOT EXISTS (SELECT 1 FROM ${name} WHERE ${same})`
}

/** Reads a page of rows in the order of keys, after the key in $1 to $n. The last value is the limit. */
export function readPage({ name, key }: ReplicaTable, isFirst: boolean): string {
  const columns = key.join(', ')
  const after = isFirst ? '' : `WHERE (${columns}) > (${key.map((_, index) => `$${index + 1}::text`).join(', ')})`
  const limit = isFirst ? 1 : key.length + 1
  return `SELECT to_jsonb(${name}) AS row FROM ${name} ${after} ORDER BY ${columns} LIMIT $${limit}`
}

function given({ name }: ReplicaTable): string {
  return `jsonb_populate_recordset(NULL::${name}, $1::jsonb) AS given`
}

function assignment({ name: table }: ReplicaTable, { name, merge }: Column, writing: Writing): string[] {
  const [here, other] = [`${table}.${name}`, `excluded.${name}`]
  const whereAnew = `${name} = CASE WHEN excluded.attempt > ${table}.attempt THEN ${other} ELSE ${here} END`
  switch (merge) {
    case 'fixed':
      return []
    case 'attempt':
      return [whereAnew]
    case 'wish':
      return writing === 'report' ? [] : [`${name} = ${other}`]
    case 'first':
      return [`${name} = coalesce(${here}, ${other})`]
    case 'latest':
      return [`${name} = greatest(${here}, ${other})`]
    case 'owner':
      return [`${name} = ${other}`]
    case 'sampled':
      // The copy of another host than the instance's has later samples than this row.
      return [writing === 'report' ? `${name} = ${other}` : whereAnew]
    case 'status':
      return [`${name} = CASE WHEN ${statusRank(here)} > ${statusRank(other)} THEN ${here} ELSE ${other} END`]
    case 'desired':
      return [`${name} = CASE WHEN ${here} = 'absent' THEN ${here} ELSE ${other} END`]
    case 'stage':
      return [`${name} = CASE WHEN ${buildStage(table)} > ${buildStage('excluded')} THEN ${here} ELSE ${other} END`]
    case 'holder':
      return [`${name} = CASE WHEN ${table}.claims > excluded.claims THEN ${here} ELSE ${other} END`]
  }
}

/**
 * Condition for rows that a report may write: existing ones, or new ones whose references exist. Only an instance's
 * host may write its rows.
 */
function mayReport({ name, key, columns, hostMay, ofInstance, isLog, isHeld }: ReplicaTable): string {
  const isKnown = `EXISTS (SELECT 1 FROM ${name} AS known WHERE ${key.map(column => `known.${column} = given.${column}`).join(' AND ')})`
  if (name === 'instances') return hasInstance('id')
  if (name === 'builds') return mayReportBuild
  if (name === 'build_nonces') {
    return 'EXISTS (SELECT 1 FROM builds AS own WHERE own.id = given.build_id AND own.host_id = $2)'
  }
  if (ofInstance !== undefined || isLog === true) return hasInstance(ofInstance ?? 'instance_id')
  if (!hostMay.includes('insert')) return isKnown
  const refersTo = (column: string, condition: string) =>
    columns.some(({ name }) => name === column) ? [`(given.${column} IS NULL OR ${condition})`] : []
  return [
    ...(isHeld === true ? ['given.host_id = $2'] : []),
    ...refersTo('organization_id', 'EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id)'),
    ...refersTo('instance_id', `${isKnown} OR ${hasInstance('instance_id')}`),
  ].join(' AND ')
}

/** A build may be reported by its host, unless another host has taken it over since. */
const mayReportBuild = `given.host_id = $2
  AND (given.organization_id IS NULL OR EXISTS (SELECT 1 FROM organizations WHERE id = given.organization_id))
  AND NOT EXISTS (SELECT 1 FROM builds AS known WHERE known.id = given.id
    AND (known.claims > given.claims OR (known.host_id <> $2 AND (known.claims = given.claims OR known.state <> 'queued'))))`

/** Condition: the organization and the instance of the given row exist. */
function refersToKnown({ columns }: ReplicaTable): string {
  const conditions = [
    ['organization_id', 'organizations'],
    ['instance_id', 'instances'],
  ].flatMap(([column, table]) =>
    columns.some(({ name }) => name === column)
      ? [`(given.${column} IS NULL OR EXISTS (SELECT 1 FROM ${table} WHERE id = given.${column}))`]
      : [],
  )
  return ['true', ...conditions].join(' AND ')
}

/** Condition: the reporting host has the instance of a given row. */
function hasInstance(column: string): string {
  return `EXISTS (SELECT 1 FROM instances AS own WHERE own.id = given.${column} AND own.host_id = $2)`
}
