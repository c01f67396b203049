// Goal: a tenant's page judges evidence itself: good evidence passes by name, and one changed byte fails by name.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { refusal, scriptedConsole } from '../../../../scripts/rigs/console/scripted-console.ts'
import { simulatedAsOf } from '../../../../scripts/rigs/launch/simulated-platform.ts'
import { present } from '../../../../src/base/assert.ts'
import { openPage } from '../../../rigs/console/browser.ts'
import {
  apiKey,
  buildId,
  buildRecord,
  expectedOfGateway,
  gatewayKey,
  serveTenant,
} from '../../../rigs/console/tenant-services.ts'
import { sampleInstance } from '../../../rigs/instances/instance-attestation.ts'
import { checksOf, runJson } from '../../../rigs/program.ts'

const own = await scriptedConsole()
const tenant = await serveTenant(own)
const opened = await openPage(own.url)
const { page } = opened
afterAll(async () => {
  await opened[Symbol.asyncDispose]()
  await tenant[Symbol.asyncDispose]()
  await own[Symbol.asyncDispose]()
})

async function expectEvidence(expected: Readonly<Record<string, unknown>> | null): Promise<void> {
  await page.goto(`${own.url}/tenant`)
  const stored = expected === null ? 'null' : JSON.stringify(JSON.stringify(expected))
  await page.evaluate(`localStorage.clear(); ${stored} && localStorage.setItem('strongroom-expected', ${stored})`)
  await page.evaluate(`sessionStorage.setItem('strongroom-keys', '${JSON.stringify({ ca: apiKey, gw: gatewayKey })}')`)
}

async function show(path: string, title: string): Promise<void> {
  await page.goto(own.url + path)
  await page.getByRole('heading', { level: 1, name: title, exact: true }).waitFor()
}

/** The verdict's first line, and the checks of one outcome by name. */
async function verdict(): Promise<{ word: string; failed: string[]; open: string[] }> {
  await page.getByRole('button', { name: /^Verify/ }).click()
  const word = await page.locator('.verdict-word').textContent()
  const named = async (outcome: string) =>
    await page
      .locator('.verdict > .card .checks')
      .first()
      .locator('li', { hasText: outcome })
      .locator('code')
      .allTextContents()
  return { word: word ?? '', failed: await named('failed'), open: await named('not checked') }
}

test('a key', async () => {
  // Goal: the key stays in the page: in no cookie, no address and no storage unless asked, and gone after a reload.
  await show('/tenant', 'Your instances, models and builds')
  await page.getByRole('textbox', { name: 'Key' }).fill('ca_short')
  await page.getByRole('button', { name: 'Go on' }).click()
  await page.getByText(/This is no key/).waitFor()
  await page.getByRole('textbox', { name: 'Key' }).fill(apiKey)
  await page.getByRole('button', { name: 'Go on' }).click()
  await page.getByRole('heading', { level: 1, name: 'Instances' }).waitFor()
  await page.getByRole('link', { name: sampleInstance.name }).waitFor()
  const kept = 'JSON.stringify([document.cookie, location.href, {...localStorage}, {...sessionStorage}])'
  expect(await page.evaluate<string>(kept)).not.toContain(apiKey.slice(12))
  expect(await page.context().cookies()).toEqual([])
  await page.reload()
  await page.getByRole('heading', { level: 1, name: 'Your instances, models and builds' }).waitFor()
  expect([...(tenant.keys.get('instances') ?? [])]).toEqual([`Bearer ${apiKey}`])
})

test('an instance', async () => {
  // Goal: evidence for a nonce of this page passes with the tenant's policy, says SIMULATED, and can be saved.
  await expectEvidence(tenant.expected)
  await show(`/tenant/instances/${sampleInstance.name}`, sampleInstance.name)
  expect(await verdict()).toEqual({
    word: 'PASS, SIMULATED: no hardware vouches for it',
    failed: [],
    open: ['own-key', 'image'],
  })
  await page.getByText(`strongroom ssh ${sampleInstance.hostname}`, { exact: true }).waitFor()
  const downloaded = page.waitForEvent('download')
  await page.getByRole('button', { name: 'Save attestation.json' }).click()
  const saved: unknown = JSON.parse(readFileSync(await (await downloaded).path(), 'utf8'))
  expect(saved).toMatchObject({ data: { hostname: sampleInstance.hostname, scope: 'claim-only' } })
  await page
    .getByText(/^strongroom verify instance k3v9x2ma\.acme.* --document attestation\.json --nonce [\w-]{43} /)
    .waitFor()
})

test('an instance, with nothing expected', async () => {
  // Goal: without a policy nothing passes: the page names what is missing.
  await expectEvidence(null)
  await show(`/tenant/instances/${sampleInstance.name}`, sampleInstance.name)
  const { word, failed } = await verdict()
  expect(word).toBe('FAIL')
  expect(failed).toContain('pin-measurement')
  expect(failed).toContain('pin-gateway')
})

