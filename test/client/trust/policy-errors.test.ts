// Goal: an error in a policy file names the value that was found, the allowed form and an example that is allowed.

import { expect, test } from 'bun:test'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { parsePolicy, strictPolicy } from '../../../src/attest/policy/policy.ts'
import { POLICY_FIELDS } from '../../../src/attest/policy/schema.ts'
import { messageOf } from '../../../src/base/fault.ts'
import { readPolicyDocument } from '../../../src/client/trust/trust-options.ts'

const strict = encodePolicy(strictPolicy())

function problemOf(change: object): string {
  try {
    readPolicyDocument({ ...strict, ...change })
  } catch (error) {
    return messageOf(error)
  }
  return 'none'
}

// Goal: each kind of value has its own words.
test.each([
  [{ products: ['rome'] }, 'policy.products[0]: "rome" is not one of milan, genoa, turin; for example "milan"'],
  [
    { products: 'rome' },
    'policy.products: "rome" is not a list of 1 to 1024; for example ["milan"], or "any" to skip this check',
  ],
  [{ vmpls: [4] }, 'policy.vmpls[0]: 4 is not an integer from 0 to 3; for example 0'],
  [
    { measurements: ['AB'] },
    'policy.measurements[0]: "AB" is not 48 bytes in lower-case hexadecimal; for example "0a1b2c3d…", 96 digits of 0-9 and a-f',
  ],
  [
    { hostData: 7 },
    'policy.hostData: 7 is not 32 bytes in lower-case hexadecimal; for example "0a1b2c3d…", 64 digits of 0-9 and a-f, or "any" to skip this check',
  ],
  [
    { guestPolicy: { ...Object(strict.guestPolicy), debug: 'no' } },
    'policy.guestPolicy.debug: "no" is not one of required, forbidden, any; for example "required"',
  ],
  [
    { minimumTcb: { milan: 'x', genoa: 'any', turin: 'any' } },
    'policy.minimumTcb.milan: "x" is not an object; for example { "bootloader": 0, … }, or "any" to skip this check',
  ],
  [
    { launchMitigations: { required: 3, forbidden: '0x0' } },
    'policy.launchMitigations.required: 3 is not a number of 64 bits like 0xb; for example "0xb"',
  ],
  [
    { chipIds: { list: 'chips.json' } },
    expect.stringMatching(/^policy\.chipIds\.maxAgeDays: it is missing; write .*"any".*; for example 0$/),
  ],
  [
    { minimumTbc: 'any' },
    'policy.minimumTbc: unknown field; did you mean minimumTcb or minimumLaunchTcb or minimumFirmware or minimumGuestSvn?',
  ],
  [
    { maximumPolicyAbi: { major: 1, minor: 2, patch: 3 } },
    'policy.maximumPolicyAbi.patch: unknown field; there are major, minor',
  ],
])('%#', (change, message) => {
  expect(problemOf(change)).toEqual(message as string)
})

// Goal: a value of any length, or with control characters, is shown as one short line.
test('long and strange values', () => {
  const message = problemOf({ hostData: `\n\u001b[31m${'a'.repeat(100_000)}` })
  expect(message).toMatch(/^policy\.hostData: "\\n\\u001b\[31ma{40,60}… \(\d+ characters\) is not 32 bytes/)
  expect(problemOf({ 'a: b\n': 1 })).toBe('policy.a: b\n: unknown field')
})

// Goal: no wrong value of any field leaves the message without an example, and no example is one that is refused.
test('every field', () => {
  for (const name of Object.keys(POLICY_FIELDS)) {
    const message = problemOf({ [name]: -1 })
    expect(message).toStartWith(`policy.${name}: -1 is not `)
    const [, example = ''] = /; for example (.*?)(?:, or "any" to skip this check)?$/s.exec(message) ?? []
    expect([name, example]).not.toEqual([name, ''])
    if (/…/.test(example)) continue
    expect(() => parsePolicy({ ...strict, [name]: JSON.parse(example) })).not.toThrow()
  }
})
