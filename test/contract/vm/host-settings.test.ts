// Goal: nothing that a host may say to a gateway's VM after a client has verified it is left out of the table that says
// what its worst is.

import { expect, test } from 'bun:test'
import { type TSchema, Type } from '@sinclair/typebox'
import { ControlSnapshot, ENCLAVE_REQUESTS } from '../../../src/contract/vm/enclave.ts'
import { HOST_SETTINGS } from '../../../src/contract/vm/host-settings.ts'
import { Network } from '../../../src/contract/vm/network.ts'
import { expectGolden } from '../../rigs/golden.ts'

type Parts = {
  readonly properties?: Record<string, TSchema>
  readonly patternProperties?: Record<string, TSchema>
  readonly items?: TSchema | TSchema[]
  readonly anyOf?: TSchema[]
  readonly allOf?: TSchema[]
}

/** Paths of whatever can be set, through arrays, unions and records. */
function pathsOf(schema: TSchema, path: string): string[] {
  const { properties = {}, patternProperties = {}, items, anyOf = [], allOf = [] } = schema as Parts
  const below = [
    ...Object.entries(properties).flatMap(([name, schema]) => pathsOf(schema, `${path}.${name}`)),
    ...Object.values(patternProperties).flatMap(property => pathsOf(property, `${path}.*`)),
    ...[items ?? [], anyOf, allOf].flat().flatMap(schema => pathsOf(schema, path)),
  ]
  const deeper = below.filter(text => text !== path)
  return deeper.length > 0 ? deeper : [path]
}

function settings(control: TSchema): string[] {
  const requests = ENCLAVE_REQUESTS.flatMap(({ properties }) => {
    const { id: _, op, ...fields } = properties
    return Object.entries<TSchema>(fields).flatMap(([name, field]) => pathsOf(field, `${op.const}.${name}`))
  })
  return [...new Set([...pathsOf(control, 'control'), ...requests, ...pathsOf(Network, 'network.network')])].toSorted()
}

const rows = Object.keys(HOST_SETTINGS)
  .filter(name => name !== 'clock')
  .toSorted()

test('goal: each field of a control snapshot and of each request has a row, and no row is of nothing', () => {
  expect(rows).toEqual(settings(ControlSnapshot))
  expect(rows.length).toBeGreaterThan(60)
})

test('goal: a field that is forgotten in the table is found, however deep it stands', () => {
  const forgotten = { forgotten: Type.String() }
  const alias = Type.Object(forgotten)
  const deep = Type.Object({ keys: Type.Array(Type.Union([Type.Array(alias), Type.Null()])) })
  expect(pathsOf(deep, 'control')).toEqual(['control.keys.forgotten'])
  expect(settings(Type.Composite([ControlSnapshot, Type.Object(forgotten)]))).not.toEqual(rows)
})

test('goal: how each row stands is deliberate: one that gets worse shows up in the golden text', () => {
  const lines = Object.entries(HOST_SETTINGS).map(([name, { stands, worst }]) => `${name}: ${stands}: ${worst}`)
  expectGolden('host-settings.txt', `${lines.join('\n')}\n`)
})

test('goal: each row says what the worst is', () => {
  for (const [name, { worst }] of Object.entries(HOST_SETTINGS)) {
    expect([name, worst.length > 10 || /^\d{3}$/.test(worst)]).toEqual([name, true])
  }
})
