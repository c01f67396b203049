// Goal: a create request is read as written here, and each refusal names its field, never a value.

import { expect, test } from 'bun:test'
import { canonicalCreate, parseCreate, parseIdempotencyKey } from '../../src/instances/create.codec.ts'
import { normalizedKey } from '../../src/instances/public-key.codec.ts'
import { faultOf } from '../rigs/fault-of.ts'

const key = `ssh-ed25519 ${Buffer.concat([
  Buffer.from([0, 0, 0, 11]),
  Buffer.from('ssh-ed25519'),
  Buffer.from([0, 0, 0, 32]),
  Buffer.alloc(32, 7),
]).toString('base64')}`

const refused = (body: unknown) => {
  const { code, message, param = null } = faultOf(() => parseCreate(body))
  expect(code).toBe('invalid_request')
  return [message, param]
}

test('goal: the key is normalized beside the text that was sent, and a model that is not named stays open', () => {
  const sentKey = ` ${key.replace(' ', '\t ')}\n`
  const open = { inferenceModel: null, egress: null }
  expect(parseCreate({ public_key: sentKey })).toEqual({ publicKey: key, sentKey, ...open })
  expect(normalizedKey(sentKey)).toBe(key)
  expect(parseCreate({ public_key: key, inference_model: 'tiny' }).inferenceModel).toBe('tiny')
})

test('goal: two bodies of one meaning have the same bytes, others have not', () => {
  const bytesOf = (model: string | null, publicKey = key) =>
    new TextDecoder().decode(canonicalCreate({ publicKey, inferenceModel: model, egress: null }))
  expect(bytesOf(null)).toBe(`["${key}",null]`)
  expect(bytesOf('tiny')).toBe(`["${key}","tiny"]`)
})

const rules = [
  { host: 'packages.example', port: 8443 },
  { host: 'github.com', port: 443 },
]

test('goal: a policy of egress is compared by its meaning, and its absence leaves the bytes of today', () => {
  const bytesOf = (body: object) => new TextDecoder().decode(canonicalCreate(parseCreate({ public_key: key, ...body })))
  expect(bytesOf({})).toBe(`["${key}",null]`)
  const both = bytesOf({ egress: { default: 'refuse', allow: rules } })
  expect(both).toBe(bytesOf({ egress: { allow: rules.toReversed(), default: 'refuse' } }))
  expect(both).not.toBe(bytesOf({ egress: { default: 'refuse', allow: rules.slice(1) } }))
  expect(both).not.toBe(bytesOf({}))
})

test('goal: a malformed policy of egress is refused as one field', () => {
  const form =
    'egress must be an object of default ("refuse" or "allow") and allow, a list of at most 64 objects of host and port'
  for (const egress of [
    null,
    'github.com',
    { default: 'refuse' },
    { default: 'deny', allow: [] },
    { default: 'refuse', allow: [7] },
  ]) {
    expect(refused({ public_key: key, egress })).toEqual([form, 'egress'])
  }
  const [message, param] = refused({
    public_key: key,
    egress: { default: 'refuse', allow: [{ host: '10.0.0.1', port: 80 }] },
  })
  expect([message, param]).toEqual([expect.stringContaining('10.0.0.1 is not a DNS name'), 'egress'])
})

test('goal: only an object is a request', () => {
  for (const body of [null, [], 'x', 7, [{ public_key: key }]]) {
    expect(refused(body)).toEqual(['The body must be a JSON object.', null])
  }
})

test('goal: each field at fault is named once, at most five of them, and a single one is the param', () => {
  expect(refused({})).toEqual(['public_key is missing', 'public_key'])
  expect(refused({ public_key: 7 })).toEqual(['public_key must be a string', 'public_key'])
  expect(refused({ public_key: key, inference_model: 7 })).toEqual([
    'inference_model must be a string',
    'inference_model',
  ])
  expect(refused({ public_key: key, a: 1, 'B\n': 2 })).toEqual(['a is not known, "B\\n" is not known', null])
  expect(refused({ a: 1, b: 2, c: 3, d: 4, e: 5 })).toEqual([
    'a is not known, b is not known, c is not known, d is not known, e is not known, and 1 more',
    null,
  ])
  expect(refused({ public_key: key, a: 1, b: 2, c: 3, d: 4, e: 5 })[0]).toEndWith('e is not known')
  expect(refused({ public_key: 'x'.repeat(20_000) })).toEqual([
    expect.stringMatching(/^public_key is longer than \d+ characters$/),
    'public_key',
  ])
})

test('goal: a name that is too long is cut and is no param', () => {
  const [long, longest] = ['x'.repeat(64), 'x'.repeat(65)]
  expect(refused({ public_key: key, [long]: 1 })).toEqual([`${long} is not known`, long])
  expect(refused({ public_key: key, [longest]: 1 })).toEqual([`"${long}" is not known`, null])
})

test('goal: an Idempotency-Key is 1 to 255 printable characters, sent once', () => {
  expect(parseIdempotencyKey(null)).toBeNull()
  for (const text of ['a', ' ~', 'a,b', 'x'.repeat(255)]) expect(parseIdempotencyKey(text)).toBe(text)
  for (const text of ['', 'x'.repeat(256), 'a\tb', 'a\x7f', 'é', 'a, b']) {
    const { code, param } = faultOf(() => parseIdempotencyKey(text))
    expect([text, code, param]).toEqual([text, 'invalid_request', 'Idempotency-Key'])
  }
})
