// Goal: a chain is served only for our key, our name alone, now, and in order; a server that answers anything else is
// refused with the reason.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemRandom } from '../../../src/base/ids.ts'
import { verifyChain } from '../../../src/http/acme/chain.verify.ts'
import { type Authority, openAuthority } from '../../../src/http/authority.ts'
import { spkiOf, spkiSha256Of } from '../../../src/linux/keys/spki.ts'

const name = 'instances.agents.example'
const nowMs = Date.now()
const dayMs = 86_400_000
let dir: string
let ca: Authority
let other: Authority
let key: string
let good: string

const authority = (stateDir: string, atMs = nowMs) =>
  openAuthority({
    kind: 'clients',
    stateDir: join(dir, stateDir),
    names: ['agents.example'],
    nowMs: () => atMs,
    random: systemRandom,
  })

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-chain-'))
  ca = await authority('ca')
  other = await authority('other')
  const pair = await ca.issue([name], 30)
  key = pair.key
  good = pair.cert
})
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const verdict = (text: string, atMs = nowMs) => {
  const found = verifyChain(text, { name, spkiSha256: spkiSha256Of(spkiOf(key)), nowMs: atMs })
  return found.ok ? 'good' : found.reason
}

test('goal: a leaf, with or without its issuer, whatever text is around it', () => {
  expect([verdict(good), verdict(good + ca.caPem), verdict(`hello\n${good}\nworld\n${ca.caPem}`)]).toEqual([
    'good',
    'good',
    'good',
  ])
  const found = verifyChain(`hello\n${good}`, { name, spkiSha256: spkiSha256Of(spkiOf(key)), nowMs })
  expect(found.ok && found.pem.includes('hello')).toBe(false)
})

test('goal: all else is refused', async () => {
  const spki = spkiOf(key)
  const REFUSED: [what: string, text: string, why: string, atMs?: number][] = [
    ['nothing', '', 'no PEM certificate'],
    ['a problem document', '{"type":"urn:ietf:params:acme:error:malformed"}', 'no PEM certificate'],
    ['garbage in PEM', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n', 'cannot be read'],
    ['another key', (await ca.issue([name], 30)).cert, 'for another key'],
    [
      'another name',
      await ca.certify(spki, ['inference.agents.example'], 30),
      'not for instances.agents.example alone',
    ],
    ['one more name', await ca.certify(spki, [name, 'x.agents.example'], 30), 'not for instances.agents.example alone'],
    ['a wildcard', await ca.certify(spki, ['*.agents.example'], 30), 'not for instances.agents.example alone'],
    ['an address', await ca.certify(spki, ['192.0.2.1'], 30), 'not for instances.agents.example alone'],
    ['the issuer first', ca.caPem + good, 'for another key'],
    ['another issuer', good + other.caPem, 'certificate 2 of the chain has not issued'],
    ['the leaf twice', good + good, 'certificate 2 of the chain has not issued'],
    ['the issuer and a stranger', good + ca.caPem + other.caPem, 'certificate 3 of the chain has not issued'],
    ['more than a chain has', good + ca.caPem.repeat(6), 'at most 6'],
    ['more than a message holds', good + ' '.repeat(9_000), 'at most 8192'],
    ['one that has ended', good, 'it has ended at', nowMs + 31 * dayMs],
    ['one that begins later', good, 'it is not valid before', nowMs - dayMs],
  ]
  for (const [what, text, why, atMs] of REFUSED) {
    expect([what, verdict(text, atMs)]).toEqual([what, expect.stringContaining(why)])
  }
})
