// Goal: the example page, built with the installed package and served at an origin of its own, verifies a gateway, asks
// it and verifies the receipt; a gateway that is not the expected one gets no question.

import { afterAll, beforeAll, beforeEach, expect, test } from 'bun:test'
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { runCommand } from '../../scripts/lib/command.ts'
import { launchChromium } from '../../scripts/rigs/chromium.ts'
import { clearRig } from '../../scripts/rigs/gateway/attestation.ts'
import {
  type AttestedGateway,
  attestedOptions,
  startAttestedGateway,
} from '../../scripts/rigs/gateway/attested-gateway.ts'
import { KEY, MODEL } from '../../scripts/rigs/gateway/server.ts'
import { startUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { root } from '../meta/tree.ts'
import { preparePackage } from '../rigs/package/package-project.ts'

const text = 'Grüße 👋 you'
let gateway: AttestedGateway
let page: Page
let origin: string
let outside: string
const undo = new AsyncDisposableStack()

beforeAll(async () => {
  undo.defer(clearRig)
  const project = undo.use(await preparePackage())
  for (const name of ['index.html', 'page.ts'])
    cpSync(join(root, 'examples/verify-page', name), join(project.folder, 'site', name))
  const argv = [process.execPath, 'build', 'index.html', '--outdir', 'dist']
  const built = await runCommand(argv, { timeoutMs: 60_000, cwd: join(project.folder, 'site') })
  expect([built.exitCode, built.output]).toEqual([0, expect.stringContaining('index.html')])
  const dist = join(project.folder, 'site/dist')
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: request => {
      const { pathname } = new URL(request.url)
      return new Response(Bun.file(join(dist, pathname === '/' ? 'index.html' : pathname.slice(1))), {
        // It needs no other script, and no other place than gateways.
        headers: { 'content-security-policy': "default-src 'none'; script-src 'self'; connect-src https:" },
      })
    },
  })
  undo.defer(() => server.stop(true))
  origin = `http://127.0.0.1:${server.port}`
  const upstream = await startUpstream()
  undo.defer(upstream.stop)
  outside = `up-${new URL(upstream.url).port}`
  gateway = undo.use(await startAttestedGateway(upstream, { corsOrigins: [origin] }))
  const profile = mkdtempSync(join(tmpdir(), 'srt-chromium-'))
  undo.defer(() => rmSync(profile, { recursive: true, force: true }))
  const context = await launchChromium(profile, { ignoreHTTPSErrors: true })
  undo.defer(() => context.close())
  page = await context.newPage()
  page.setDefaultTimeout(60_000)
}, 120_000)
afterAll(() => undo.disposeAsync())

beforeEach(async () => {
  gateway.seen.length = 0
  await page.goto(origin)
  const { policy, simulatedRoot } = await attestedOptions()
  await page.locator('summary').click()
  await fill({ url: gateway.url, policy: JSON.stringify(policy), root: simulatedRoot })
  await fill({ key: KEY, model: MODEL, question: 'the secret question', outside })
})

async function fill(fields: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, value] of Object.entries(fields)) await page.locator(`[name="${name}"]`).fill(value)
}

/** The heading, once there is a verdict. */
async function click(button: 'verify' | 'ask'): Promise<string | null> {
  await page.locator(`button[name="${button}"]`).click()
  await page.locator('#verdict', { hasText: /PASS|FAIL|Error/ }).waitFor()
  return await page.locator('#verdict').textContent()
}

test('goal: it verifies the gateway and shows every check', async () => {
  expect(await click('verify')).toBe('PASS, SIMULATED: no hardware attests it')
  const checks = await page.locator('#checks li').allTextContents()
  expect(checks).toContainEqual(expect.stringMatching(/^pass attestation-nonce/))
  expect(checks.filter(check => check.startsWith('fail'))).toEqual([])
  expect(gateway.seen).toEqual(['GET /attestation', 'GET /workload.json'])
}, 120_000)

test('goal: it asks in encrypted form, shows the answer and verifies its receipt', async () => {
  const before = gateway.encryptedCount()
  expect(await click('ask')).toStartWith('PASS')
  await page.locator('#receipt', { hasText: 'Receipt' }).waitFor()
  expect(await page.locator('#answer').textContent()).toBe(text)
  expect(await page.locator('#receipt').textContent()).toStartWith('Receipt PASS')
  expect(gateway.encryptedCount()).toBe(before + 1)
  // An upstream that the reader did not accept: the answer comes, and its receipt says where it is from.
  await fill({ outside: '' })
  await click('ask')
  await page.locator('#receipt', { hasText: 'Receipt' }).waitFor()
  expect(await page.locator('#receipt').textContent()).toStartWith('Receipt FAIL')
}, 120_000)

test('goal: another measurement than the expected one is shown, and gets no question', async () => {
  const { policy } = await attestedOptions()
  await fill({ policy: JSON.stringify({ ...policy, measurements: ['00'.repeat(48)] }) })
  expect(await click('ask')).toBe('FAIL')
  expect(await page.locator('#checks li').allTextContents()).toContainEqual(
    expect.stringMatching(/^fail gateway\/measurement/),
  )
  expect(gateway.seen.filter(line => !line.startsWith('GET '))).toEqual([])
}, 120_000)

test('goal: an address without a gateway is an error in words', async () => {
  await fill({ url: 'https://127.0.0.1:9' })
  expect(await click('verify')).toContain('no evidence from 127.0.0.1:9')
}, 120_000)
