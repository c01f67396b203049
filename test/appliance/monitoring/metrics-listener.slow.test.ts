// Goal: the metrics are read over TLS with the token alone, which may change without a restart; all else is refused.

import { afterAll, expect, test } from 'bun:test'
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { serve } from '../../../src/appliance/appliance.ts'
import { tokenReader } from '../../../src/appliance/monitoring/metrics-listener.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { defaultConfig } from '../../../src/config/load.ts'

const stateDir = mkdtempSync(join(tmpdir(), 'srt-metrics-'))
const tokenFile = join(stateDir, 'metrics-token')
const off = { inference: '', builds: '', dns: '', console: '' }
const listen = { instances: '127.0.0.1:0', ...off, metrics: '127.0.0.1:0' }
const config = defaultConfig()
const serving = await serve(
  {
    ...config,
    ...{ platform: 'tcg', listen, vm: { ...config.vm, tpm: 'off' } },
    network: { ...config.network, table: 'srtmetrics', tap_prefix: 'sm', probe_peers: [] },
  },
  { stateDir, log: silentLogger, onTrial: false },
)
afterAll(async () => {
  await serving.stop()
  rmSync(stateDir, { recursive: true })
})

const tls = { rejectUnauthorized: false }
const ask = (path: string, headers: Record<string, string> = {}, method = 'GET') =>
  fetch(`${serving.metricsUrl}${path}`, { method, headers, tls })
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

test('goal: the token that the daemon made opens the metrics of every configuration', async () => {
  const token = readFileSync(tokenFile, 'utf8').trim()
  expect([token.length, statSync(tokenFile).mode & 0o777]).toEqual([43, 0o600])
  await fetch(`${serving.instancesUrl}/v1/instances`, { tls })
  const response = await ask('/metrics', bearer(token))
  const text = await response.text()
  expect([response.status, response.headers.get('content-type')]).toEqual([
    200,
    'text/plain; version=0.0.4; charset=utf-8',
  ])
  for (const name of [
    ...['strongroom_ready 1', 'strongroom_problem{name="disk"} 0', 'strongroom_info{', 'strongroom_clock_held 0'],
    ...[
      'strongroom_backup_last_success_timestamp_seconds 0',
      'strongroom_backup_good 0',
      'strongroom_disk_free_bytes ',
    ],
    ...['strongroom_certificate_expiry_timestamp_seconds{certificate="server"}', 'strongroom_vm_memory_limit_bytes '],
    ...['strongroom_instances{status="failed"} 0', 'strongroom_instances_failed{code="ssh_unreachable"} 0'],
    ...['strongroom_requests_total{service="instances",status="401"} 1', 'strongroom_metrics_failures 0'],
  ]) {
    expect(text).toContain(`\n${name}`)
  }
  // Each family once: Prometheus refuses a text with one twice.
  const families = [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name)
  expect(new Set(families).size).toBe(families.length)
})

test('goal: without the token, with another one, or for another path nothing is shown', async () => {
  const token = readFileSync(tokenFile, 'utf8').trim()
  for (const headers of [
    ...[{}, bearer(''), bearer(`${token}x`), bearer(token.slice(1)), { authorization: `Basic ${token}` }],
    { authorization: token },
  ]) {
    const response = await ask('/metrics', headers)
    expect([response.status, response.headers.get('www-authenticate')]).toEqual([401, 'Bearer'])
    expect(await response.text()).not.toContain('strongroom_')
  }
  expect((await ask('/status', bearer(token))).status).toBe(404)
  expect((await ask('/metrics', bearer(token), 'POST')).status).toBe(405)
})

test('goal: a new token counts at once, a short or lost one refuses everybody', async () => {
  const next = 'a-token-of-the-operator'
  writeFileSync(tokenFile, `${next}\n`)
  expect((await ask('/metrics', bearer(next))).status).toBe(200)
  writeFileSync(tokenFile, 'short\n')
  expect((await ask('/metrics', bearer('short'))).status).toBe(401)
  rmSync(tokenFile)
  expect((await ask('/metrics', bearer(''))).status).toBe(401)
  writeFileSync(tokenFile, next)
  chmodSync(tokenFile, 0o600)
  // By now this address has used up its minute.
  for (let request = 0; request < 60; request += 1) await ask('/metrics')
  const refused = await ask('/metrics', bearer(next))
  expect([refused.status, Number(refused.headers.get('retry-after')) > 0]).toEqual([429, true])
})

test('goal: a token file that cannot be used is logged once for each reason, however many requests come', () => {
  const file = join(stateDir, 'another-token')
  const reasons: unknown[] = []
  const read = tokenReader(file, { error: (_, { reason } = {}) => void reasons.push(reason) })
  const some = () => [read(), read(), read()]
  expect([some(), reasons]).toEqual([[null, null, null], ['ENOENT']])
  writeFileSync(file, 'short')
  expect([some(), reasons.length]).toEqual([[null, null, null], 2])
  writeFileSync(file, 'a-token-of-the-operator')
  expect([read(), reasons.length]).toEqual(['a-token-of-the-operator', 2])
  rmSync(file)
  expect([some(), reasons.length]).toEqual([[null, null, null], 3])
})
