// Goal: what a caller says is read strictly: a mistake names its option, and what is not pinned is refused before
// anything is sent.

import { afterAll, describe, expect, test } from 'bun:test'
import { clearRig } from '../../../scripts/rigs/gateway/attestation.ts'
import { attestedOptions } from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { OptionError } from '../../../src/verifier/fetch/errors.ts'
import { type AttestedFetchOptions, readOptions } from '../../../src/verifier/fetch/options.ts'

afterAll(clearRig)

const all: AttestedFetchOptions = { ...(await attestedOptions()), url: 'https://127.0.0.1:8442' }
const { policy } = all as { policy: Readonly<Record<string, unknown>> }

/** `param: message` of the OptionError, or what came instead. */
function problemOf(changes: Readonly<Record<string, unknown>>): string {
  try {
    readOptions({ ...all, ...changes } as AttestedFetchOptions)
  } catch (error) {
    return error instanceof OptionError ? error.message : `not an OptionError: ${error}`
  }
  return 'no error'
}

test('goal: everything that is said is kept, and what is left out has the default that the types name', () => {
  const settings = readOptions(all)
  expect([settings.origin.href, settings.encryption, settings.trust.roots.length]).toEqual([
    ...['https://127.0.0.1:8442/', 'required', 4],
  ])
  expect(settings.limits).toEqual({
    evidenceAgeMaxMs: 3_600_000,
    reverifyAfterMs: 1_800_000,
    evidenceTimeoutMs: 30_000,
    requestBytesMax: 67_108_864,
    responseBytesMax: 67_108_864,
  })
  expect(settings.wire).toEqual({ ca: all.ca, connectTimeoutMs: 10_000, idleTimeoutMs: 600_000 })
  expect(settings.trust.pins).toEqual({
    measurement: 'required',
    allowlist: 'required',
    vmpl: 'required',
    crl: 'required',
    tcb: 'required',
  })
  const waived = { tcb: { snp: 'the host is updated in December' } }
  expect(readOptions({ ...all, pins: waived }).trust.pins.tcb).toEqual(waived.tcb)
  // AMD's alone, unless somebody says otherwise.
  const { simulatedRoot: _, ...rest } = all
  expect(readOptions(rest).trust.roots).toHaveLength(3)
  // Text or bytes, of whatever kind.
  const bytes = Buffer.from(`${all.allowlist}`)
  expect(readOptions({ ...all, allowlist: bytes, policy: JSON.stringify(policy) }).trust).toEqual(settings.trust)
})

test('goal: workload.json by its digests, and settings by their names; anything else is an error before a request', () => {
  const { workloads, allow } = readOptions({ ...all, workloads: ['0a'.repeat(32)], allow: ['no-padding'] }).trust
  expect([workloads, allow]).toEqual([[new Uint8Array(32).fill(10)], ['no-padding']])
  expect([readOptions(all).trust.workloads, readOptions(all).trust.allow]).toEqual([undefined, []])
  const said = (changes: object): string => {
    try {
      readOptions({ ...all, ...changes })
      return 'accepted'
    } catch (error) {
      return error instanceof OptionError ? error.message : `not an OptionError: ${error}`
    }
  }
  const many = Array.from({ length: 65 }, () => '0a'.repeat(32))
  for (const bad of [[], ['0a'], [7], 'ab', many]) expect(said({ workloads: bad })).toContain('give 1 to 64 SHA-256')
  for (const bad of ['no-padding', ['padding'], [7], ['toString']])
    expect(said({ allow: bad })).toContain('usage-labels')
  // A digest says whose gateway it is, as a key does.
  const { allowlist: _, ...rest } = all
  const open = { ...rest, policy: { ...policy, idKeyDigest: 'any', hostData: 'any' } }
  expect(() => readOptions(open)).toThrow(OptionError)
  expect(readOptions({ ...open, workloads: ['0a'.repeat(32)] }).trust.workloads).toHaveLength(1)
})

// Goal: a gateway may be below a path, given with or without the end of an OpenAI client's baseURL.
describe('a path', () => {
  test.each([
    ['https://127.0.0.1:8442', ''],
    ['https://127.0.0.1:8442/', ''],
    ['https://127.0.0.1:8442/v1', ''],
    ['https://127.0.0.1:8442/v1/', ''],
    ['https://127.0.0.1:8442/team-a', '/team-a'],
    ['https://127.0.0.1:8442/team-a/', '/team-a'],
    ['https://127.0.0.1:8442/team-a/v1', '/team-a'],
    ['https://127.0.0.1:8442/a/b.c/~d_/v1/', '/a/b.c/~d_'],
    ['https://127.0.0.1:8442/v1/v1', '/v1'],
    ['https://127.0.0.1:8442/a/../b', '/b'],
    [`https://127.0.0.1:8442/${'a'.repeat(255)}`, `/${'a'.repeat(255)}`],
  ])('%s', (url, prefix) => {
    const settings = readOptions({ ...all, url })
    expect([settings.origin.href, settings.prefix]).toEqual(['https://127.0.0.1:8442/', prefix])
  })
})

