// Labels of requests in the usage ledger.

import { describe, expect, test } from 'bun:test'
import { startGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { usageLabelCharsMax } from '../../../src/contract/vm/enclave.ts'
import { endUserOf, usageLabels } from '../../../src/inference/metering/labels.ts'
import { usageRowOf } from '../../../src/inference/metering/row.ts'
import { usageRecordOf } from '../../../src/inference/metering/vm-usage-ledger.ts'

const { endUser, tags } = usageLabelCharsMax
const none = { endUser: null, tags: null }

// Goal: what a client sends is in the ledger as it is, or not at all; no label breaks a line, a cell or a bound.
test.each([
  ['a user', { user: 'ann' }, { endUser: 'ann', tags: null }],
  ['the longest user', { user: 'a'.repeat(endUser) }, { endUser: 'a'.repeat(endUser), tags: null }],
  ['too long a user', { user: 'a'.repeat(endUser + 1) }, none],
  ['control characters', { user: 'a\nb' }, none],
  ['half a character', { user: 'a\ud800' }, none],
  ['an empty user', { user: '' }, none],
  ['a user that is a number', { user: 7 }, none],
  ['the name that is for budgets alone', { safety_identifier: 'ann' }, none],
  ['a bad user beside it', { user: '', safety_identifier: 'ann' }, none],
  ['tags by name', { metadata: { b: '2', a: '1' } }, { endUser: null, tags: '{"a":"1","b":"2"}' }],
  ['no tag', { metadata: {} }, none],
  ['tags that are no texts', { metadata: { a: { b: 'c' } } }, none],
  ['too long tags', { metadata: { a: 'x'.repeat(tags) } }, none],
  ['tags that are a list', { metadata: ['a'] }, none],
  [
    'a name of every object',
    { metadata: JSON.parse('{"__proto__":"x"}') },
    { endUser: null, tags: '{"__proto__":"x"}' },
  ],
])('%s', (_, body, labels) => {
  expect(usageLabels('chat', body)).toEqual(labels)
})

test('goal: the Messages API has its user in metadata', () => {
  expect(usageLabels('messages', { metadata: { user_id: 'ann' } })).toEqual({ endUser: 'ann', tags: null })
})

const claude = { device_id: 'd'.repeat(64), account_uuid: 'a0', session_id: 's1' }
const uuid = '0b1c2d3e-4f50-4617-8293-a4b5c6d7e8f9'

// Goal: a budget counts the first name that it can use, and one client of Claude Code as one user in all its sessions.
test.each([
  ['chat', { user: 'ann', safety_identifier: 'bob' }, 'ann', 'user'],
  ['responses', { safety_identifier: 'bob' }, 'bob', 'safety_identifier'],
  ['chat', { user: 'a\nb', safety_identifier: 'bob' }, 'bob', 'safety_identifier'],
  ['chat', { user: '', safety_identifier: 'bob' }, 'bob', 'safety_identifier'],
  ['messages', { user: 'ann', metadata: { user_id: 'eve' } }, 'eve', 'metadata'],
  [
    'messages',
    { metadata: { user_id: JSON.stringify(claude) } },
    `{"account_uuid":"a0","device_id":"${'d'.repeat(64)}"}`,
    'metadata',
  ],
  [
    'messages',
    { metadata: { user_id: JSON.stringify({ session_id: 's2', account_uuid: 'a0', device_id: 'd'.repeat(64) }) } },
    `{"account_uuid":"a0","device_id":"${'d'.repeat(64)}"}`,
    'metadata',
  ],
  ['messages', { metadata: { user_id: `user_d0_account_a0_session_${uuid}` } }, 'user_d0_account_a0', 'metadata'],
  ['messages', { metadata: { user_id: 'my_session_x' } }, 'my_session_x', 'metadata'],
  ['messages', { metadata: { user_id: '{"user":"eve"}' } }, '{"user":"eve"}', 'metadata'],
  ['messages', { metadata: { user_id: '{not JSON' } }, '{not JSON', 'metadata'],
  ['chat', { user: `ann_session_${uuid}` }, `ann_session_${uuid}`, 'user'],
] as const)('the end user in %s %j', (operation, body, name, field) => {
  expect(endUserOf(operation, body)).toEqual({ name, field })
})

// Goal: requests without a usable name share one budget, and a session alone is no name.
test.each([
  ['chat', {}],
  ['chat', { user: 'a'.repeat(257), safety_identifier: 'b\u0000' }],
  ['chat', { metadata: { user_id: 'eve' } }],
  ['messages', { user: 'ann' }],
  ['messages', { metadata: { user_id: '{"session_id":"s1"}' } }],
  ['messages', { metadata: { user_id: `_session_${uuid}` } }],
] as const)('no end user in %s %j', (operation, body) => {
  expect(endUserOf(operation, body)).toBeNull()
})

test('goal: the ledger has the name as the client sent it', () => {
  const name = JSON.stringify(claude)
  expect(usageLabels('messages', { metadata: { user_id: name } })).toEqual({ endUser: name, tags: null })
})

test('goal: they cross from the VM to the host, and a row without them is as before there were any', () => {
  const record = {
    ...{
      id: 'r',
      atMs: 1,
      caller: { organizationId: 'o', keyPrefix: 'k', instanceId: null },
      model: 'm',
      upstream: 'u',
    },
    ...{ tokens: { prompt: 1, completion: 2 }, tokensSource: 'reported' as const, outcome: 'completed' as const },
  }
  const labelled = { ...record, labels: { endUser: 'ann', tags: null } }
  expect(usageRecordOf(usageRowOf(labelled))).toEqual(labelled)
  expect(usageRecordOf(usageRowOf(record))).toEqual(record)
  expect(Object.keys(usageRowOf(record))).not.toContain('endUser')
})

describe('a gateway', () => {
  const messages = [{ role: 'user', content: 'hi' }]
  const metadata = { team: 'blue' }
  type Sent = { path: string; body: Record<string, unknown> }
  const ROWS: [string, Sent, { endUser: string | null; tags: string | null }, string | null][] = [
    [
      'chat',
      { path: '/v1/chat/completions', body: { messages, user: 'ann', metadata } },
      { endUser: 'ann', tags: '{"team":"blue"}' },
      null,
    ],
    [
      'responses',
      { path: '/v1/responses', body: { input: 'hi', user: 'bob', metadata } },
      { endUser: 'bob', tags: '{"team":"blue"}' },
      null,
    ],
    [
      'messages',
      { path: '/v1/messages', body: { messages, max_tokens: 8, metadata: { user_id: 'eve' } } },
      { endUser: 'eve', tags: null },
      null,
    ],
    ['tags that are none', { path: '/v1/chat/completions', body: { messages, metadata: { a: 1 } } }, none, 'metadata'],
  ]

  // Goal: each API's labels reach the ledger, and the header names what has no effect.
  test.each(ROWS)('%s', async (_, { path, body }, labels, ignored) => {
    await using upstream = await started()
    await using gateway = await startGateway([target(upstream.url)], { limits: { usageLabels: true } })
    const response = await gateway.post(path, { model: 'tiny', ...body })
    expect(response.status).toBe(200)
    expect(response.headers.get('x-strongroom-ignored')).toBe(ignored)
    await response.text()
    const [record] = await gateway.records()
    expect(record?.labels ?? none).toEqual(labels)
    expect(JSON.stringify(upstream.seen)).not.toContain('blue')
  })

  test('goal: without the setting no text of a request is in a row', async () => {
    await using upstream = await started()
    await using gateway = await startGateway([target(upstream.url)])
    const response = await gateway.chat({ user: 'ann', metadata })
    expect(response.headers.get('x-strongroom-ignored')).toBe('metadata')
    expect(JSON.stringify(await gateway.records())).not.toMatch(/ann|blue/)
  })
})

async function started() {
  const upstream = await startUpstream()
  return { url: upstream.url, seen: upstream.seen, [Symbol.asyncDispose]: () => Promise.resolve(upstream.stop()) }
}
