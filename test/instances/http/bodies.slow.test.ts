// Bodies: what is refused, with which words, and what the limits let through.

import { describe, expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { publicKey, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { FailureEnvelope } from '../../../src/contract/http/problem.ts'
import { failed, play, type Scenario } from '../../rigs/scenario.ts'

const create = { method: 'POST', path: '/v1/instances' } as const
const valid = { public_key: publicKey }
const validText = JSON.stringify(valid)
const bad = (message: string, param?: string) => ({ status: 400, answer: failed('invalid_request', message, param) })
const asBytes = (...parts: (string | number[])[]) =>
  Buffer.concat(parts.map(part => (typeof part === 'string' ? Buffer.from(part) : Buffer.from(part))))
const padded = (lengthBytes: number) => validText + ' '.repeat(lengthBytes - validText.length)
const chunked = (text: string, chunkBytes: number) =>
  new ReadableStream({
    start: controller => {
      for (let at = 0; at < text.length; at += chunkBytes)
        controller.enqueue(Buffer.from(text.slice(at, at + chunkBytes)))
      controller.close()
    },
  })
const tooLarge = {
  status: 413,
  answer: failed('invalid_request', 'The body is larger than 65536 bytes.'),
  expectHeaders: { connection: 'close' },
}
const noType = 'The Content-Type header must be application/json.'
const unclean = 'The body has a string with a NUL or a lone surrogate in it.'

const BODIES: readonly Scenario[] = [
  { goal: 'sends no body', ...create, ...bad('The body is empty; a JSON object is expected.') },
  { goal: 'sends an empty body', ...create, bytes: '', ...bad('The body is empty; a JSON object is expected.') },
  { goal: 'sends half a document', ...create, bytes: validText.slice(0, -1), ...bad('The body is not valid JSON.') },
  {
    goal: 'sends something after the document',
    ...create,
    bytes: `${validText}{}`,
    ...bad('The body is not valid JSON.'),
  },
  { goal: 'sends a NUL after the document', ...create, bytes: `${validText}\0`, ...bad('The body is not valid JSON.') },
  { goal: 'sends a comment', ...create, bytes: `/* hi */${validText}`, ...bad('The body is not valid JSON.') },
  { goal: 'sends single quotes', ...create, bytes: "{'public_key':'x'}", ...bad('The body is not valid JSON.') },
  { goal: 'sends an open string', ...create, bytes: '{"public_key":"\\', ...bad('The body is not valid JSON.') },
  { goal: 'sends a number out of JSON', ...create, bytes: '{"public_key":NaN}', ...bad('The body is not valid JSON.') },
  {
    goal: 'sends bytes that are not UTF-8',
    ...create,
    bytes: asBytes('{"public_key":"', [0xff, 0xfe], '"}'),
    ...bad('The body is not valid UTF-8.'),
  },
  {
    goal: 'sends an overlong UTF-8 form',
    ...create,
    bytes: asBytes('{"public_key":"', [0xc0, 0xaf], '"}'),
    ...bad('The body is not valid UTF-8.'),
  },
  {
    goal: 'sends UTF-16',
    ...create,
    bytes: Buffer.from(`\ufeff${validText}`, 'utf16le'),
    ...bad('The body is not valid UTF-8.'),
  },
  {
    goal: 'sends an escaped NUL',
    ...create,
    bytes: '{"public_key":"ssh-ed25519 \\u0000"}',
    ...bad(unclean, 'public_key'),
  },
  { goal: 'sends a NUL in a name', ...create, bytes: '{"public_key\\u0000":"x"}', ...bad(unclean) },
  { goal: 'sends a lone surrogate', ...create, bytes: '{"public_key":"\\ud800"}', ...bad(unclean, 'public_key') },
  { goal: 'sends a NUL far inside', ...create, bytes: '{"agent":[{"a":["\\u0000"]}]}', ...bad(unclean, 'agent') },
  {
    goal: 'sends a field twice',
    ...create,
    bytes: `{"agent":"opencode","public_key":"x","agent":"other"}`,
    ...bad('The body has a field twice.', 'agent'),
  },
  {
    goal: 'sends a field twice, once escaped',
    ...create,
    bytes: `{"agent":"opencode","\\u0061gent":"other"}`,
    ...bad('The body has a field twice.', 'agent'),
  },
  {
    goal: 'sends a field twice further inside',
    ...create,
    bytes: `{"agent":{"a":1,"a":1}}`,
    ...bad('The body has a field twice.'),
  },
  {
    goal: 'nests objects too deep',
    ...create,
    bytes: `${'{"a":'.repeat(17)}1${'}'.repeat(17)}`,
    ...bad('The body is nested deeper than 16 levels.'),
  },
  {
    goal: 'nests arrays as deep as the body allows',
    ...create,
    bytes: '['.repeat(65_536),
    ...bad('The body is nested deeper than 16 levels.'),
  },
  {
    goal: 'nests up to the limit',
    ...create,
    bytes: `${'['.repeat(16)}${']'.repeat(16)}`,
    ...bad('The body must be a JSON object.'),
  },
  {
    goal: 'hides brackets in a string',
    ...create,
    bytes: `{"public_key":"${'['.repeat(99)}\\"{"}`,
    ...bad(
      'public_key does not begin with a known key type (ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256, ecdsa-sha2-nistp384, ecdsa-sha2-nistp521, sk-ssh-ed25519@openssh.com, sk-ecdsa-sha2-nistp256@openssh.com); options are not allowed',
      'public_key',
    ),
  },
  { goal: 'sends a body of one byte too many', ...create, bytes: padded(65_537), ...tooLarge },
  { goal: 'sends a body of a megabyte', ...create, bytes: padded(1_048_576), ...tooLarge },
  { goal: 'sends one byte too many in chunks', ...create, bytes: chunked(padded(65_537), 4_096), ...tooLarge },
  { goal: 'sends too much in one chunk', ...create, bytes: chunked(padded(200_000), 200_000), ...tooLarge },
  ...[
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'application/json; charset=latin1',
    'application/jsonp',
    'application/json, text/plain',
    'application/xml',
  ].map(
    (type): Scenario => ({
      goal: `says ${type}`,
      ...create,
      bytes: validText,
      headers: { 'Content-Type': type },
      ...bad(noType),
    }),
  ),
  {
    goal: 'compresses the body',
    ...create,
    bytes: Bun.gzipSync(validText),
    headers: { 'Content-Encoding': 'gzip' },
    ...bad('The Content-Encoding header must be left out; compressed bodies are not read.'),
  },
]

describe('bodies that are refused', () => {
  for (const scenario of BODIES) {
    // Goal: a body outside limits or grammar is refused in the envelope, creates nothing, and harms no later request.
    test(`a client ${scenario.goal}`, async () => {
      await using appliance = await startAppliance()
      const answer = await play(appliance, scenario)
      expect(Value.Check(FailureEnvelope, answer.json)).toBe(true)
      expect(appliance.calls).toEqual([])
      expect((await appliance.send('POST', '/v1/instances', { body: valid })).status).toBe(202)
    })
  }
})

// Goal: bodies within the limits pass: last byte, chunks, single bytes, BOM, escapes, spellings of the media type.
test('bodies that are accepted', async () => {
  await using appliance = await startAppliance()
  const bodies: Scenario['bytes'][] = [
    padded(65_536),
    chunked(padded(65_536), 1_000),
    chunked(validText, 1),
    `\ufeff${validText}`,
    validText.replace('public', '\\u0070ublic').replaceAll('/', '\\/'),
  ]
  for (const bytes of bodies) {
    const answer = await appliance.send('POST', '/v1/instances', { ...(bytes === undefined ? {} : { bytes }) })
    expect([answer.status, answer.data?.public_key]).toEqual([202, publicKey])
  }
  // The key is returned as it was sent, white space included.
  const sent = `\t${publicKey.replace(' ', '  ')} \r\n`
  const created = await appliance.send('POST', '/v1/instances', { body: { public_key: sent } })
  expect([created.status, created.data?.public_key]).toEqual([202, sent])
  expect((await appliance.send('GET', `/v1/instances/${created.data?.name}`)).data?.public_key).toBe(sent)
  for (const type of [
    'application/json',
    'APPLICATION/JSON',
    'application/json;charset=UTF-8',
    'application/json; charset="utf-8"',
    'application/json ;',
  ]) {
    const answer = await appliance.send('POST', '/v1/instances', {
      bytes: validText,
      headers: { 'Content-Type': type },
    })
    expect([type, answer.status]).toEqual([type, 202])
  }
})
