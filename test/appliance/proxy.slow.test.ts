// Goal: each part that fetches uses the proxy of the configuration, and a refusal of the proxy is not taken for an
// answer of the far side.

import { afterAll, beforeAll, beforeEach, expect, test } from 'bun:test'
import { generateKeyPairSync } from 'node:crypto'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { simulatedPlatform } from '../../scripts/rigs/launch/simulated-platform.ts'
import { until } from '../../scripts/rigs/until.ts'
import { composeCollateral } from '../../src/appliance/collateral.ts'
import { composeTransparency } from '../../src/appliance/log/transparency.ts'
import { composeAlerts } from '../../src/appliance/monitoring/alerts.ts'
import { encodeNoteKey } from '../../src/attest/log/note.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { createLogger, silentLogger } from '../../src/base/log.ts'
import { collectProxyFacts } from '../../src/cli/doctor/proxy.driver.ts'
import { proxyChecks } from '../../src/cli/doctor/proxy.plan.ts'
import { defaultConfig } from '../../src/config/load.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { openAcme } from '../../src/http/acme/open.ts'
import { openStore } from '../../src/store/db.ts'
import {
  type FarSide,
  farName,
  type ScriptedProxy,
  startFarSide,
  startScriptedProxy,
} from '../rigs/proxy/scripted-proxy.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-proxied-'))
const witnessKey = encodeNoteKey({
  name: 'witness.example',
  type: 'cosignature',
  publicKey: new Uint8Array(32).fill(7),
})
const refuse = (status: number) => (client: Socket) =>
  client.end(`HTTP/1.1 ${status} No\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n`)
let far: FarSide
let proxy: ScriptedProxy
/** Null: a tunnel to the far side. */
let refusal: number | null
beforeAll(async () => {
  far = await startFarSide()
  proxy = await startScriptedProxy(far.port, (client, tunnel) =>
    refusal === null ? tunnel() : refuse(refusal)(client),
  )
  writeFileSync(join(dir, 'ca.pem'), far.ca)
})
beforeEach(() => {
  refusal = null
  proxy.heads.length = 0
  far.requests.length = 0
})
afterAll(async () => {
  await proxy[Symbol.asyncDispose]()
  await far[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true })
})

function config(changes = '') {
  const ca = JSON.stringify(join(dir, 'ca.pem'))
  const verdict = parseConfig(
    `
    domain = "agents.example"
    [network.proxy]
    url = "${proxy.url}"
    ${changes}
    [kds]
    base_url = "https://kds.example"
    [tls.acme]
    directory = "https://${farName}:14000/dir"
    ca_file = ${ca}
    terms_agreed = true
    [[log.witnesses]]
    key = "${witnessKey}"
    url = "https://witness.example/add-checkpoint"
    [alerts]
    webhook_url = "https://${farName}/secret-path"
    webhook_ca_file = ${ca}
    `,
    'f',
  )
  if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
  return verdict.config
}

const newKey = () =>
  generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
const stateDir = (name: string) => join(dir, name)
const asked = () => new Set(proxy.heads.map(head => head.split(' ', 2).join(' ')))
const shared = { clock: systemClock, random: systemRandom, log: silentLogger, onEvent: () => {} }

test('goal: the webhook of alerts, whole', async () => {
  const parts = { ...shared, config: config(), stateDir: dir, hostId: 'h', notifiedBefore: () => [], present: () => [] }
  const { test: send } = composeAlerts(parts)
  refusal = 502
  expect(await send?.()).toMatchObject([
    {
      ok: false,
      detail: expect.stringContaining(
        `the proxy ${proxy.url} refused (502): it does not connect this host to ${farName}`,
      ),
    },
  ])
  expect(far.requests).toEqual([])
  refusal = null
  expect(await send?.()).toMatchObject([{ receiver: 'webhook', ok: true }])
  expect(asked()).toEqual(new Set([`CONNECT ${farName}:443`]))
  expect(far.requests).toEqual([expect.stringMatching(/^POST \/secret-path .*webhook-signature/)])
})

test("goal: AMD's certificates; a limit of the proxy is none of AMD's", async () => {
  const root = (await simulatedPlatform('genoa')).authority.root
  refusal = 429
  const service = composeCollateral({
    ...{ ...shared, config: config(), stateDir: stateDir('kds'), platform: 'snp', product: 'genoa', roots: [root] },
  })
  const report = await (await simulatedPlatform('genoa')).report()
  const found = await service?.forReport(report)
  expect(asked()).toEqual(new Set(['CONNECT kds.example:443']))
  expect(found).toMatchObject({ ok: false, retryAfterMs: null })
  expect(found?.ok === false && found.reason).toContain(`the proxy ${proxy.url} refused (429)`)
  await service?.stop()
})

