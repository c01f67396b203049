// Goal: a policy for GPUs allows what it lists, and what is given up by default is said.

import { describe, expect, test } from 'bun:test'
import { defaultGpuPolicy } from '../../../src/attest/nvidia/hgx/policy.ts'
import { ARCHITECTURES, appraiseGpu, type GpuFacts, parseGpuPolicy } from '../../../src/attest/nvidia/policy.ts'
import { utf8 } from '../../../src/base/bytes.ts'

const POLICY = {
  format: 'strongroom/gpu-policy/v1',
  architectures: ['HOPPER'],
  driverVersions: ['550.90.07', '580.1'],
  vbiosVersions: ['96.00.9F.00.01'],
  modes: ['SPT'],
  ueids: ['478'],
  deviceSerials: ['41E2'],
  ocspMaximumAgeSeconds: 7200,
  devtools: 'any',
}

const facts: GpuFacts = {
  architecture: 'HOPPER',
  driverVersion: '550.90.07',
  vbiosVersion: '96.00.9F.00.01',
  mode: 'SPT',
  ueid: '478',
  deviceSerial: '41E2',
}

const CHECKS = ['architecture', 'driver-version', 'vbios-version', 'mode', 'ueid', 'device-serial']

test('goal: each fact is checked by its own field', () => {
  const outcomesOf = (policy: object, of: Partial<GpuFacts> = {}) => {
    const checks = appraiseGpu(parseGpuPolicy({ ...POLICY, ...policy }), { ...facts, ...of })
    expect(checks.map(({ name }) => name)).toEqual(CHECKS.map(name => `gpu-policy-${name}`))
    return checks.map(({ outcome, required }) => `${outcome} ${required}`)
  }
  expect(outcomesOf({})).toEqual(new Array(6).fill('pass true'))
  const others = { architecture: 'BLACKWELL', driverVersion: '550.90.08', vbiosVersion: '96.00.9F.00.02', mode: 'MPT' }
  for (const [at, [name, value]] of Object.entries({ ...others, ueid: '479', deviceSerial: '41E3' }).entries())
    expect(outcomesOf({}, { [name]: value })).toEqual(new Array(6).fill('pass true').with(at, 'fail true'))
  const fields = ['architectures', 'driverVersions', 'vbiosVersions', 'modes', 'ueids', 'deviceSerials']
  for (const [at, name] of fields.entries())
    expect(outcomesOf({ [name]: 'any' })).toEqual(new Array(6).fill('pass true').with(at, 'not-checked false'))
  const reasons = appraiseGpu(parseGpuPolicy({ ...POLICY, ueids: 'any' }), { ...facts, mode: 'PPCIE' })
  expect([reasons[0]?.reason, reasons[3]?.reason, reasons[4]?.reason]).toEqual([
    ...['HOPPER', 'PPCIE is not in the policy', "478; the policy has 'any'"],
  ])
})

test('goal: without a policy every GPU and version is taken, a day of OCSP, and no report alone', () => {
  expect(defaultGpuPolicy()).toEqual({
    ...{ format: 'strongroom/gpu-policy/v1', architectures: 'any', driverVersions: 'any', vbiosVersions: 'any' },
    ...{ modes: 'any', ueids: 'any', deviceSerials: 'any', ocspMaximumAgeSeconds: 86_400, devtools: 'refuse' },
    topology: 'any',
  })
  expect([...ARCHITECTURES]).toEqual(['HOPPER', 'BLACKWELL'])
})

describe('reading', () => {
  test('goal: text, bytes or an object, in which no name stands twice', () => {
    const text = JSON.stringify(POLICY)
    for (const form of [text, utf8(text), POLICY]) expect(parseGpuPolicy(form) as object).toEqual(POLICY)
    expect(() => parseGpuPolicy(text.replace('"modes"', '"modes":"any","modes"'))).toThrow('GPU policy')
    const ends = { ocspMaximumAgeSeconds: 366 * 86_400, ueids: ['1', '9'.repeat(64)], deviceSerials: ['AB'.repeat(20)] }
    expect(parseGpuPolicy({ ...POLICY, ...ends }).ocspMaximumAgeSeconds).toBe(31_622_400)
    expect(parseGpuPolicy({ ...POLICY, ocspMaximumAgeSeconds: 1, devtools: 'refuse' }).devtools).toBe('refuse')
    expect(parseGpuPolicy({ ...POLICY, modes: ['SPT', 'MPT', 'PPCIE', 'unsaid'] }).modes.length).toBe(4)
  })

  // Goal: a value of another form is refused by its field.
  test.each<[string, unknown]>([
    ['format', 'strongroom/gpu-policy/v2'],
    ['architectures', ['AMPERE']],
    ['architectures', []],
    ['driverVersions', ['550']],
    ['driverVersions', ['550.90.07 ']],
    ['vbiosVersions', ['96.00.9f.00.01']],
    ['vbiosVersions', ['96.00.9F.00']],
    ['modes', ['off']],
    ['ueids', ['0478']],
    ['ueids', ['GPU-1']],
    ['ueids', ['9'.repeat(65)]],
    ['deviceSerials', ['41e2']],
    ['deviceSerials', ['41E']],
    ['deviceSerials', ['AB'.repeat(21)]],
    ['ocspMaximumAgeSeconds', 0],
    ['ocspMaximumAgeSeconds', 366 * 86_400 + 1],
    ['devtools', 'on'],
    ['other', 1],
  ])('%s of %j is refused', (name, value) => {
    expect(() => parseGpuPolicy({ ...POLICY, [name]: value })).toThrow(`gpu policy.${name}`)
  })

  // Goal: no field may be left out.
  test.each(Object.keys(POLICY))('a policy without %s is refused', name => {
    const { [name as 'format']: _, ...rest } = POLICY
    expect(() => parseGpuPolicy(rest)).toThrow(`gpu policy.${name}: it is missing`)
  })

  test('goal: the message for another format or none says what to write', () => {
    expect(() => parseGpuPolicy({ ...POLICY, format: undefined })).toThrow('strongroom/gpu-policy/v1')
    const { format: _, ...rest } = POLICY
    expect(() => parseGpuPolicy(rest)).toThrow('gpu policy.format: it is missing; write "strongroom/gpu-policy/v1"')
  })
})
