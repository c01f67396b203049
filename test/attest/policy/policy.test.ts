// Goal: a policy is written so that verifiers from before its newer fields read it too, unless it uses one of these.

import { expect, test } from 'bun:test'
import { encodePolicy, laterFieldsIn } from '../../../src/attest/policy/encode.ts'
import { parsePolicy, strictPolicy } from '../../../src/attest/policy/policy.ts'
import { utf8 } from '../../../src/base/bytes.ts'

const strict = strictPolicy()

test('goal: fields that came later are left out where they say any, and only there', () => {
  const early = encodePolicy(strict)
  expect(Object.keys(early)).toContain('measurements')
  expect(early.measurements).toBe('any')
  for (const later of ['reportVersions', 'cspIds', 'maxCrlAgeDays']) expect(Object.keys(early)).not.toContain(later)
  expect(laterFieldsIn(strict)).toEqual([])
  const policy = {
    ...strict,
    maxCrlAgeDays: 7,
    measurements: [new Uint8Array(48)],
    committedFirmware: 'current' as const,
  }
  expect(encodePolicy(policy)).toEqual({
    ...early,
    measurements: ['00'.repeat(48)],
    committedFirmware: 'current',
    maxCrlAgeDays: 7,
  })
  expect(laterFieldsIn(policy)).toEqual(['committedFirmware', 'maxCrlAgeDays'])
  expect(parsePolicy(encodePolicy(policy))).toEqual(policy)
})

test('goal: text in which no name stands twice', () => {
  const text = JSON.stringify(encodePolicy(strict))
  expect(parsePolicy(text)).toEqual(strict)
  expect(parsePolicy(utf8(text))).toEqual(strict)
  const twice = text.replace('"vmpls":[0]', '"vmpls":[0],"vmpls":"any"')
  expect(twice).not.toBe(text)
  expect(() => parsePolicy(twice)).toThrow('policy')
  expect(() => parsePolicy(utf8(twice))).toThrow('policy')
  expect(() => parsePolicy('5')).toThrow('policy: not an object')
})

// Goal: a comment ends where every reader ends a line, so that no field can stand in what people see as a comment.
test('goal: comments end with LF or CRLF, and other line ends are refused', () => {
  const text = JSON.stringify(encodePolicy(strict), null, 2)
  for (const end of ['\n', '\r\n']) {
    const commented = ['// of a person', ...text.split('\n').flatMap(line => ['  // "vmpls": "any",', line])].join(end)
    expect(parsePolicy(commented)).toEqual(strict)
  }
  for (const end of ['\r', '\u2028', '\u2029', '\n\r']) {
    expect(() => parsePolicy(`// a comment${end}${text}`)).toThrow('a line ends with CR alone, U+2028 or U+2029')
  }
})
