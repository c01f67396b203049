// Mistakes of clients at the endpoints of service A, each with its code, its message and its param.

import { describe, expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { publicKey, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { FailureEnvelope } from '../../../src/contract/http/problem.ts'
import { failed, play, type Scenario } from '../../rigs/scenario.ts'

const valid = { public_key: publicKey }
const unauthenticated = failed('unauthenticated', 'The Bearer token is missing or invalid.')
const create = { method: 'POST', path: '/v1/instances' } as const

const REFUSALS: readonly Scenario[] = [
  {
    goal: 'leaves out public_key',
    ...create,
    body: {},
    status: 400,
    answer: failed('invalid_request', 'public_key is missing', 'public_key'),
  },
  {
    goal: 'sends a number as public_key',
    ...create,
    body: { public_key: 7 },
    status: 400,
    answer: failed('invalid_request', 'public_key must be a string', 'public_key'),
  },
  {
    goal: 'sends null as public_key',
    ...create,
    body: { public_key: null },
    status: 400,
    answer: failed('invalid_request', 'public_key must be a string', 'public_key'),
  },
  {
    goal: 'sends something that is no key',
    ...create,
    body: { public_key: 'hunter2 hunter3' },
    status: 400,
    answer: failed(
      'invalid_request',
      'public_key does not begin with a known key type (ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256, ecdsa-sha2-nistp384, ecdsa-sha2-nistp521, sk-ssh-ed25519@openssh.com, sk-ecdsa-sha2-nistp256@openssh.com); options are not allowed',
      'public_key',
    ),
    absent: ['hunter'],
  },
  {
    goal: 'sends a private key',
    ...create,
    body: { public_key: '-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----\n' },
    status: 400,
    answer: failed(
      'invalid_request',
      'public_key is a private key; treat it as disclosed, make a new pair, and send the content of the .pub file',
      'public_key',
    ),
    absent: ['c2VjcmV0'],
  },
  {
    goal: 'sends a public_key beyond its length',
    ...create,
    body: { public_key: `${publicKey} ${'x'.repeat(8192)}` },
    status: 400,
    answer: failed('invalid_request', 'public_key is longer than 8192 characters', 'public_key'),
  },
  {
    goal: 'asks for another agent',
    ...create,
    body: { ...valid, agent: 'other' },
    status: 400,
    answer: failed('invalid_request', 'agent must be "opencode"', 'agent'),
  },
  {
    goal: 'asks for the agent null',
    ...create,
    body: { ...valid, agent: null },
    status: 400,
    answer: failed('invalid_request', 'agent must be a string', 'agent'),
  },
  {
    goal: 'asks for another inference_mode',
    ...create,
    body: { ...valid, inference_mode: 'direct' },
    status: 400,
    answer: failed('invalid_request', 'inference_mode must be "default_gateway"', 'inference_mode'),
  },
  {
    goal: 'asks for an unknown model',
    ...create,
    body: { ...valid, inference_model: 'huge' },
    status: 400,
    answer: failed('invalid_request', 'inference_model must be one of: tiny, large', 'inference_model'),
    absent: ['huge'],
  },
  {
    goal: 'asks for an empty model',
    ...create,
    body: { ...valid, inference_model: '' },
    status: 400,
    answer: failed('invalid_request', 'inference_model must be one of: tiny, large', 'inference_model'),
  },
  {
    goal: 'sends a list as model',
    ...create,
    body: { ...valid, inference_model: ['tiny'] },
    status: 400,
    answer: failed('invalid_request', 'inference_model must be a string', 'inference_model'),
  },
  {
    goal: 'sends an unknown field',
    ...create,
    body: { ...valid, name: 'mine' },
    status: 400,
    answer: failed('invalid_request', 'name is not known', 'name'),
  },
  {
    goal: 'sends a field named __proto__',
    ...create,
    bytes: `{"public_key":${JSON.stringify(publicKey)},"__proto__":{"agent":"x"}}`,
    status: 400,
    answer: failed('invalid_request', '__proto__ is not known', '__proto__'),
  },
  {
    goal: 'sends a field named constructor',
    ...create,
    body: { ...valid, constructor: 1 },
    status: 400,
    answer: failed('invalid_request', 'constructor is not known', 'constructor'),
  },
  {
    goal: 'sends an unknown field with a long strange name, which is cut',
    ...create,
    body: { ...valid, [`\n"${'é'.repeat(300)}`]: 1 },
    status: 400,
    answer: failed('invalid_request', `${JSON.stringify(`\n"${'é'.repeat(62)}`)} is not known`),
  },
  {
    goal: 'gets two fields wrong, so that neither is the param',
    ...create,
    body: { public_key: true, agent: 'other' },
    status: 400,
    answer: failed('invalid_request', 'public_key must be a string, agent must be "opencode"'),
  },
  {
    goal: 'gets many fields wrong, and not all are listed',
    ...create,
    body: { a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, ...valid },
    status: 400,
    answer: failed(
      'invalid_request',
      'a is not known, b is not known, c is not known, d is not known, e is not known, and 1 more',
    ),
  },
  ...[[[]], [null], ['text'], [3], [true]].map(
    ([body]): Scenario => ({
      goal: `sends ${JSON.stringify(body)} in place of an object`,
      ...create,
      body,
      status: 400,
      answer: failed('invalid_request', 'The body must be a JSON object.'),
    }),
  ),
  {
    goal: 'sends an empty Idempotency-Key',
    ...create,
    body: valid,
    headers: { 'Idempotency-Key': '' },
    status: 400,
    answer: failed('invalid_request', 'The Idempotency-Key header is empty.', 'Idempotency-Key'),
  },
  {
    goal: 'sends an Idempotency-Key of 256 characters',
    ...create,
    body: valid,
    headers: { 'Idempotency-Key': 'k'.repeat(256) },
    status: 400,
    answer: failed('invalid_request', 'The Idempotency-Key header is longer than 255 characters.', 'Idempotency-Key'),
  },
  {
    goal: 'sends an Idempotency-Key that is not ASCII',
    ...create,
    body: valid,
    headers: { 'Idempotency-Key': 'clé' },
    status: 400,
    answer: failed('invalid_request', 'The Idempotency-Key header must be printable ASCII.', 'Idempotency-Key'),
  },
  {
    goal: 'sends a tab in an Idempotency-Key',
    ...create,
    body: valid,
    headers: { 'Idempotency-Key': 'a\tb' },
    status: 400,
    answer: failed('invalid_request', 'The Idempotency-Key header must be printable ASCII.', 'Idempotency-Key'),
  },
  {
    goal: 'retrieves a name that never was',
    method: 'GET',
    path: '/v1/instances/abcd1234',
    status: 404,
    answer: failed('not_found', 'There is no instance of this name.'),
  },
  ...[
    'ABCD1234',
    'abcd123',
    'abcd12345',
    "abc'--12",
    '%zz',
    '%00',
    '..%2f..%2f',
    '%F0%9F%92%A9',
    ':name',
    'abcd1234%0a',
  ].map(
    (name): Scenario => ({
      goal: `retrieves ${JSON.stringify(name)}, which can be no name`,
      method: 'GET',
      path: `/v1/instances/${name}`,
      status: 404,
      answer: failed('not_found', 'There is no instance of this name.'),
    }),
  ),
  {
    goal: 'deletes a name that never was',
    method: 'DELETE',
    path: '/v1/instances/abcd1234',
    status: 404,
    answer: failed('not_found', 'There is no instance of this name.'),
  },
  ...[
    create,
    { method: 'GET', path: '/v1/instances' },
    { method: 'GET', path: '/v1/instances/abcd1234' },
    { method: 'DELETE', path: '/v1/instances/abcd1234' },
    { method: 'GET', path: '/v1/usage' },
  ].map(
    (operation): Scenario => ({
      goal: `sends no key to ${operation.method} ${operation.path}`,
      ...operation,
      key: null,
      status: 401,
      answer: unauthenticated,
    }),
  ),
]

describe('refusals', () => {
  for (const scenario of REFUSALS) {
    // Goal: each mistake gets its code, its message, its param, and leaves nothing behind.
    test(`a client ${scenario.goal}`, async () => {
      await using appliance = await startAppliance()
      const answer = await play(appliance, scenario)
      expect(Value.Check(FailureEnvelope, answer.json)).toBe(true)
      expect(appliance.calls).toEqual([])
      const list = await appliance.send('GET', '/v1/instances')
      expect(list.data).toEqual({ instances: [], next_cursor: null })
    })
  }
})
