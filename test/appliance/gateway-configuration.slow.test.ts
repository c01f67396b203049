// Goal: the appliance serves the very text whose digest its gateway attests, and no start leaves an old text behind.

import { expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createClockGuard } from '../../scripts/rigs/clock-guard.ts'
import { nobodyLogs } from '../../scripts/rigs/transparency.ts'
import { composeInference } from '../../src/appliance/inference.ts'
import { ownStarter } from '../../src/appliance/starter/client.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { createLogger } from '../../src/base/log.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { Metering } from '../../src/inference/metering/ledger.ts'
import { openStore, type Store } from '../../src/store/db.ts'
import { openGate } from '../../src/upgrade/gate.ts'

const upstreamOf = (name: string) =>
  `[[inference.upstreams]]\nname = "${name}"\nurl = "https://${name}.example/v1"\nmodels = ["m"]\n`

/** Starts nothing; what is logged. */
async function compose(stateDir: string, store: Store, toml: string): Promise<string[]> {
  const lines: string[] = []
  const log = createLogger({ level: 'info', sink: line => void lines.push(line), nowMs: systemClock.nowMs })
  const verdict = parseConfig(toml, 'test.toml')
  if (!verdict.ok) throw new Error('the configuration is valid')
  const metering = new Metering({ store: store.directory, clock: systemClock, log, cost: () => 0n })
  const inference = await composeInference({
    ...nobodyLogs,
    gate: openGate,
    starter: ownStarter,
    config: verdict.config,
    stateDir,
    store,
    metering,
    log,
    platform: 'snp',
    clock: systemClock,
    clockGuard: createClockGuard(systemClock),
    random: systemRandom,
    simulatedPlatform: () => Promise.reject(new Error('nobody asks here')),
    tls: {
      current: () => ({ cert: '', key: '', notBeforeMs: 0, notAfterMs: 0, fingerprint: '', names: '' }),
      guestCertificate: () => '',
      onChange: () => {},
    },
    capacity: { memoryMib: 0, vcpus: 0, addresses: 0, asids: null, bootingMax: 0 },
  })
  await inference.stop()
  metering.stop()
  return lines
}

function openState(): Disposable & { readonly stateDir: string; readonly store: Store; readonly file: string } {
  const stateDir = mkdtempSync(join(tmpdir(), 'strongroom-configuration-'))
  const store = openStore(join(stateDir, 'strongroom.db'))
  const close = () => {
    store.close()
    rmSync(stateDir, { recursive: true })
  }
  return { stateDir, store, file: join(stateDir, 'gateway-configuration.json'), [Symbol.dispose]: close }
}

test('goal: gateway-configuration.json is that of this start, and the log has its digest', async () => {
  using state = openState()
  for (const name of ['first', 'second']) {
    const lines = await compose(state.stateDir, state.store, upstreamOf(name))
    const bytes = readFileSync(state.file)
    expect(JSON.parse(bytes.toString()).upstreams).toMatchObject([{ name, url: `https://${name}.example/v1` }])
    const digest = new Bun.CryptoHasher('sha256').update(bytes).digest('hex')
    expect(lines.filter(line => line.includes('configuration in force')).join()).toContain(digest)
  }
})

test('goal: a disk that takes no more does not keep the gateway from starting, and the log says what is missing', async () => {
  using state = openState()
  // Nothing can be renamed over a directory, not even by root.
  mkdirSync(state.file)
  const lines = await compose(state.stateDir, state.store, upstreamOf('first'))
  const said = lines.filter(line => line.includes('the configuration cannot be handed out'))
  expect(said).toHaveLength(1)
  expect(said[0]).toContain(state.file)
})
