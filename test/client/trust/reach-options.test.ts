// Goal: a destination on a command line is a DNS name with a port or without, and a file is a policy or a clear error.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { egressPolicyIn, policyOf, reachOption, secretsIn } from '../../../src/client/trust/reach-options.ts'
import { faultOf } from '../../rigs/fault-of.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-reach-'))
afterAll(() => rmSync(dir, { recursive: true }))

test('goal: names in any case, wildcards, and ports', () => {
  const rules = ['GitHub.com', '*.example.org', 'packages.example:8443', 'dotted.example.'].reduce(
    (before, text) => reachOption(text, before),
    [] as ReturnType<typeof reachOption>,
  )
  expect(rules).toEqual([
    { host: 'github.com', port: 443 },
    { host: '*.example.org', port: 443 },
    { host: 'packages.example', port: 8443 },
    { host: 'dotted.example', port: 443 },
  ])
})

// Goal: addresses, ports and patterns that are no names are refused.
test.each([
  ...['192.0.2.1', '[2001:db8::1]', '2001:db8::1', 'localhost', 'a.example:0', 'a.example:65536', 'a.example:x', ''],
  ...[
    'https://github.com',
    'github.com/',
    '*',
    '*.',
    '*.com.',
    'a.*.example',
    'a..example',
    '-a.example',
    'a b.example',
  ],
])('goal: %j is refused', text => {
  expect(() => reachOption(text)).toThrow('It must be HOST or HOST:PORT')
})

test('goal: a file of `egress show --json` is a policy; any other is an error that names the remedy', () => {
  const path = join(dir, 'reach.json')
  const policy = policyOf('refuse', [{ host: 'github.com', port: 443 }])
  writeFileSync(path, JSON.stringify(policy, null, 2))
  expect(egressPolicyIn(path)).toEqual(policy)
  expect(egressPolicyIn(undefined)).toBe('any')
  writeFileSync(path, '{"default":"refuse","allow":[{"host":"192.0.2.1","port":443}]}')
  const { code, message, param, remedy } = faultOf(() => egressPolicyIn(path)) as ReturnType<typeof faultOf> & {
    remedy?: string
  }
  expect([code, param]).toEqual(['invalid_request', 'egress-policy'])
  expect(message).toContain('192.0.2.1 is not a DNS name')
  expect(remedy).toContain('strongroom egress show')
})

test('goal: a file of `secret ls --json` names the secrets; any other is an error that names the remedy', () => {
  const path = join(dir, 'secrets.json')
  const secret = { name: 'TOKEN', host: 'api.github.com', port: 443, header: 'Authorization', path: '/acme/' }
  writeFileSync(path, JSON.stringify({ hostname: 'k3v9x2ma.acme.agents.example', secrets: [secret] }, null, 2))
  expect(secretsIn(path)).toEqual([secret])
  expect(secretsIn(undefined)).toBe('any')
  writeFileSync(path, '{"secrets":[]}')
  expect(secretsIn(path)).toEqual([])
  for (const bad of [
    '[]',
    '{"secrets":[],"secrets":[]}',
    JSON.stringify({ secrets: [{ ...secret, host: 'API.github.com' }] }),
    JSON.stringify({ secrets: [{ ...secret, value: 'in a file' }] }),
    JSON.stringify({ secrets: Array.from({ length: 33 }, (_, at) => ({ ...secret, name: `T${at}` })) }),
  ]) {
    writeFileSync(path, bad)
    const { code, message, param, remedy } = faultOf(() => secretsIn(path)) as ReturnType<typeof faultOf> & {
      remedy?: string
    }
    expect([code, param]).toEqual(['invalid_request', 'secrets'])
    expect(message).toStartWith(`--secrets ${path}: secrets`)
    expect(remedy).toContain('strongroom secret ls')
  }
})

test('goal: too many ports are refused before the first request', () => {
  const rules = Array.from({ length: 33 }, (_, at) => ({ host: 'a.example', port: at + 1 }))
  expect(faultOf(() => policyOf('refuse', rules)).message).toContain('more than 32 different ports')
})