test('an instance that answers no more', async () => {
  // Goal: an attempt that gets no evidence leaves no verdict beside it, of whatever came before.
  await expectEvidence(tenant.expected)
  await show(`/tenant/instances/${sampleInstance.name}`, sampleInstance.name)
  expect((await verdict()).word).toStartWith('PASS')
  const path = `GET /api/tenant/instances/v1/instances/${sampleInstance.name}/attestation`
  const message = 'The instance does not answer.'
  const before = own.answer(path, () => refusal(503, 'attestation_unavailable', message))
  await page.getByRole('button', { name: 'Verify again' }).click()
  await page.getByRole('alert').getByText(message).waitFor()
  expect(await page.locator('.verdict').count()).toBe(0)
  own.answer(path, present(before, 'an answer'))
})

test('a forged instance', async () => {
  // Goal: one word of the claim changed on the way fails by the claim's name.
  tenant.forge()
  await expectEvidence(tenant.expected)
  await show(`/tenant/instances/${sampleInstance.name}`, sampleInstance.name)
  const { word, failed } = await verdict()
  expect(word).toStartWith('FAIL')
  expect(failed).toContain('receipt/claim-document')
  await page.getByText('What it says; do not rely on it').waitFor()
})

test('the gateway', async () => {
  // Goal: five receipts are judged one by one; what a page cannot see is named as not checked; no key goes to evidence.
  const { keys } = tenant
  keys.delete('inference')
  await expectEvidence(await expectedOfGateway())
  await show('/tenant/models', 'Models and usage')
  const { word, failed, open } = await verdict()
  expect([word, failed]).toEqual(['PASS, SIMULATED: no hardware vouches for it', []])
  expect(open).toContain('tls-binding')
  expect(await page.locator('details.card summary').allTextContents()).toEqual([
    ...['gateway', 'inference-router', 'inference-worker', 'metrics-collector', 'cluster-state-metrics'].map(name =>
      expect.stringMatching(new RegExp(`^Receipt of ${name} PASS \\d+ checks$`)),
    ),
  ])
  expect([...(keys.get('inference') ?? [])].sort()).toEqual([`Bearer ${gatewayKey}`, null])
})

test('the evidence of a gateway, saved', async () => {
  // Goal: the command beside the saved files judges them as the page did, without a network.
  const expected = await expectedOfGateway()
  await expectEvidence(expected)
  await show('/tenant/models', 'Models and usage')
  expect((await verdict()).failed).toEqual([])
  const line = await page.getByText(/^strongroom verify gateway --document attestation\.json /).textContent()
  const directory = mkdtempSync(join(tmpdir(), 'srt-evidence-'))
  try {
    const saves = page.getByRole('button', { name: /^Save / })
    for (const button of await saves.all()) {
      const downloaded = page.waitForEvent('download')
      await button.click()
      const file = await downloaded
      await file.saveAs(join(directory, file.suggestedFilename()))
    }
    const { policy, simulatedRoot } = expected as { policy: { gateway: string }; simulatedRoot: string }
    writeFileSync(join(directory, 'policy.json'), policy.gateway)
    writeFileSync(join(directory, 'root.pem'), simulatedRoot)
    const argv = (line ?? '').split(' ').slice(1)
    const here = argv.map(word => (/^[a-z]+\.(json|pem)$/.test(word) ? join(directory, word) : word))
    const { code, document } = await runJson(...here)
    expect([code, checksOf(document, 'FAIL')]).toEqual([0, []])
    expect(checksOf(document, 'NOT CHECKED')).toContain('tls-binding')
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
})

test('a build', async () => {
  // Goal: the result is fetched, unpacked and judged here; its log is text alone.
  await page.clock.setFixedTime(simulatedAsOf)
  await expectEvidence(tenant.expected)
  await show(`/tenant/builds/${buildId}`, 'Build 4f9d2c1e')
  await page.getByRole('log').getByText('complete: ok').waitFor()
  expect(await page.getByRole('log').textContent()).toContain('build: <img src=x onerror=')
  expect(await page.locator('main img, main script').count()).toBe(0)
  const { failed, open } = await verdict()
  // This tab has not submitted it, so its nonce is not compared.
  expect(failed).toEqual([])
  expect(open).toContain('pin-measurement')
  await page.getByText('SLSA', { exact: true }).waitFor()
})

test('the end of a build', async () => {
  // Goal: a tenant cancels a build that runs, after a question, with the key of the page; it is over for good.
  const path = `/api/tenant/builds/build/${buildId}`
  const running = { ...buildRecord(0), state: 'running', result: null, finished_at: null } as const
  const ended = { ...running, state: 'cancelled', error_type: 'cancelled', error: 'its owner ended it' } as const
  own.answer(`GET ${path}`, () => Response.json(running))
  const asked: (string | null)[] = []
  own.answer(`DELETE ${path}`, request => {
    asked.push(request.headers.get('authorization'))
    own.answer(`GET ${path}`, () => Response.json(ended))
    return Response.json(ended)
  })
  await expectEvidence(tenant.expected)
  await show(`/tenant/builds/${buildId}`, 'Build 4f9d2c1e')
  const cancel = page.getByRole('button', { name: 'Cancel', exact: true })
  await cancel.click()
  await page.getByText('The build and its VM end now.').waitFor()
  expect(asked).toEqual([])
  await page.getByRole('button', { name: 'Cancel the build' }).click()
  await page.getByText('its owner ended it').waitFor()
  expect([asked, await cancel.count()]).toEqual([[`Bearer ${apiKey}`], 0])
})

test('goal: nothing of all that broke the policy or asked another host', () => {
  expect(opened.faults).toEqual([])
  expect(opened.strangers).toEqual([])
})
