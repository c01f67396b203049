// Goal: the verdict on an instance has each line that its owner looks at, and each field of the receipt is in the line
// that names it.

import { expect, test } from 'bun:test'
import type { Check } from '../../src/attest/verdict.ts'
import { utf8 } from '../../src/base/bytes.ts'
import { instanceAttestationBytesMax, readInstanceHostname, verifyInstance } from '../../src/verifier/instance.ts'
import {
  instanceQuestion,
  makeInstanceAttestation,
  type WantedAttestation,
} from '../rigs/instances/instance-attestation.ts'

const isBad = ({ outcome, required }: Check) => outcome === 'fail' || (outcome !== 'pass' && required)
async function judge(wanted: WantedAttestation = {}, size?: number) {
  const text = JSON.stringify(await makeInstanceAttestation(wanted))
  const bytes = utf8(size === undefined ? text : text.padEnd(size))
  const { ok, checks } = await verifyInstance(bytes, await instanceQuestion())
  return { ok, checks, names: checks.map(({ name }) => name), bad: checks.filter(isBad).map(({ name }) => name) }
}

test('goal: its lines, in order', async () => {
  const { ok, bad, names } = await judge()
  expect([ok, bad]).toEqual([true, []])
  expect(names).toEqual([
    'attestation-format',
    'pin-measurement',
    'pin-operator-key',
    'pin-gateway',
    'pin-vmpl',
    'pin-crl',
    'pin-tcb',
    'attestation-nonce',
    'instance',
    'known-hosts',
    'public-key',
    'own-key',
    'login-keys',
    'launch-document',
    'launch-host-data',
    'launch-measurement',
    'launch-policy',
    'image',
    'claim-document',
    'gateway-key',
    'prompts',
    'tcb-floor-age',
    'receipt/evidence',
    'receipt/tcb-floor',
    'receipt/nonce',
    'receipt/measurement',
    'receipt/operator-key',
    'receipt/claim',
    'receipt/claim-document',
    'receipt/host-key',
    'receipt/public-key',
  ])
})

test('goal: each field of the statement that is not what the document says fails in its line', async () => {
  const other = new Uint8Array(32).fill(0xee)
  const cases: readonly (readonly [string, unknown, string])[] = [
    ['organization', 'other', 'receipt/claim'],
    ['name', 'zzzzzzzz', 'receipt/claim'],
    ['hostname', 'other.example', 'receipt/claim'],
    ['claimDigest', other, 'receipt/claim-document'],
    ['inferenceUrl', 'https://other.example/v1', 'receipt/claim-document'],
    ['inferenceModel', 'other', 'receipt/claim-document'],
    ['gateway', 'host', 'receipt/claim-document'],
    ['gatewayDigest', other, 'receipt/claim-document'],
    ['resolvers', ['192.0.2.1'], 'receipt/claim-document'],
    ['egressLimitBytes', 1, 'receipt/claim-document'],
    ['egressNames', 'listed', 'receipt/claim-document'],
    ['gatewayKeyDigest', other, 'receipt/claim-document'],
    ['sshHostKeyDigest', other, 'receipt/host-key'],
    ['publicKeyDigest', other, 'receipt/public-key'],
  ]
  for (const [field, value, line] of cases) {
    const { ok, bad } = await judge({ statement: { [field]: value } })
    expect([field, ok, bad]).toEqual([field, false, [line]])
  }
})

test('goal: a document of up to 1 MiB is read', async () => {
  expect(instanceAttestationBytesMax).toBe(1_048_576)
  expect((await judge({}, 1_048_576)).ok).toBe(true)
  const longer = await judge({}, 1_048_577)
  expect([longer.bad, longer.checks[0]?.reason]).toEqual([['attestation-format'], '1048577 bytes are too many'])
})

test('goal: a host name is a name of eight characters, an organization and a domain', () => {
  expect(readInstanceHostname('k3v9x2ma.acme.agents.example')).toEqual({
    ...{ name: 'k3v9x2ma', organization: 'acme', hostname: 'k3v9x2ma.acme.agents.example', domain: 'agents.example' },
  })
  const longest = `k3v9x2ma.acme.${Array.from({ length: 4 }, () => 'a'.repeat(59)).join('.')}`
  expect([longest.length, readInstanceHostname(longest)?.organization]).toEqual([253, 'acme'])
  const bad = ['', 'k3v9x2ma', 'k3v9x2ma.acme', 'k3v9x2m.acme.example', 'K3V9X2MA.acme.example', `${longest}a`]
  for (const text of [...bad, 'k3v9x2ma..example', 'k3v9x2ma.acme.', 'k3v9x2ma.-a.example', 'k3v9x2ma.acme.exa_mple']) {
    expect([text, readInstanceHostname(text)]).toEqual([text, null])
  }
})
