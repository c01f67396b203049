// Keys of simulated platforms for tests, out of a file: making them takes a second of processor time, and hundreds of
// test files need some. They protect nothing. test/host/simulated-host.test.ts and the appliances of
// test/scripts/systemd and test/scripts/package make their own.

import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  createSimulatedAuthority,
  SIMULATED,
  type SimulatedAuthority,
} from '../../../src/attest/simulator/certificates.ts'
import { importSimulatedKeys, type SimulatedKeys } from '../../../src/attest/simulator/keys.ts'
import { fromBase64, toBase64 } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import stored from './simulated-keys.json'

const product = 'genoa'
const validity = { notBefore: new Date('2026-01-01T00:00:00Z'), notAfter: new Date('2051-01-01T00:00:00Z') }
const chipIdBytes = 64

let keys: Promise<SimulatedKeys> | null = null
let authority: Promise<SimulatedAuthority> | null = null

export function simulatedKeys(): Promise<SimulatedKeys> {
  const { ark, ask, asvk, vcek, vlek } = stored
  keys ??= importSimulatedKeys({
    ark: pairOf(ark),
    ask: pairOf(ask),
    asvk: pairOf(asvk),
    vcek: pairOf(vcek),
    vlek: pairOf(vlek),
  })
  return keys
}

/**
 * Puts a platform of these keys into a new state directory, where `openSimulatedHost` finds it instead of making one.
 * Not for two hosts of which one must not trust the other: they have the same root.
 */
export async function keepSimulatedPlatform(stateDir: string): Promise<void> {
  authority ??= simulatedKeys().then(made => createSimulatedAuthority(product, made, validity))
  const { ark, ask, asvk } = (await authority).root
  const kept = {
    platform: SIMULATED,
    keys: stored,
    certificates: { ark: toBase64(ark), ask: toBase64(ask), asvk: toBase64(asvk) },
    chipId: toBase64(systemRandom(chipIdBytes)),
  }
  const directory = join(stateDir, 'simulator')
  mkdirSync(directory, { recursive: true, mode: 0o755 })
  writeFileSync(join(directory, 'keys.json'), `${JSON.stringify(kept)}\n`, { mode: 0o600 })
}

function pairOf([pkcs8 = '', spki = '']: readonly string[]) {
  return { pkcs8: fromBase64(pkcs8) ?? new Uint8Array(), spki: fromBase64(spki) ?? new Uint8Array() }
}