test('goal: the ACME server', async () => {
  refusal = 503
  const lines: string[] = []
  const log = createLogger({ level: 'debug', sink: line => void lines.push(line), nowMs: Date.now })
  const acme = openAcme({ ...shared, log, config: config(), stateDir: stateDir('acme') }, newKey())
  acme.start({ domain: 'agents.example', httpListen: { hostname: '127.0.0.1', port: 0 }, showTexts: async () => {} })
  await until('an order failed', 20_000, () => lines.some(line => line.includes('refused (503)')))
  await acme.stop()
  expect(asked()).toEqual(new Set([`CONNECT ${farName}:14000`]))
})

test('goal: witnesses', async () => {
  refusal = 403
  const store = openStore(join(dir, 'strongroom.db'))
  const operatorKey = { digest: new Uint8Array(48).fill(7) }
  mkdirSync(stateDir('log'))
  const parts = composeTransparency({ ...shared, config: config(), stateDir: stateDir('log'), store, operatorKey })
  parts.start()
  await until('the witness was asked', 20_000, () => parts.witnesses.problem('witness.example') !== null)
  expect(parts.witnesses.problem('witness.example')).toContain(`the proxy ${proxy.url} refused (403)`)
  expect(asked()).toEqual(new Set(['CONNECT witness.example:443']))
  await parts.stop()
  store.close()
})

test('goal: doctor names what the proxy does not connect to, and leaves out what it is not used for', async () => {
  const checks = async (changes: string, platform: 'snp' | 'kvm') =>
    proxyChecks(await collectProxyFacts(config(changes), platform, { timeoutMs: 20_000 }))
  expect(await checks('no_proxy = ["witness.example"]', 'kvm')).toEqual([
    { name: 'proxy', result: 'PASS', detail: `${proxy.url} connects to ${farName}:14000, ${farName}`, remedy: null },
  ])
  expect(new Set(far.requests.map(request => request.split(' ', 2).join(' ')))).toEqual(new Set(['HEAD /']))
  const all = await checks('', 'snp')
  // The far side's certificate is not for these names.
  expect(all).toMatchObject([{ name: 'proxy', result: 'FAIL' }])
  expect(all[0]?.detail).toMatch(/kds\.example: through the proxy .*; witness\.example: through the proxy /)
  expect(all[0]?.detail).not.toContain(farName)
  expect(proxyChecks(await collectProxyFacts(defaultConfig(), 'snp'))).toEqual([])
})

test('goal: the remedy of doctor fits the failure', async () => {
  const password = join(dir, 'password')
  const user = `user = "u"\npassword_file = ${JSON.stringify(password)}`
  const none = 'no_proxy = ["witness.example"]'
  const ask = async (changes = '', isForRoot = (_: string) => false) => {
    const facts = await collectProxyFacts(config(`${none}\n${changes}`), 'kvm', { isForRoot })
    return proxyChecks(facts)[0]
  }
  refusal = 403
  expect((await ask())?.remedy).toMatch(/^let the proxy connect to these hosts, or name .* in network.proxy.no_proxy$/)
  refusal = 407
  expect((await ask())?.remedy).toMatch(/^correct network.proxy.user and the password/)
  expect((await ask(user))?.remedy).toMatch(/^write the password of network.proxy.user/)
  proxy.heads.length = 0
  expect(await ask(user, file => file === password)).toEqual({
    ...{ name: 'proxy', result: 'SKIP', remedy: null },
    detail: `not tried, because only root may read ${password}: run as root`,
  })
  expect(proxy.heads).toEqual([])
  writeFileSync(password, 'p')
  expect((await ask(user))?.remedy).toMatch(/^correct network.proxy.user and the password/)
  const other = await startScriptedProxy(far.port, () => {})
  const { network, ...rest } = config(none)
  const by = { ...rest, network: { ...network, proxy: { ...network.proxy, url: other.url } } }
  const silent = await collectProxyFacts(by, 'kvm', { timeoutMs: 300 })
  expect(proxyChecks(silent)[0]?.remedy).toMatch(/^see the log of the proxy, or name/)
  await other[Symbol.asyncDispose]()
  const gone = await collectProxyFacts(by, 'kvm')
  expect(proxyChecks(gone)[0]?.remedy).toMatch(/^start the proxy, let this host connect to it/)
})
