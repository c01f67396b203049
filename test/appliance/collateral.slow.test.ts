// The collateral service as the appliance composes it: on snp only, from the configuration, into the state directory.

import { expect, test } from 'bun:test'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chipIdOf } from '../../scripts/rigs/launch/simulated-platform.ts'
import { until } from '../../scripts/rigs/until.ts'
import { composeCollateral } from '../../src/appliance/collateral.ts'
import { toHex } from '../../src/base/bytes.ts'
import { systemClock } from '../../src/base/clock.ts'
import { createLogger, silentLogger } from '../../src/base/log.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { hostChipId } from '../../src/host/chip-id.ts'
import { startKdsServer } from '../rigs/kds-server.ts'

const product = 'genoa'

function configOf(text: string) {
  const verdict = parseConfig(text, 'test.toml')
  if (!verdict.ok) throw new Error('the configuration is valid')
  return verdict.config
}

test('goal: a daemon on snp fetches chain and CRL by itself, and has the collateral and the chip of signed reports', async () => {
  const stateDir = mkdtempSync(join(tmpdir(), 'strongroom-collateral-'))
  await using undo = new AsyncDisposableStack()
  undo.defer(() => rmSync(stateDir, { recursive: true }))
  const server = undo.use(await startKdsServer(product))
  const clock = { ...systemClock, nowMs: () => Date.UTC(2026, 10, 20) }
  const service = composeCollateral({
    config: configOf(`[kds]\nbase_url = ${JSON.stringify(server.url)}\n`),
    stateDir,
    platform: 'snp',
    clock,
    log: silentLogger,
    product,
    roots: [server.platform.authority.root],
  })
  if (service === null) throw new Error('there is a service on snp')
  undo.defer(service.stop)
  service.start()
  const files = ['chain-vcek-genoa.pem', 'crl-vcek-genoa.der'].map(name => join(stateDir, 'kds', name))
  await until('chain and CRL are kept', 60_000, () => files.every(file => existsSync(file)))
  const report = await server.platform.report()
  const forged = report.slice()
  forged[0x50] = 0xff // REPORT_DATA
  expect(await service.forReport(forged)).toMatchObject({ ok: false })
  expect(hostChipId(stateDir, 'snp')).toBeNull()
  expect(await service.forReport(report)).toMatchObject({ ok: true })
  expect(hostChipId(stateDir, 'snp')).toBe(toHex(chipIdOf(product)))
})

test('goal: there is none where reports are simulated, or where nobody could verify them, which is said', () => {
  const parts = { config: configOf(''), stateDir: '/nonexistent', clock: systemClock }
  expect(composeCollateral({ ...parts, platform: 'kvm', log: silentLogger })).toBeNull()
  expect(composeCollateral({ ...parts, platform: 'tcg', log: silentLogger })).toBeNull()
  const lines: string[] = []
  const log = createLogger({ level: 'error', sink: line => lines.push(line), nowMs: () => 0 })
  expect(composeCollateral({ ...parts, platform: 'snp', log, product: null })).toBeNull()
  expect(lines).toHaveLength(1)
})
