// Goal: a gateway on old firmware is refused by the library too, and only the pin of the TCB lets it pass.

import { afterAll, expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { allowlistText, clearRig, newNonce, openRig, tlsSpkiDigest } from '../../scripts/rigs/gateway/attestation.ts'
import { simulatedAsOf, simulatedPlatform } from '../../scripts/rigs/launch/simulated-platform.ts'
import { strictPolicy } from '../../src/attest/policy/policy.ts'
import { issueSimulatedCrl } from '../../src/attest/simulator/certificates.ts'
import { fromBase64Url, utf8 } from '../../src/base/bytes.ts'
import { readAllowlist } from '../../src/verifier/allowlist.ts'
import { freshAgeMsMax, type GatewayQuestion } from '../../src/verifier/gateway.ts'
import { allPins, type Pins } from '../../src/verifier/pins.ts'
import { verifyGateway } from '../../src/verifier/verify-gateway.ts'

afterAll(clearRig)

const measurement = new Uint8Array(48).fill(7)
const operatorKey = new Uint8Array(48).fill(8)
const { authority, vcek, report } = await simulatedPlatform('milan')
const hour = (by: number) => new Date(simulatedAsOf.getTime() + by * 3_600_000)
const crl = await issueSimulatedCrl(authority, { thisUpdate: hour(-1), nextUpdate: hour(1), revoked: [] })
const { ask, ark } = authority.root
const nonce = newNonce()

/** SNP firmware 24, of which AMD-SB-3019 asked no more; and memory aliases not looked for. */
const rig = await openRig({
  clock: createManualClock(simulatedAsOf.getTime()),
  origin: {
    kind: 'available',
    hostData: null,
    platform: 'simulated',
    image: { name: 'gateway', measurement },
    operatorKey,
    evidence: async (reportData, hostData) => ({
      report: await report({ reportData, hostData, measurement, report: { idKeyDigest: operatorKey } }),
      vek: vcek,
      chain: [ask, ark],
      crl,
    }),
  },
})
afterAll(() => rig[Symbol.dispose]())
const document = utf8((await rig.get(`?nonce=${nonce}`)).body)

async function verify(pins: Pins, changes: Partial<GatewayQuestion> = {}) {
  const found = await verifyGateway(document, {
    nonce: fromBase64Url(nonce) ?? 'any',
    asOf: simulatedAsOf.getTime(),
    ageMsMax: freshAgeMsMax,
    roots: [authority.root],
    crl: undefined,
    tlsSpkiDigest,
    pins,
    policy: { ...strictPolicy(), measurements: [measurement] },
    allowlist: readAllowlist(utf8(allowlistText)),
    configurationDigest: 'any',
    ...changes,
  })
  return { found, failed: found.checks.filter(check => check.outcome === 'fail') }
}

test('goal: old firmware fails each receipt by the name of the bulletin, and passes only where the floor is waived', async () => {
  const { found, failed } = await verify(allPins)
  expect([found.ok, failed.length, failed.every(check => check.name.endsWith('/tcb-floor'))]).toEqual([false, 5, true])
  expect(failed[0]?.reason).toContain(
    'snp 24 is less than 27, which AMD-SB-3023 (CVE-2025-48514, SEV-ES guests beside SNP) requires',
  )
  expect(failed[0]?.reason).toContain('AMD-SB-3015')
  const waived = await verify({ ...allPins, tcb: 'any' })
  expect([
    waived.found.ok,
    waived.found.checks.filter(check => check.outcome === 'not-checked' && check.name.startsWith('pin-')),
  ]).toEqual([
    true,
    [
      {
        name: 'pin-tcb',
        outcome: 'not-checked',
        reason: "accepted firmware below AMD's fixes, and memory aliases: the caller said 'any'",
        required: false,
      },
    ],
  ])
})

test('goal: a part of the floors is waived by name: the others still fail, and the verdict says which, why and by how much', async () => {
  const some = await verify({ ...allPins, tcb: { 'alias-check': 'no BIOS yet' } })
  expect([some.found.ok, some.failed[0]?.reason.includes('AMD-SB-3015')]).toEqual([false, false])
  const why = 'the host is updated in December'
  const { found, failed } = await verify({
    ...allPins,
    tcb: { snp: why, 'launch-snp': why, 'alias-check': 'no BIOS yet' },
  })
  expect([found.ok, failed]).toEqual([true, []])
  expect(found.checks.find(check => check.name === 'pin-tcb')).toEqual({
    name: 'pin-tcb',
    outcome: 'not-checked',
    required: false,
    reason: `accepted firmware below AMD's fixes in snp (${why}), launch-snp (${why}), alias-check (no BIOS yet); the other floors are required`,
  })
  expect(found.checks.find(check => check.name === 'gateway/tcb-floor-snp')).toMatchObject({
    outcome: 'not-checked',
    required: false,
    reason: expect.stringContaining(`waived (${why}): snp 24 is less than 27`),
  })
})

test('goal: a waiver without a part or a reason that is known waives nothing', async () => {
  const why = 'x'
  for (const tcb of [
    {},
    { snp: '' },
    { snp: why, bios: why },
    { snp: 1 },
    { snp: 'a\nPASS' },
    { snp: 'x'.repeat(201) },
    null,
  ]) {
    const { found, failed } = await verify({ ...allPins, tcb } as unknown as Pins)
    expect([found.ok, failed.length]).toEqual([false, 5])
    expect(found.checks.find(check => check.name === 'pin-tcb')?.outcome).toBe('pass')
  }
})

test('goal: whatever is not exactly any leaves nothing out, in JavaScript too', async () => {
  const wrong = { measurement: undefined, allowlist: null, vmpl: true, crl: 'none', tcb: 'ANY' } as unknown as Pins
  for (const pins of [wrong, {} as Pins]) {
    const { found, failed } = await verify(pins, { policy: { ...strictPolicy(), vmpls: 'any' }, allowlist: 'any' })
    const named = failed.map(check => check.name).filter(name => !name.includes('/'))
    expect([found.ok, named]).toEqual([false, ['pin-measurement', 'pin-allowlist', 'pin-vmpl']])
    expect(failed.some(check => check.name === 'gateway/tcb-floor')).toBe(true)
  }
})
