// Control snapshots of a host that is newer than the gateway VM: what it may leave out, and nothing else.

import { expect, test } from 'bun:test'
import { generateKeyPairSync, sign } from 'node:crypto'
import { systemClock } from '../../src/base/clock.ts'
import { controlMessage } from '../../src/contract/vm/enclave.ts'
import { Control } from '../../src/enclave/control.ts'
import { ControlSource } from '../../src/enclave-host/control.ts'
import { openStore } from '../../src/store/db.ts'
import { insertGatewayKey, setGatewayKeyTerms } from '../../src/store/directory/gateway-key.query.ts'
import { insertOrganization, setOrganizationBudget } from '../../src/store/directory/organization.query.ts'

const { publicKey, privateKey } = generateKeyPairSync('ed25519')
const { x = '' } = publicKey.export({ format: 'jwk' })

const key = {
  ...{
    prefix: 'abcdefgh',
    secretSha256: Buffer.alloc(32, 7).toString('base64url'),
    organizationId: 'o',
    instanceId: null,
  },
  ...{
    requestsPerMinute: null,
    tokensPerMinute: null,
    concurrencyMax: null,
    expiresAtMs: 5,
    models: null,
    aliases: null,
  },
  ...{ budgetNanoUsd: null, budgetTokens: null },
}
const budget = { organizationId: 'o', budgetNanoUsd: 9, budgetTokens: null }
const snapshot = { revision: 1, keys: [key], budgets: [budget], prices: [], upstreamKeys: {} }

function apply(document: object) {
  const control = new Control(x)
  const bytes = Buffer.from(JSON.stringify(document))
  const verdict = control.apply(bytes, sign(null, controlMessage(bytes), privateKey).toString('base64url'))
  return { verdict, found: control.findKey('abcdefgh') }
}

// Goal: a member that the snapshot marks as ignorable is left out where the gateway does not know it; the rest counts.
test('members that may be left out', () => {
  const newer = {
    ...snapshot,
    ignorable: ['colour', 'shape'],
    colour: { deep: [[[[[[[[[[[[1]]]]]]]]]]]] },
    keys: [{ ...key, colour: 'red' }],
    budgets: [{ ...budget, shape: null }],
  }
  const { verdict, found } = apply(newer)
  expect(verdict).toEqual({ ok: true, revision: 1 })
  expect([found?.key.expiresAtMs, found?.organizationBudget.budgetNanoUsd]).toEqual([5, 9])
  expect(found?.key).not.toHaveProperty('colour')
})

// Goal: nesting stays bounded all the same.
test('a snapshot that is nested too deep', () => {
  const { verdict } = apply({ ...snapshot, ignorable: ['colour'], colour: [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]] })
  expect(verdict).toMatchObject({ ok: false, message: expect.stringMatching(/^control: .*16/) })
})

// Goal: any other unknown member still refuses the whole snapshot, wherever it is.
test.each<[string, object]>([
  ['at the top', { ...snapshot, colour: 1 }],
  ['of a key', { ...snapshot, ignorable: ['shape'], keys: [{ ...key, colour: 1 }] }],
  ['of a budget', { ...snapshot, ignorable: ['shape'], budgets: [{ ...budget, colour: 1 }] }],
  ['below a member of a key', { ...snapshot, ignorable: ['colour'], keys: [{ ...key, shortBudgets: { colour: 1 } }] }],
  ['by a list that is none', { ...snapshot, ignorable: 'colour', colour: 1 }],
  ['by a list that is too long', { ...snapshot, ignorable: Array(33).fill('colour'), colour: 1 }],
])('an unknown member %s', (_where, document) => {
  const { verdict, found } = apply(document)
  expect([verdict.ok, found]).toEqual([false, null])
})

// Goal: what the gateway knows holds, even if the snapshot marks it.
test('known members are never left out', () => {
  const ignorable = ['expiresAtMs', 'keys', 'budgets', 'budgetNanoUsd', 'revision', 'ignorable', '__proto__']
  const { verdict, found } = apply({ ...snapshot, ignorable })
  expect(verdict.ok).toBe(true)
  expect([found?.key.expiresAtMs, found?.organizationBudget.budgetNanoUsd]).toEqual([5, 9])
  expect(apply({ ...snapshot, ignorable, keys: [{ ...key, expiresAtMs: 'x' }] }).verdict.ok).toBe(false)
})

// Goal: the budget of each end user reaches the gateway beside those of day and week. A host names it as ignorable, and
// sends the list only where a key has one: VMs of earlier releases refuse the list itself.
test('budgets of end users', () => {
  using store = { ...openStore(':memory:'), [Symbol.dispose]: () => {} }
  const { db } = store.directory
  insertOrganization(db, { id: 'o', slug: 'acme', nowMs: 1 })
  const terms = {
    ...{ requestsPerMinute: null, tokensPerMinute: null, concurrencyMax: null, expiresAtMs: null },
    ...{ models: null, aliases: null, budgetNanoUsd: null, budgetTokens: null },
  }
  const day = { nanoUsd: 3, tokens: null }
  const secretSha256 = Buffer.alloc(32, 7)
  const row = { prefix: 'abcdefgh', organizationId: 'o', instanceId: null, secretSha256, nowMs: 1 }
  insertGatewayKey(db, { ...row, ...terms, shortBudgets: { day } })
  const source = new ControlSource({
    ...{ db, clock: systemClock, upstreamKeys: {}, prices: [] },
    key: { publicKey: new Uint8Array(32), sign: (bytes: Uint8Array) => sign(null, bytes, privateKey) } as never,
  })
  const sent = () => {
    const { bytes } = source.current()
    return { document: JSON.parse(Buffer.from(bytes).toString()), ...apply(JSON.parse(Buffer.from(bytes).toString())) }
  }
  const before = sent()
  expect([before.document.ignorable, before.document.keys[0].shortBudgets]).toEqual([undefined, { day }])
  const endUser = { period: 'week', nanoUsd: 50, usersMax: 4, isRequired: true } as const
  setGatewayKeyTerms(db, 'abcdefgh', { ...terms, shortBudgets: { day, endUser } })
  const after = sent()
  expect(after.document.ignorable).toEqual(['endUserBudget'])
  expect(after.document.keys[0]).toMatchObject({ shortBudgets: { day }, endUserBudget: endUser })
  expect(after.found?.key.shortBudgets).toEqual({ day, endUser })
  setGatewayKeyTerms(db, 'abcdefgh', { ...terms, shortBudgets: { endUser } })
  expect(sent().document.keys[0]).not.toHaveProperty('shortBudgets')
  expect(sent().found?.key.shortBudgets).toEqual({ endUser })
  // Members that a later release wrote beside them do not reach a VM of this one.
  const later = { day, endUser, hour: day } as object
  setGatewayKeyTerms(db, 'abcdefgh', { ...terms, shortBudgets: later })
  setOrganizationBudget(db, 'acme', { budgetNanoUsd: 9, budgetTokens: null, shortBudgets: { hour: day } as object })
  expect(sent().document.keys[0].shortBudgets).toEqual({ day })
  expect(sent().document.budgets[0]).not.toHaveProperty('shortBudgets')
  expect(sent().found?.key.shortBudgets).toEqual({ day, endUser })
  store.close()
})
