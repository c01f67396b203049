// The simulated platform of an appliance: made once, kept for itself, and good evidence for who trusts its root.

import { afterAll, describe, expect, test } from 'bun:test'
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { AMD_ROOTS } from '../../src/attest/amd/roots.ts'
import { strictPolicy } from '../../src/attest/policy/policy.ts'
import { verifyEvidence } from '../../src/attest/verify/evidence.ts'
import { Fault } from '../../src/base/fault.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { openSimulatedHost } from '../../src/host/simulated-host.ts'
import { readSimulatedRoot } from '../../src/verifier/simulated-root.ts'

const stateDir = mkdtempSync(join(tmpdir(), 'srt-simulated-host-'))
afterAll(() => rmSync(stateDir, { recursive: true }))
const keysFile = join(stateDir, 'simulator', 'keys.json')
const clock = createManualClock()
const open = () => openSimulatedHost({ stateDir, nowMs: clock.nowMs, random: systemRandom, modulusBits: 2048 })
const first = await open()
const dayMs = 86_400_000

const launch = {
  measurement: first.measurementOf(new Uint8Array(32).fill(1)),
  reportData: new Uint8Array(64).fill(2),
  hostData: new Uint8Array(32).fill(3),
}

async function failures(host: Awaited<ReturnType<typeof open>>, trusted = true): Promise<string[]> {
  const { report, vek, chain, crl } = await host.evidence(launch)
  const { checks, simulated } = await verifyEvidence({
    report,
    vek,
    crl,
    chain: [...chain],
    requireCrl: true,
    asOf: clock.nowMs(),
    reportData: launch.reportData,
    roots: trusted ? [readSimulatedRoot(new Uint8Array(readFileSync(first.rootFile)))] : AMD_ROOTS,
    policy: {
      ...strictPolicy(),
      measurements: [launch.measurement],
      hostData: launch.hostData,
      idKeyDigest: first.operatorKey,
    },
  })
  expect(simulated).toBe(trusted)
  return checks.filter(check => check.outcome === 'fail').map(check => check.name)
}

describe('evidence', () => {
  test('is good for who trusts the exported root, and for nobody else', async () => {
    // Goal: report, chain, CRL, measurement, HOST_DATA and operator key are what was asked for; AMD's roots refuse it.
    expect(await failures(first)).toEqual([])
    expect(await failures(first, false)).not.toEqual([])
  })

  test('stays good for as long as the process runs', async () => {
    // Goal: certificates and revocation lists are made anew before they end, also after the clock was set back.
    for (const ms of [dayMs, 29 * dayMs, 400 * dayMs]) {
      clock.advance(ms)
      expect([ms, await failures(first)]).toEqual([ms, []])
    }
    clock.set(clock.nowMs() - 400 * dayMs)
    expect(await failures(first)).toEqual([])
  })
})

describe('what is kept', () => {
  test('is secret, but for the root', () => {
    // Goal: the keys are the owner's alone, the root may be read by all and holds no key.
    expect([statSync(keysFile).mode & 0o777, statSync(first.rootFile).mode & 0o777]).toEqual([0o600, 0o644])
    const pem = readFileSync(first.rootFile, 'utf8')
    expect([pem.match(/BEGIN CERTIFICATE/g)?.length, pem.includes('PRIVATE')]).toEqual([3, false])
  })

  test('serves the next start unchanged', async () => {
    // Goal: a root that was given to verifiers once stays valid, and so do operator key and chip.
    const before = readFileSync(first.rootFile, 'utf8')
    const second = await open()
    expect([readFileSync(second.rootFile, 'utf8'), second.operatorKey]).toEqual([before, first.operatorKey])
    expect(await failures(second)).toEqual([])
  })

  test('is never replaced when it cannot be read', async () => {
    // Goal: a damaged file is an error that names it; a new root behind the back of verifiers would be worse.
    const text = readFileSync(keysFile, 'utf8')
    for (const damaged of ['', '{}', text.slice(0, 500), text.replace('"ask"', '"asq"'), text.replace('"M', '"!')]) {
      writeFileSync(keysFile, damaged)
      chmodSync(keysFile, 0o600)
      const error = await open().catch(error => error)
      expect(error).toBeInstanceOf(Fault)
      expect([error.code, error.message]).toEqual(['internal', expect.stringContaining(keysFile)])
      expect(readFileSync(keysFile, 'utf8')).toBe(damaged)
    }
    writeFileSync(keysFile, text)
    expect(await failures(await open())).toEqual([])
  })
})