// Goal: a mistake is an error that names the option.
describe('mistakes', () => {
  test.each([
    [{ url: 'http://127.0.0.1:1' }, 'url: '],
    [{ url: 'https://127.0.0.1:1/a//b' }, 'url: '],
    [{ url: 'https://127.0.0.1:1/a%2fb' }, 'url: '],
    [{ url: 'https://127.0.0.1:1/a;b' }, 'url: '],
    [{ url: `https://127.0.0.1:1/${'a'.repeat(256)}` }, 'url: '],
    [{ url: 'https://127.0.0.1:1/a#b' }, 'url: '],
    [{ url: 'https://u:p@127.0.0.1:1' }, 'url: '],
    [{ url: 'https://127.0.0.1:1/?x' }, 'url: '],
    [{ url: undefined }, 'url: '],
    [{ policy: undefined }, 'policy: '],
    [{ policy: '{' }, 'policy: '],
    [{ policy: { ...policy, debug: 1 } }, 'policy.debug: '],
    [{ policy: { ...policy, minimumBuild: 256 } }, 'policy.minimumBuild: '],
    [{ pins: { tcb: {} } }, 'pins.tcb: it names no part'],
    [{ pins: { tcb: { bios: 'old' } } }, 'pins.tcb: there is no part "bios" of the floors'],
    [{ pins: { tcb: { snp: '' } } }, 'pins.tcb: snp: say why'],
    [{ pins: { vmpl: { snp: 'old' } } }, 'pins.vmpl: '],
    [{ policy: { ...policy, vmpls: undefined } }, 'policy.vmpls: '],
    [{ policy: { ...policy, measurements: ['00'] } }, 'policy.measurements[0]: '],
    [{ allowlist: '{"schemaVersion":1}' }, 'allowlist: '],
    [{ allowlist: 7 }, 'allowlist: '],
    [{ configuration: 7 }, 'configuration: '],
    [{ workload: 7 }, 'workload: '],
    [{ workload: '{}', policy: { ...policy, hostData: '07'.repeat(32) } }, 'policy.hostData: '],
    [{ crl: 'x' }, 'crl: '],
    [{ simulatedRoot: 'x' }, 'simulatedRoot: '],
    [{ ca: 7 }, 'ca: '],
    [{ encryption: 'on' }, 'encryption: '],
    [{ encryption: null }, 'encryption: '],
    [{ evidenceAgeMaxMs: 0 }, 'evidenceAgeMaxMs: '],
    [{ evidenceAgeMaxMs: 1e12 }, 'evidenceAgeMaxMs: '],
    [{ evidenceAgeMaxMs: Number.NaN }, 'evidenceAgeMaxMs: '],
    [{ reverifyAfterMs: 3_600_001 }, 'reverifyAfterMs: '],
    [{ idleTimeoutMs: '7' }, 'idleTimeoutMs: '],
    [{ pins: { measurments: 'any' } }, 'pins.measurments: '],
    [{ pins: { measurement: 'ANY' } }, 'pins.measurement: '],
    [{ pins: { measurement: undefined } }, 'pins.measurement: '],
    [{ pins: 'any' }, 'pins: '],
    [{ pins: null }, 'pins: '],
    [{ encryptoin: 'off' }, 'encryptoin: '],
  ])('%j', (changes, param) => {
    expect(problemOf(changes)).toStartWith(param)
  })

  test('and no options at all are one', () => {
    expect(() => readOptions(undefined as unknown as AttestedFetchOptions)).toThrow(OptionError)
  })
})

// Goal: a pin that is missing is an error, and only 'any', said to exactly it, leaves it out.
describe('pins', () => {
  const hostData = '07'.repeat(32)
  const nobody = { ...policy, idKeyDigest: 'any' }
  test.each([
    ['measurement', { policy: { ...policy, measurements: 'any' } }, 'policy.measurements: '],
    ['allowlist', { policy: nobody, allowlist: undefined }, 'allowlist: '],
    ['allowlist', { policy: nobody, allowlist: 'any' }, 'allowlist: '],
    // Values that every guest has.
    ['allowlist', { policy: { ...nobody, hostData: '00'.repeat(32) }, allowlist: 'any' }, 'allowlist: '],
    ['allowlist', { policy: { ...nobody, idKeyDigest: '00'.repeat(48) }, allowlist: 'any' }, 'allowlist: '],
    ['vmpl', { policy: { ...policy, vmpls: 'any' } }, 'policy.vmpls: '],
  ])('%s, %#', (pin, changes, param) => {
    expect(problemOf(changes)).toStartWith(param)
    expect(problemOf({ ...changes, pins: { [pin]: 'any' } })).toBe('no error')
    const others = ['measurement', 'allowlist', 'vmpl', 'crl', 'tcb'].filter(text => text !== pin)
    expect(problemOf({ ...changes, pins: Object.fromEntries(others.map(other => [other, 'any'])) })).toStartWith(param)
  })

  test('an allowlist, an operator key and HOST_DATA each say whose gateway it is', () => {
    expect(problemOf({ policy: nobody })).toBe('no error')
    expect(problemOf({ allowlist: 'any' })).toBe('no error')
    expect(problemOf({ allowlist: 'any', policy: { ...nobody, hostData } })).toBe('no error')
    expect(problemOf({ allowlist: 'any', policy: nobody, workload: '{}' })).toBe('no error')
  })
})
