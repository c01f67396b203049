import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'
import { agentLineBytesMax } from '../../src/contract/vm/agent.ts'
import { encodeResponse, LineReader, parseRequest } from '../../src/guest/wire.codec.ts'

const bytes = (text: string) => new TextEncoder().encode(text)
const key = `${'A'.repeat(43)}=`
const network = { address: '192.0.2.2', gateway: '192.0.2.1', mtuBytes: 1500, resolvers: ['192.0.2.1'] }
const sealed = { ephemeralKey: key, nonce: 'A'.repeat(32), box: 'AAAA' }

describe('lines', () => {
  // Goal: a line is the same wherever the stream was cut, also inside a UTF-8 character.
  test('survive any chunking', () => {
    const line = fc.string({ unit: 'grapheme' }).map(text => text.replaceAll('\n', ' '))
    fc.assert(
      fc.property(fc.array(line), fc.array(fc.nat({ max: 40 })), (texts, cuts) => {
        const stream = bytes(texts.map(text => `${text}\n`).join(''))
        const reader = new LineReader()
        const got: unknown[] = []
        let at = 0
        for (const cut of [...cuts, stream.length]) {
          got.push(...reader.push(stream.subarray(at, at + cut)))
          at += cut
        }
        expect(got).toEqual(texts.filter(text => text !== '').map(text => ({ kind: 'line', text })))
      }),
    )
  })

  // Goal: exactly the limit passes; one byte more is dropped up to its LF, and the line after it is whole.
  test('keep to the limit', () => {
    const longest = 'x'.repeat(agentLineBytesMax)
    expect(new LineReader().push(bytes(`${longest}\n`))).toEqual([{ kind: 'line', text: longest }])
    const reader = new LineReader()
    expect(reader.push(bytes(`${longest}x`))).toEqual([])
    expect(reader.push(bytes(`${longest}\nnext\n`))).toEqual([
      { kind: 'dropped', reason: 'overlong' },
      { kind: 'line', text: 'next' },
    ])
  })

  // Goal: empty lines, with which a host begins a connection, are nothing; they end a half line.
  test('skip empty ones', () => {
    expect(new LineReader().push(bytes('\n\nhalf\n\n'))).toEqual([{ kind: 'line', text: 'half' }])
  })

  // Goal: bytes that are no UTF-8 never reach the parser.
  test('drop what is no UTF-8', () => {
    expect(new LineReader().push(Uint8Array.of(0x7b, 0xff, 0x0a))).toEqual([{ kind: 'dropped', reason: 'not_utf8' }])
  })
})

describe('requests', () => {
  // Goal: each op of the wire is taken as it stands.
  test.each([
    [{ id: 'a', op: 'hello' }],
    [{ id: 'a', op: 'network', network }],
    [{ id: 'a', op: 'claim', sealed }],
    [{ id: 'a', op: 'shutdown' }],
  ] as const)('%j', request => {
    expect(parseRequest(JSON.stringify(request))).toEqual({ kind: 'request', request })
  })

  // Goal: everything else with an id is refused under that id.
  test.each([
    ['unknown op', { op: 'exec' }],
    ['no op', {}],
    ['unknown field', { op: 'hello', more: 1 }],
    ['unknown field inside', { op: 'network', network: { ...network, vlan: 3 } }],
    ['field of another op', { op: 'hello', network }],
    ['wrong type', { op: 'network', network: { ...network, mtuBytes: '1500' } }],
    ['fraction', { op: 'network', network: { ...network, mtuBytes: 1500.5 } }],
    ['out of range', { op: 'network', network: { ...network, mtuBytes: 575 } }],
    ['too many', { op: 'network', network: { ...network, resolvers: Array(4).fill('192.0.2.1') } }],
    ['missing field', { op: 'claim', sealed: { ephemeralKey: key, nonce: sealed.nonce } }],
    ['short key', { op: 'claim', sealed: { ...sealed, ephemeralKey: 'AAAA' } }],
    ['op as array', { op: ['hello'] }],
  ])('%s', (_what, request) => {
    const text = JSON.stringify({ id: 'a', ...request })
    expect(parseRequest(text)).toEqual({ kind: 'refused', id: 'a', message: 'not a request of this wire' })
  })

  // Goal: what carries no usable id is answered by silence.
  test.each([
    '',
    '{',
    'null',
    '7',
    '"hello"',
    '[]',
    '{"op":"hello"}',
    '{"id":1,"op":"hello"}',
    '{"id":"","op":"hello"}',
  ])('%j', text => {
    expect(parseRequest(text)).toBeNull()
  })

  // Goal: an id longer than the schema's is no id.
  test('overlong id', () => {
    expect(parseRequest(JSON.stringify({ id: 'x'.repeat(65), op: 'hello' }))).toBeNull()
  })
})

// Goal: an answer is one line, whatever its message holds.
test('an answer is one line', () => {
  const line = encodeResponse({ id: 'a', ok: false, code: 'failed', message: 'two\nlines' })
  expect(new TextDecoder().decode(line)).toBe('{"id":"a","ok":false,"code":"failed","message":"two\\nlines"}\n')
})
