// Goal: a call between hosts is read back exactly, signed over every part of it, and refused in any other form.

import { expect, test } from 'bun:test'
import {
  clientText,
  decodeCall,
  encodeCall,
  type SignedCall,
  signedBytes,
  targetOf,
} from '../../../src/fleet/peers/call.codec.ts'

const call: SignedCall = {
  from: 'host-a',
  to: 'host-b',
  service: 'instances',
  client: '2001:db8::1',
  principal: { organizationId: 'org-1', keyPrefix: '0a1b2c3d', scope: 'write' },
  atMs: 1_700_000_000_000,
  nonce: 'A'.repeat(22),
  signature: new Uint8Array(64).fill(1),
}
const text = encodeCall(call)

test('goal: what was written is read back, for every service and without a caller', () => {
  expect(text).toBe(
    `v2 host-a host-b instances 2001:db8::1 ca:org-1:0a1b2c3d:write 1700000000000 ${'A'.repeat(22)} ${'AQEB'.repeat(21)}AQ`,
  )
  for (const service of ['instances', 'builds', 'handover', 'alive'] as const) {
    const other = { ...call, service, client: '', principal: null }
    expect(decodeCall(encodeCall(other))).toEqual(other)
  }
  expect(decodeCall(text)).toEqual(call)
})

test('goal: any other text is no call', () => {
  const broken = [
    null,
    '',
    ` ${text}`,
    `${text} `,
    text.replace('v2', 'v1'),
    text.replace('instances', 'models'),
    text.replace('host-a', 'host_a'),
    text.replace('host-a', 'x'.repeat(65)),
    text.replace('ca:org-1', 'cb:org-1'),
    text.replace(':write', ':admin'),
    text.replace('2001:db8::1', 'x'.repeat(65)),
    text.replace('1700000000000', '1'.repeat(16)),
    text.replace('A'.repeat(22), 'A'.repeat(21)),
    text.slice(0, -1),
    // Bits beyond the 64 bytes.
    `${text.slice(0, -1)}R`,
  ]
  for (const other of broken) expect([other, decodeCall(other)]).toEqual([other, null])
})

test('goal: the signature is over each part, the request line included', () => {
  const of = (changes: Partial<SignedCall> = {}, request = { method: 'GET', target: '/v1' }) =>
    new TextDecoder().decode(signedBytes({ ...call, ...changes }, request))
  expect(of({ principal: null }).split('\n')).toEqual([
    'strongroom peer call v2',
    'host-a',
    'host-b',
    'instances',
    '2001:db8::1',
    '-',
    '1700000000000',
    'A'.repeat(22),
    'GET',
    '/v1',
  ])
  expect(of().split('\n')[5]).toBe('ca:org-1:0a1b2c3d:write')
})

test('goal: only a text that can be an address stands for the client', () => {
  for (const address of ['', '10.0.0.1', 'fe80::1%eth0', 'a'.repeat(64)]) expect(clientText(address)).toBe(address)
  for (const address of ['a b', 'a\n', 'X', 'a'.repeat(65)]) expect(clientText(address)).toBe('')
})

test('goal: the target is path and query as they were sent', () => {
  const cases = ['http://h/a?b=1', 'https://h:1/a%2Fb#c', 'http://h', 'http://h?x', '/a/b', 'a']
  expect(cases.map(targetOf)).toEqual(['/a?b=1', '/a%2Fb', '/', '/?x', '/a/b', '/a'])
})
