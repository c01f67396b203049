// Goal: nothing that a host may say to a gateway's VM after a client has verified it is left out of the table that says what its worst is.

import { expect, test } from 'bun:test'
import type { TSchema } from '@sinclair/typebox'
import { ControlSnapshot, ENCLAVE_REQUESTS } from '../../src/contract/enclave.ts'
import { HOST_SETTINGS } from '../../src/contract/host-settings.ts'

/** Names of what can be set: properties of objects, through arrays. */
function settingsOf(schema: TSchema, prefix: string): string[] {
  const { properties, items } = schema as { properties?: Record<string, TSchema>; items?: TSchema }
  if (items !== undefined) return settingsOf(items, prefix)
  if (properties === undefined) return [prefix]
  return Object.entries(properties).flatMap(([name, property]) => settingsOf(property, `${prefix}.${name}`))
}

const requests = ENCLAVE_REQUESTS.flatMap(({ properties }) => {
  const { id: _, op, ...fields } = properties
  return Object.keys(fields).map(name => `${op.const}.${name}`)
})

test('goal: each field of a control snapshot and of each request has a row, and no row is of nothing', () => {
  const all = [...settingsOf(ControlSnapshot, 'control'), ...requests, 'network.network']
  expect(Object.keys(HOST_SETTINGS).toSorted()).toEqual([...new Set(all)].toSorted())
  expect(all.length).toBeGreaterThan(35)
})

test('goal: each row says what the worst is', () => {
  for (const [name, { worst }] of Object.entries(HOST_SETTINGS)) {
    expect([name, worst.length > 10 || /^\d{3}$/.test(worst)]).toEqual([name, true])
  }
})
