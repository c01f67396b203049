// Goal: what a caller says is read strictly: a mistake names its option, and what is not pinned is refused before
// anything is sent.

import { afterAll, describe, expect, test } from 'bun:test'
import { clearRig } from '../../../scripts/rigs/gateway/attestation.ts'
import { attestedOptions } from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { sha256 } from '../../../src/attest/hash.ts'
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

// Goal: a configuration is required unless the caller accepts any.
test('configuration', () => {
  const digestOf = (changes: object) => readOptions({ ...all, ...changes }).trust.configurationDigest
  expect([digestOf({ configuration: undefined }), digestOf({ configuration: 'any' })]).toEqual(['required', 'any'])
  expect(digestOf({ configuration: '{}' })).toEqual(sha256(new TextEncoder().encode('{}')))
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

// Goal: each number has its limits, which are in the message, and its unit.
describe('numbers', () => {
  const day = 86_400_000
  test.each([
    ['evidenceAgeMaxMs', 1_000, day],
    ['evidenceTimeoutMs', 100, 600_000],
    ['connectTimeoutMs', 100, 600_000],
    ['idleTimeoutMs', 100, day],
    ['requestBytesMax', 1, 1_073_741_824],
    ['responseBytesMax', 1, 1_073_741_824],
  ] as const)('%s', (name, least, most) => {
    for (const value of [least, most]) {
      const { limits, wire } = readOptions({ ...all, [name]: value })
      expect({ ...limits, ...wire }).toMatchObject({ [name]: value })
    }
    for (const value of [least - 1, most + 1, least + 0.5, `${least}`, null]) {
      const given = value === null ? problemOf({ [name]: Number.POSITIVE_INFINITY }) : problemOf({ [name]: value })
      expect(given).toBe(`${name}: give a whole number from ${least} to ${most}`)
    }
  })

  test('reverifyAfterMs is at most the age, and half of it by default', () => {
    const limitsOf = (changes: Partial<AttestedFetchOptions>) => readOptions({ ...all, ...changes }).limits
    for (const value of [1, 3_600_000]) expect(limitsOf({ reverifyAfterMs: value }).reverifyAfterMs).toBe(value)
    expect(limitsOf({ evidenceAgeMaxMs: 1_001 }).reverifyAfterMs).toBe(500)
    const words = (most: number) => `reverifyAfterMs: give a whole number from 1 to ${most}`
    for (const value of [0, 3_600_001, 1.5]) expect(problemOf({ reverifyAfterMs: value })).toBe(words(3_600_000))
    expect(problemOf({ evidenceAgeMaxMs: 1_000, reverifyAfterMs: 1_001 })).toBe(words(1_000))
  })
})

test('goal: upstreams outside are a list of texts', () => {
  for (const outside of [[], ['far'], ['far=https://far.example', 'b']]) {
    expect(readOptions({ ...all, outside }).trust.outside).toEqual(outside)
  }
  expect(readOptions(all).trust.outside).toEqual([])
  for (const outside of ['far', [''], ['far', ''], [7], [null], {}, true]) {
    expect(problemOf({ outside })).toBe("outside: give upstreams, like ['name=https://host']")
  }
})

test('goal: a revocation list is read from PEM', () => {
  const der = Buffer.from([0x30, 3, 2, 1, 7])
  const crl = `-----BEGIN X509 CRL-----\n${der.toString('base64')}\n-----END X509 CRL-----\n`
  expect(readOptions({ ...all, crl }).trust.crl).toEqual(new Uint8Array(der))
  expect(readOptions(all).trust.crl).toBeUndefined()
})

test('goal: up to 64 digests of workload.json', () => {
  const many = Array.from({ length: 64 }, () => '0a'.repeat(32))
  expect(readOptions({ ...all, workloads: many }).trust.workloads).toHaveLength(64)
})

test('goal: a missing pin is told with each way to name it', () => {
  const nobody = { ...policy, idKeyDigest: 'any' }
  expect(problemOf({ policy: { ...policy, measurements: 'any' } })).toBe(
    "policy.measurements: no measurement is expected: name those of the image, or say pins: { measurement: 'any' }",
  )
  expect(problemOf({ policy: nobody, allowlist: 'any' })).toBe(
    "allowlist: no pin identifies the gateway's operator: give `workload`, `workloads` or `allowlist`, or in the policy `idKeyDigest` or `hostData`, or pins: { allowlist: 'any' }",
  )
  expect(problemOf({ policy: { ...policy, vmpls: 'any' } })).toBe(
    "policy.vmpls: every VMPL is accepted: name [0], or say pins: { vmpl: 'any' }",
  )
  for (const tcb of [null, 7, 'ANY', true])
    expect(problemOf({ pins: { tcb } })).toBe("pins.tcb: say 'required' or 'any'")
  for (const crl of [null, { snp: 'old' }])
    expect(problemOf({ pins: { crl } })).toBe("pins.crl: say 'required' or 'any'")
})

test('goal: every option that the types have is one, and an unknown one is told which there are', () => {
  expect(problemOf({ nonsense: 1 })).toBe(
    'nonsense: there is no such option; there are url, policy, allowlist, workload, configuration, pins, crl, simulatedRoot, ca, encryption, outside, workloads, allow, reverifyAfterMs, evidenceAgeMaxMs, evidenceTimeoutMs, connectTimeoutMs, idleTimeoutMs, requestBytesMax, responseBytesMax',
  )
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
