// Goal: no check of a receipt is lost in a group: each stands in one, and one that failed or is missing makes its group
// bad, with its name and reason.

import { expect, test } from 'bun:test'
import { type Check, fail, notChecked, pass } from '../../src/attest/verdict.ts'
import { COMMON_GROUPS, groupsOf, nonceCheck, withCrl } from '../../src/verifier/receipt-groups.ts'

const groups = (checks: readonly Check[], elsewhere: readonly string[] = []) =>
  groupsOf(checks, { prefix: 'gw/', groups: COMMON_GROUPS, elsewhere }).map(
    ({ name, outcome, reason, required }) => `${name} ${outcome}${required ? '' : ' by choice'}: ${reason}`,
  )
const names = [
  ...['statement-nonce', 'statement-age', 'statement-measurement', 'measurement', 'expected-image-name'],
  ...['statement-operator-key', 'id-key-digest', 'expected-operator-key'],
]
const good = [...names, 'report-signature', 'chain-root'].map(name => pass(name, `${name} holds`))
const having = (changed: Check) => groups(good.map(check => (check.name === changed.name ? changed : check)))

test('goal: which checks are in which group, written out; all others are evidence', () => {
  expect(COMMON_GROUPS.map(({ name, members, decides }) => [name, members.join(' '), decides?.check ?? null])).toEqual([
    ['nonce', 'statement-nonce statement-age', null],
    ['measurement', 'statement-measurement measurement expected-image-name', 'measurement'],
    ['operator-key', 'statement-operator-key id-key-digest expected-operator-key', 'id-key-digest'],
  ])
  expect(groups(good)).toEqual([
    'gw/evidence pass: 2 checks',
    'gw/nonce pass: 2 checks',
    'gw/measurement pass: 3 checks',
    'gw/operator-key pass: 3 checks',
  ])
})

test('goal: one check that fails, or is missing, makes its group and no other bad', () => {
  const GROUP_OF: Readonly<Record<string, string>> = {
    'statement-nonce': 'nonce',
    'statement-age': 'nonce',
    'statement-measurement': 'measurement',
    measurement: 'measurement',
    'expected-image-name': 'measurement',
    'statement-operator-key': 'operator-key',
    'id-key-digest': 'operator-key',
    'expected-operator-key': 'operator-key',
    'report-signature': 'evidence',
    'chain-root': 'evidence',
  }
  for (const { name } of good) {
    const failed = having(fail(name, 'it does not fit'))
    expect([name, failed.filter(line => !line.includes(' pass: '))]).toEqual([
      name,
      [`gw/${GROUP_OF[name]} fail: ${name}: it does not fit`],
    ])
    const missing = having(notChecked(name, 'it is not there', true))
    expect([name, missing.filter(line => !line.includes(' pass: '))]).toEqual([
      name,
      [`gw/${GROUP_OF[name]} not-checked: ${name}: it is not there`],
    ])
  }
})

test('goal: a group whose deciding check was left out by choice says so; another one that fails counts all the same', () => {
  const skipped = notChecked('measurement', 'any', false)
  expect(having(skipped)).toContain(
    'gw/measurement not-checked by choice: no measurement is expected; name yours in a --policy',
  )
  expect(having(notChecked('id-key-digest', 'any', false))).toContain(
    'gw/operator-key not-checked by choice: no operator key is expected; name yours in a --policy',
  )
  const both = good.map(check =>
    check.name === 'measurement'
      ? skipped
      : check.name === 'statement-measurement'
        ? fail('statement-measurement', 'another one')
        : check,
  )
  expect(groups(both)).toContain('gw/measurement fail: statement-measurement: another one')
})

test('goal: a group without checks was not checked, and all that are bad are named but the one that repeats them', () => {
  expect(groups([])).toEqual(
    ['evidence', 'nonce', 'measurement', 'operator-key'].map(name => `gw/${name} not-checked: nothing was checked`),
  )
  const bad = [fail('evidence', 'see its checks'), fail('chain-root', 'a'), notChecked('vek-tcb', 'b', true)]
  expect(groups([...bad, pass('report-signature')])[0]).toBe('gw/evidence fail: chain-root: a; vek-tcb: b')
  expect(groups([fail('evidence', 'see its checks')])[0]).toBe('gw/evidence fail: evidence: see its checks')
  expect(groups([pass('chain-root', 'AMD')])[0]).toBe('gw/evidence pass: AMD')
})

test('goal: floors are a group of their own; one that is waived or of second hand stands by itself', () => {
  const floors = [pass('tcb-floor-snp', 'x'), fail('tcb-floor-microcode', 'too low')]
  const waived = notChecked('tcb-floor-launch-snp', 'waived (old host): too low', false)
  expect(groups([...good, ...floors, waived]).slice(0, 3)).toEqual([
    'gw/evidence pass: 2 checks',
    'gw/tcb-floor fail: tcb-floor-microcode: too low',
    'gw/tcb-floor-launch-snp not-checked by choice: waived (old host): too low',
  ])
  expect(groups([...good, waived]).slice(1, 2)).toEqual([
    'gw/tcb-floor-launch-snp not-checked by choice: waived (old host): too low',
  ])
  expect(groups([...good, notChecked('tcb-floor-snp', 'no report', true)])[1]).toBe(
    'gw/tcb-floor not-checked: tcb-floor-snp: no report',
  )
})

test('goal: what the caller judges elsewhere is in no group', () => {
  expect(groups([...good, fail('allowlist', 'x')], ['allowlist'])).toEqual(groups(good))
  expect(groups([...good, fail('allowlist', 'x')])[0]).toBe('gw/evidence fail: allowlist: x')
})

test("goal: a document's nonce is compared whole; without one the age of the evidence is not known", () => {
  const nonce = new Uint8Array(32).fill(7)
  expect(nonceCheck(nonce, nonce.slice())).toMatchObject({ name: 'attestation-nonce', outcome: 'pass' })
  for (const other of [nonce.with(31, 8), nonce.slice(1), new Uint8Array(0)]) {
    expect(nonceCheck(nonce, other)).toMatchObject({ outcome: 'fail', required: true })
  }
  expect(nonceCheck(nonce, 'any')).toMatchObject({
    ...{ outcome: 'not-checked', required: false, reason: 'no nonce is expected: this evidence may be old' },
  })
})

test("goal: the caller's revocation list takes the place of the receipt's own, and of nothing else", () => {
  const receipt = { evidence: { vek: 'v', crl: 'old' }, statement: 's' }
  expect(withCrl(receipt, undefined)).toBe(receipt)
  expect(withCrl(receipt, Uint8Array.of(1, 2, 3))).toEqual({ evidence: { vek: 'v', crl: 'AQID' }, statement: 's' })
})

test('goal: a group of which everything was left out by choice was not checked, by choice', () => {
  const without = good.map(check =>
    check.name === 'statement-nonce' || check.name === 'statement-age'
      ? notChecked(check.name, 'any was accepted', false)
      : check,
  )
  expect(groups(without)[1]).toBe(
    'gw/nonce not-checked by choice: statement-nonce: any was accepted; statement-age: any was accepted',
  )
})
