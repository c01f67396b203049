// The key configuration's bytes, and what sends a client to fetch it again.

import { expect, test } from 'bun:test'
import { encodeKeyConfig, keyConfigProblemOf } from '../../../src/attest/ehbp/key-config.ts'
import { isKeyConfigProblem } from '../../../src/attest/ehbp/key-config-problem.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { toHex } from '../../../src/base/bytes.ts'

test('goal: key id, KEM, key and one suite, as RFC 9458 section 3.1 has them', () => {
  const keys = { x25519: new Uint8Array(32).fill(0xab), mlkem768: new Uint8Array(1184) }
  expect(toHex(encodeKeyConfig(keys))).toBe(`000020${'ab'.repeat(32)}000400010002`)
  expect(() => encodeKeyConfig({ ...keys, x25519: new Uint8Array(33) })).toThrow(Malformed)
})

test('goal: only a 422 with a problem document of the very type means other keys', () => {
  const body = JSON.stringify(keyConfigProblemOf('other keys'))
  const contentType = 'application/problem+json'
  expect(isKeyConfigProblem({ status: 422, contentType, body })).toBe(true)
  expect(isKeyConfigProblem({ status: 422, contentType: 'Application/Problem+JSON; charset=utf-8', body })).toBe(true)
  const others = [
    { status: 400, contentType, body },
    { status: 422, contentType: 'application/json', body },
    { status: 422, contentType: null, body },
    { status: 422, contentType, body: '{"type":"about:blank"}' },
    { status: 422, contentType, body: 'null' },
    { status: 422, contentType, body: '<html>' },
  ]
  for (const other of others) expect(isKeyConfigProblem(other)).toBe(false)
})
