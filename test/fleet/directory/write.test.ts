// Goal: the statements that write to a fleet's directory are deliberate, and run in an order that references allow.

import { expect, test } from 'bun:test'
import { deleteRows, writeRows } from '../../../src/fleet/directory/statements.ts'
import { writesOf } from '../../../src/fleet/directory/write.ts'
import { REPLICA_TABLES } from '../../../src/fleet/replica/tables.ts'
import { expectGolden } from '../../rigs/golden.ts'

test('goal: each statement of each table, as a golden text: a column or rule that changes shows up', () => {
  const texts = REPLICA_TABLES.flatMap(table =>
    (['wish', 'report', 'seed'] as const).flatMap(writing => [
      `-- ${table.name}: ${writing}; a host may ${table.hostMay.join(', ') || 'neither insert nor delete'}`,
      writeRows(table, writing),
      deleteRows(table, writing),
    ]),
  )
  const columns = REPLICA_TABLES.flatMap(({ columns, ...table }) => [
    `-- ${JSON.stringify(table)}`,
    ...columns.map(column => `--   ${JSON.stringify(column)}`),
  ])
  expectGolden('fleet-statements.sql', `${[...texts, ...columns].join('\n')}\n`)
})

const changeOf = (table: string, id: string, isGone: boolean) => ({
  table,
  key: { id },
  row: isGone ? null : { id, value: 1 },
})
const changes = [
  changeOf('instance_addresses', 'a1', true),
  changeOf('instance_addresses', 'a2', false),
  changeOf('keys', 'k1', true),
  changeOf('keys', 'k2', true),
  changeOf('instances', 'i1', false),
  changeOf('organizations', 'o1', false),
  changeOf('organizations', 'o2', true),
]
const shown = (writing: 'wish' | 'report' | 'seed') =>
  writesOf(changes, { writing, hostId: 'h1' }).map(({ text, values }) => [
    /^(?:INSERT INTO|DELETE FROM) \w+/.exec(text)?.[0],
    ...values,
  ])

test('goal: organizations first, deletions from the last table, writes from the first, and nothing for no rows', () => {
  expect(shown('wish')).toEqual([
    ['INSERT INTO organizations', '[{"id":"o1","value":1}]'],
    ['DELETE FROM instance_addresses', '[{"id":"a1"}]'],
    ['DELETE FROM keys', '[{"id":"k1"},{"id":"k2"}]'],
    ['DELETE FROM organizations', '[{"id":"o2"}]'],
    ['INSERT INTO instances', '[{"id":"i1","value":1}]'],
    ['INSERT INTO instance_addresses', '[{"id":"a2","value":1}]'],
  ])
  expect(writesOf([], { writing: 'wish', hostId: 'h1' })).toEqual([])
})

test('goal: a seed writes what a wish does, and deletes only what is of the host', () => {
  expect(shown('seed').map(([what, , host]) => [what, host])).toEqual([
    ['INSERT INTO organizations', undefined],
    ['DELETE FROM instance_addresses', 'h1'],
    ['DELETE FROM keys', undefined],
    ['DELETE FROM organizations', undefined],
    ['INSERT INTO instances', undefined],
    ['INSERT INTO instance_addresses', undefined],
  ])
})

test('goal: a report deletes only what a host may delete, and names the host where the statement asks', () => {
  expect(shown('report').map(([what, , host]) => [what, host])).toEqual([
    ['INSERT INTO organizations', undefined],
    ['DELETE FROM instance_addresses', 'h1'],
    ['INSERT INTO instances', 'h1'],
    ['INSERT INTO instance_addresses', 'h1'],
  ])
})
