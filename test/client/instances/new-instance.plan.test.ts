// Goal: no instance is created, and billed, that the expectation of its owner cannot accept.

import { describe, expect, test } from 'bun:test'
import { refuseUnacceptable, requestedEgress } from '../../../src/client/instances/new-instance.plan.ts'
import type { EgressPolicy } from '../../../src/contract/http/egress-policy.ts'
import { ed25519Line } from '../../rigs/instances/instance-attestation.ts'

const github: EgressPolicy = { default: 'refuse', allow: [{ host: 'github.com', port: 443 }] }
const nothing: EgressPolicy = { default: 'refuse', allow: [] }
const open: EgressPolicy = { default: 'allow', allow: [] }

describe('the reach of the request', () => {
  // Goal: the request has the reach that is expected.
  test.each([
    [null, 'any', null],
    [github, 'any', github],
    [null, github, github],
    [null, nothing, nothing],
    // Without a policy the VM restricts nothing.
    [null, open, null],
    [github, { ...github, allow: [...github.allow, ...github.allow] }, github],
  ] as const)('--reach %j and expected %j ask for %j', (reach, egressPolicy, wanted) => {
    expect(requestedEgress(reach, { egressPolicy: egressPolicy as EgressPolicy | 'any' }, {})).toEqual(wanted)
    if (egressPolicy === 'any') expect(requestedEgress(reach, {}, {})).toEqual(wanted)
  })

  // Goal: two that differ are an error that names both.
  test.each([
    [nothing, 'nothing'],
    [open, 'any destination'],
    [{ default: 'refuse', allow: [{ host: 'github.com', port: 22 }] } as EgressPolicy, 'only github.com:22'],
  ])('--reach besides expected %j is refused', (egressPolicy, words) => {
    expect(() => requestedEgress(github, { egressPolicy }, {})).toThrow(
      expect.objectContaining({
        ...{ code: 'invalid_request', param: 'reach' },
        message: `--reach names only github.com, and policy.egress ${words}`,
        remedy: 'leave out --reach, which takes policy.egress, or name the same destinations in both',
      }),
    )
    expect(() => requestedEgress(github, { egressPolicy }, { egressPolicy: 'reach.json' })).toThrow(
      `and --egress-policy ${words}`,
    )
  })
})

const secret = { name: 'TOKEN', host: 'api.github.com', port: 443, header: 'Authorization' }
const own = { name: 'work', publicKey: `${ed25519Line(2)} me` }

test('goal: expected secrets are refused for a new instance, which has none', () => {
  expect(() => refuseUnacceptable({}, {}, own)).not.toThrow()
  expect(() => refuseUnacceptable({ secrets: 'any' }, {}, own)).not.toThrow()
  expect(() => refuseUnacceptable({ secrets: [] }, {}, own)).not.toThrow()
  const secrets = [secret, { ...secret, name: 'OTHER' }]
  expect(() => refuseUnacceptable({ secrets }, {}, own)).toThrow(
    expect.objectContaining({
      ...{ code: 'invalid_request', param: 'policy' },
      message: 'policy.secrets has TOKEN, OTHER, and a new instance has no secrets',
      remedy: 'run `strongroom up work` without policy.secrets, then `strongroom secret put work`, then this again',
    }),
  )
  expect(() => refuseUnacceptable({ secrets }, { secrets: 'secrets.json' }, own)).toThrow(
    expect.objectContaining({ param: 'secrets', message: expect.stringContaining('--secrets has TOKEN, OTHER,') }),
  )
})

test('goal: expected keys must have the one that is created, whatever its comment; others may be added later', () => {
  for (const loginKeys of [[ed25519Line(2)], [ed25519Line(3), `${ed25519Line(2)} another comment`]]) {
    expect(() => refuseUnacceptable({ loginKeys }, {}, own)).not.toThrow()
  }
  const loginKeys = [ed25519Line(3), ed25519Line(4)]
  expect(() => refuseUnacceptable({ loginKeys }, {}, own)).toThrow(
    expect.objectContaining({
      ...{ code: 'invalid_request', param: 'policy' },
      message: expect.stringMatching(
        /^policy\.loginKeys lacks SHA256:[\w+/]{43}, the only key that logs in to the new instance$/,
      ),
      remedy: 'add this key to policy.loginKeys, or name another key of yours by --public-key',
    }),
  )
  expect(() => refuseUnacceptable({ loginKeys }, { loginKeys: 'keys' }, own)).toThrow(
    expect.objectContaining({ param: 'login-keys', message: expect.stringContaining('--login-keys lacks SHA256:') }),
  )
})
