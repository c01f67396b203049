// Goal: the appliance hands out the very text whose digest its gateway is to attest, and no start leaves an old one behind.

import { expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { composeInference } from '../../src/appliance/inference.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { createLogger } from '../../src/base/log.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { Metering } from '../../src/inference/metering/ledger.ts'
import { openStore } from '../../src/store/db.ts'

test('goal: gateway-configuration.json is that of this start, and the log has its digest', async () => {
  const stateDir = mkdtempSync(join(tmpdir(), 'strongroom-configuration-'))
  await using undo = new AsyncDisposableStack()
  undo.defer(() => rmSync(stateDir, { recursive: true }))
  const store = openStore(join(stateDir, 'strongroom.db'))
  undo.defer(() => store.close())
  for (const name of ['first', 'second']) {
    const lines: string[] = []
    const log = createLogger({ level: 'info', sink: line => void lines.push(line), nowMs: systemClock.nowMs })
    const upstream = `[[inference.upstreams]]\nname = "${name}"\nurl = "https://${name}.example/v1"\nmodels = ["m"]\n`
    const verdict = parseConfig(upstream, 'test.toml')
    if (!verdict.ok) throw new Error('the configuration is valid')
    const metering = new Metering({ store: store.directory, clock: systemClock, log, cost: () => 0n })
    const inference = await composeInference({
      ...{ config: verdict.config, stateDir, store, metering, log, platform: 'snp' },
      ...{ clock: systemClock, random: systemRandom },
      tls: {
        current: () => ({ cert: '', key: '', notBeforeMs: 0, notAfterMs: 0, fingerprint: '', names: '' }),
        onChange: () => {},
      },
      capacity: { memoryMib: 0, vcpus: 0, addresses: 0, asids: null, bootingMax: 0 },
    })
    await inference.stop()
    metering.stop()
    const bytes = readFileSync(join(stateDir, 'gateway-configuration.json'))
    expect(JSON.parse(bytes.toString()).upstreams).toMatchObject([{ name, url: `https://${name}.example/v1` }])
    const digest = new Bun.CryptoHasher('sha256').update(bytes).digest('hex')
    expect(lines.filter(line => line.includes('configuration in force')).join()).toContain(digest)
  }
})
