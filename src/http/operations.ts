// The operations of a service: one table, from which its routes and its OpenAPI document are made. Pure.

import { assert } from '../base/assert.ts'

/** A method at a path template such as `/v1/instances/{name}`. */
export type Operation = {
  readonly method: 'GET' | 'POST' | 'DELETE'
  readonly path: string
  /** Needs no key. */
  readonly isPublic: boolean
}

/** An operation with its id in the table, and its row of another table such as documents or handlers. */
export type Joined<Id extends string, Row> = Operation & { readonly id: Id; readonly row: Row }

/**
 * Every operation with its row, in the order of `rows`. Throws when a row is missing or belongs to no operation,
 * so a route without a document, or a document without a route, ends the program that loads the tables.
 */
export function joined<Id extends string, Row>(
  operations: Readonly<Record<Id, Operation>>,
  rows: Readonly<Record<Id, Row>>,
): readonly Joined<Id, Row>[] {
  for (const id of Object.keys(operations)) assert(Object.hasOwn(rows, id), `operation ${id} has a row in each table`)
  return Object.keys(rows).map(key => {
    assert(Object.hasOwn(operations, key), `row ${key} belongs to an operation`)
    const id = key as Id
    return { ...operations[id], id, row: rows[id] }
  })
}
