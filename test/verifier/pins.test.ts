// Goal: every pin is required unless it is waived by exactly 'any', a pin holds only by a value that nobody else's
// guest has too, and each waiver is repeated in the verdict.

import { describe, expect, test } from 'bun:test'
import { type Policy, strictPolicy } from '../../src/attest/policy/policy.ts'
import type { ExpectedAllowlist } from '../../src/verifier/allowlist.ts'
import { allInstancePins, INSTANCE_PINS } from '../../src/verifier/instance-pins.ts'
import {
  allPins,
  EVERY_PIN,
  floorWaivers,
  keyWords,
  PIN_WORDS,
  PINS,
  type Pin,
  type Pinned,
  pinChecks,
  REPORT_PINS,
  readWaiver,
  waiversProblem,
} from '../../src/verifier/pins.ts'

const [key, otherKey, zeros] = [new Uint8Array(48).fill(0xa1), new Uint8Array(48).fill(0xb2), new Uint8Array(48)]
const [keyHex, otherKeyHex] = ['a1'.repeat(48), 'b2'.repeat(48)]
const allowlist = { allowlist: {}, digest: new Uint8Array(32).fill(0xc3) } as unknown as ExpectedAllowlist
const open: Policy = { ...strictPolicy(), vmpls: 'any' }

test('goal: the pins of each kind of evidence, in the order of a verdict, each required by default', () => {
  expect<readonly string[]>(PINS).toEqual(['measurement', 'allowlist', 'vmpl', 'crl', 'tcb'])
  expect<readonly string[]>(REPORT_PINS).toEqual(['measurement', 'vmpl', 'crl', 'tcb'])
  const ofInstance = ['measurement', 'operator-key', 'gateway', 'vmpl', 'crl', 'tcb']
  expect<readonly string[]>(INSTANCE_PINS).toEqual(ofInstance)
  expect<readonly string[]>(EVERY_PIN).toEqual([
    'measurement',
    'allowlist',
    'operator-key',
    'gateway',
    'vmpl',
    'crl',
    'tcb',
  ])
  expect(Object.entries(allPins)).toEqual(PINS.map(pin => [pin, 'required']))
  expect(Object.entries(allInstancePins)).toEqual(ofInstance.map(pin => [pin, 'required']))
})

describe('a waiver of a floor', () => {
  const say = (part: string) => `${part}: say why in one line of at most 200 characters`
  const unknown = (shown: string) =>
    `there is no part ${shown} of the floors; there are snp, microcode, launch-snp, launch-microcode, alias-check`
  const cases: readonly (readonly [string, Readonly<Record<string, unknown>>, string | null])[] = [
    ['none', {}, 'it names no part'],
    ['one', { snp: 'x' }, null],
    ['200 characters', { 'alias-check': 'x'.repeat(200) }, null],
    ['201 characters', { 'alias-check': 'x'.repeat(201) }, say('alias-check')],
    ['all five', { snp: 'a', microcode: 'b', 'launch-snp': 'c', 'launch-microcode': 'd', 'alias-check': 'e' }, null],
    ['a second one without a reason', { snp: 'a', microcode: '' }, say('microcode')],
    ['spaces alone', { snp: '  ' }, say('snp')],
    ['two lines', { snp: 'a\nb' }, say('snp')],
    ['a number', { snp: 7 }, say('snp')],
    ['no part', { bios: 'x' }, unknown('"bios"')],
    ['a long name of no part', { ['b'.repeat(33)]: 'x' }, unknown(`"${'b'.repeat(32)}"`)],
  ]
  test.each(cases)('goal: %s', (_, given, problem) => {
    expect(waiversProblem(given)).toBe(problem)
    // A bad waiver waives nothing.
    expect(floorWaivers(given)).toEqual(problem === null ? given : {})
  })

  test('goal: required, any and null waive no part', () => {
    for (const tcb of ['required', 'any', null, undefined, 7]) expect(floorWaivers(tcb)).toEqual({})
  })

  test('goal: on a command line it is part=reason, each part once', () => {
    expect(readWaiver('snp=a=b')).toEqual({ snp: 'a=b' })
    expect(readWaiver('snp=a', { microcode: 'b' })).toEqual({ microcode: 'b', snp: 'a' })
    expect(readWaiver('snp=a', { snp: 'b' })).toBe('snp is waived twice')
    expect(readWaiver('snp=')).toBe(say('snp'))
    expect(readWaiver('bios=a')).toBe(unknown('"bios"'))
    for (const bad of ['', 'snp', '=a']) expect(readWaiver(bad)).toBe('it is not part=reason')
  })
})

describe('a pin', () => {
  const judge = (pin: Pin, pinned: Partial<Pinned> = {}, value: unknown = 'required') => {
    const given = { policy: open, allowlist: 'any', ...pinned } as const
    const [found, ...more] = pinChecks([pin], { [pin]: value } as never, given)
    expect([found?.name, more]).toEqual([`pin-${pin}`, []])
    return [found?.outcome, found?.reason, found?.required]
  }
  const policy = (changes: Partial<Policy>) => ({ policy: { ...open, ...changes } })

  const missing: readonly (readonly [Pin, string, string])[] = [
    ['measurement', 'no measurement is expected: name yours in a --policy', 'accepted any measurement'],
    [
      'allowlist',
      'no allowlist and no operator key is expected: name --allowlist, or a key or HOST_DATA in the --policy',
      'accepted any allowlist and any operator key',
    ],
    ['operator-key', 'no operator key is expected: name it as idKeyDigest in a --policy', 'accepted any operator key'],
    [
      'gateway',
      'no gateway is expected: name its measurements and operator key in a --gateway-policy (as for `verify gateway`)',
      'accepted any gateway in a measured VM, of any operator',
    ],
    ['vmpl', 'the --policy accepts every VMPL: name [0] in it', 'accepted any VMPL'],
  ]
  test.each(missing)('goal: %s fails without a value, and only any waives it', (pin, words, accepted) => {
    for (const value of ['required', undefined, null, true, 'ANY', {}, { snp: 'x' }]) {
      expect(judge(pin, {}, value)).toEqual(['fail', `${words}, or say 'any'`, true])
    }
    expect(judge(pin, {}, 'any')).toEqual(['not-checked', `${accepted}: the caller said 'any'`, false])
  })

  test('goal: revocation lists and floors are required, and only any leaves them out', () => {
    for (const value of ['required', undefined, 'ANY', null]) {
      expect(judge('crl', {}, value)).toEqual(['pass', 'a revocation list is required', true])
      expect(judge('tcb', {}, value)).toEqual([
        'pass',
        expect.stringMatching(/^the floors of 20\d\d-\d\d-\d\d are required$/),
        true,
      ])
    }
    expect(judge('crl', {}, 'any')).toEqual([
      'not-checked',
      "accepted evidence without a revocation list: the caller said 'any'",
      false,
    ])
    expect(judge('tcb', {}, 'any')).toEqual([
      'not-checked',
      "accepted firmware below AMD's fixes, and memory aliases: the caller said 'any'",
      false,
    ])
    expect(judge('tcb', {}, { snp: 'old', 'alias-check': 'no BIOS' })).toEqual([
      'not-checked',
      "accepted firmware below AMD's fixes in snp (old), alias-check (no BIOS); the other floors are required",
      false,
    ])
    expect(judge('tcb', {}, { microcode: 'old' })).toEqual([
      'not-checked',
      "accepted firmware below AMD's fixes in microcode (old); the other floors are required",
      false,
    ])
    // Neither can be missing, but a text for it is there.
    expect([PIN_WORDS.crl.missing, PIN_WORDS.tcb.missing]).toEqual([
      'no revocation list is required',
      'no floor for the TCB is required',
    ])
  })

  const held: readonly (readonly [Pin, Partial<Pinned>, string])[] = [
    ['measurement', policy({ measurements: [key] }), '1 measurement, named in the policy'],
    ['measurement', policy({ measurements: [key, otherKey] }), '2 measurements, named in the policy'],
    ['measurement', { source: 'the IGVM file' }, 'those of the IGVM file'],
    ['allowlist', { allowlist }, `allowlist ${'c3'.repeat(32)}`],
    ['allowlist', { workloadCount: 2 }, 'one of 2 workload.json, by HOST_DATA'],
    ['allowlist', { workloadCount: 1, allowlist }, 'one of 1 workload.json, by HOST_DATA'],
    ['allowlist', policy({ hostData: new Uint8Array(32).fill(0xd4) }), `allowlist ${'d4'.repeat(32)}, by HOST_DATA`],
    [
      'allowlist',
      { ...policy({ hostData: new Uint8Array(32).fill(0xd4) }), hasWorkload: true, allowlist },
      `workload.json ${'d4'.repeat(32)}, by HOST_DATA`,
    ],
    ['allowlist', policy({ idKeyDigest: key }), `operator key ${keyHex}`],
    ['allowlist', policy({ authorKeyDigest: key, hostData: new Uint8Array(32) }), `author key ${keyHex}`],
    ['operator-key', policy({ idKeyDigest: key, authorKeyDigest: otherKey }), `operator key ${keyHex}`],
    ['operator-key', policy({ idKeyDigest: zeros, authorKeyDigest: otherKey }), `author key ${otherKeyHex}`],
    ['operator-key', policy({ idKeyDigest: [key, otherKey] }), 'one of 2 operator keys'],
    ['gateway', { gateway: '1 measurement of the gateway' }, '1 measurement of the gateway'],
    ['vmpl', policy({ vmpls: [0] }), 'VMPL 0'],
    ['vmpl', policy({ vmpls: [0, 2, 3] }), 'VMPL 0 or 2 or 3'],
  ]
  test.each(held)('goal: %s holds by a value, %#', (pin, pinned, words) => {
    // A waiver of what is named all the same changes nothing.
    for (const value of ['required', 'any']) expect(judge(pin, pinned, value)).toEqual(['pass', words, true])
  })

  const unnamed: readonly (readonly [string, Pin, Partial<Pinned>])[] = [
    ['HOST_DATA of zeros', 'allowlist', policy({ hostData: new Uint8Array(32) })],
    ['a key of zeros', 'allowlist', policy({ idKeyDigest: zeros })],
    ['a workload.json, and its allowlist alone', 'allowlist', { allowlist, hasWorkload: true, workloadCount: 0 }],
    ['a list of keys, one of zeros', 'operator-key', policy({ idKeyDigest: [key, zeros] })],
    ['HOST_DATA', 'operator-key', policy({ hostData: new Uint8Array(32).fill(1) })],
    ['every VMPL', 'vmpl', policy({ vmpls: [0, 1, 2, 3] })],
    ['no gateway', 'gateway', { gateway: null, unattested: null }],
  ]
  test.each(unnamed)('goal: %s is what any guest has, and pins nothing', (_, pin, pinned) => {
    expect(judge(pin, pinned)[0]).toBe('fail')
  })

  test('goal: three VMPLs, one of them twice, are not every VMPL', () => {
    expect(judge('vmpl', policy({ vmpls: [0, 1, 1, 2] }))[0]).toBe('pass')
  })

  test('goal: a gateway that nothing vouches for is said by the name under which it was accepted', () => {
    const words = 'accepted a gateway that nothing attests (no-worker), by that name'
    expect(judge('gateway', { unattested: 'no-worker', gateway: 'x' })).toEqual(['not-checked', words, false])
    expect(judge('measurement', { unattested: 'no-worker' })[0]).toBe('fail')
  })
})

test('goal: words of keys: one by its digest, several by their number, none where one is zeros', () => {
  expect([keyWords('operator key', key), keyWords('key', [otherKey])]).toEqual([
    `operator key ${keyHex}`,
    `key ${otherKeyHex}`,
  ])
  expect(keyWords('key', [key, otherKey])).toBe('one of 2 keys')
  const lastByte = Uint8Array.from({ length: 48 }, (_, at) => (at === 47 ? 1 : 0))
  expect(keyWords('key', lastByte)).toBe(`key ${'00'.repeat(47)}01`)
  for (const field of ['any', zeros, [zeros], [zeros, key]] as const) expect(keyWords('key', field)).toBeNull()
})
