// Goal: a tenant's page saves evidence and hands over the command that verifies it elsewhere. It judges nothing: forged
// evidence looks like any other there, and fails the command by name.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { refusalResponse, scriptedConsole } from '../../../../scripts/rigs/console/scripted-console.ts'
import { measurement } from '../../../../scripts/rigs/gateway/receipt-samples.ts'
import { simulatedAsOf } from '../../../../scripts/rigs/launch/simulated-platform.ts'
import { encodePolicy } from '../../../../src/attest/policy/encode.ts'
import { policyWithFloors } from '../../../../src/attest/policy/floor-policy.ts'
import { present } from '../../../../src/base/assert.ts'
import { openPage } from '../../../rigs/console/browser.ts'
import {
  apiKey,
  buildCommit,
  buildId,
  buildRecord,
  gatewayFiles,
  gatewayKey,
  serveTenant,
  submittedBuild,
} from '../../../rigs/console/tenant-services.ts'
import { sampleInstance, samplePublicKey } from '../../../rigs/instances/instance-attestation.ts'
import { checksOf, runHere } from '../../../rigs/program.ts'

const own = await scriptedConsole()
const tenant = await serveTenant(own)
const opened = await openPage(own.url)
const { page } = opened
const directory = mkdtempSync(join(tmpdir(), 'srt-evidence-'))
afterAll(async () => {
  rmSync(directory, { recursive: true, force: true })
  await opened[Symbol.asyncDispose]()
  await tenant[Symbol.asyncDispose]()
  await own[Symbol.asyncDispose]()
})

/** Gives the page its keys, and as what this tab submitted no build or that of the sample. */
async function enter(builds: readonly object[] = []): Promise<void> {
  await page.goto(`${own.url}/tenant`)
  const keys = JSON.stringify(JSON.stringify({ ca: apiKey, gw: gatewayKey }))
  const known = JSON.stringify(JSON.stringify(builds))
  await page.evaluate(
    `sessionStorage.setItem('strongroom-keys', ${keys}), sessionStorage.setItem('strongroom-builds', ${known})`,
  )
}

async function show(path: string, title: string): Promise<void> {
  await page.goto(own.url + path)
  await page.getByRole('heading', { level: 1, name: title, exact: true }).waitFor()
}

const showInstance = () => show(`/tenant/instances/${sampleInstance.name}`, sampleInstance.name)
const downloadButton = page.getByRole('button', { name: 'Download evidence' })
const commands = () => page.locator('.command code').allTextContents()

/** Saves what the page offers. Returns its name, and the command that the page then shows for it. */
async function download(): Promise<{ name: string; command: string }> {
  const downloaded = page.waitForEvent('download')
  await downloadButton.click()
  const file = await downloaded
  const name = file.suggestedFilename()
  await file.saveAs(join(directory, name))
  await page.getByText(`${name} is saved.`).waitFor()
  const found = (await commands()).filter(command => command.includes(name))
  expect(found).toHaveLength(1)
  return { name, command: found[0] ?? '' }
}

/** Runs a command of the page on the saved files and the tenant's own, which name the simulated root besides. */
async function verify(command: string, files: Readonly<Record<string, string>>, ...more: string[]) {
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text)
  const [program, ...words] = command.split(' ')
  expect(program).toBe('strongroom')
  const argv = words.map(word => (/^[\w-]+\.(json|tar\.gz)$/.test(word) ? join(directory, word) : word))
  const root = ['--trust-simulated-root', join(directory, 'root.pem')]
  const { code, stdout } = await runHere([...argv, ...root, ...more, '--json'])
  const document = JSON.parse(stdout)
  return { code, failed: checksOf(document, 'FAIL'), open: checksOf(document, 'NOT CHECKED') }
}

/** Words of a verdict. A page from the host must not say one. */
async function expectNoVerdict(): Promise<void> {
  expect(await page.getByRole('main').textContent()).not.toMatch(
    /\b(PASS|FAIL|VERDICT|SIMULATED|passed|failed|verified)\b/,
  )
}

test('a key', async () => {
  // Goal: the key stays in the page: in no cookie, no address and no storage unless asked, and gone after a reload.
  await show('/tenant', 'Your instances, models and builds')
  await page.getByRole('textbox', { name: 'Key' }).fill('ca_short')
  await page.getByRole('button', { name: 'Continue' }).click()
  await page.getByText(/This is not a key/).waitFor()
  await page.getByRole('textbox', { name: 'Key' }).fill(apiKey)
  await page.getByRole('button', { name: 'Continue' }).click()
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
  // Goal: the saved document passes the command beside it, with policies that the tenant has of its own.
  await enter()
  await showInstance()
  const { name, command } = await download()
  expect(name).toBe(`${sampleInstance.name}-attestation.json`)
  expect(command).toMatch(
    /^strongroom verify instance k3v9x2ma\.acme\S* --document \S+ --nonce [\w-]{43} --policy instance-policy\.json --gateway-policy gateway-policy\.json$/,
  )
  // The machine that verifies has the tenant's own SSH key.
  const ownKey = ['--no-known-hosts', '--public-key', samplePublicKey] as const
  expect(await verify(command, tenant.instanceFiles, ...ownKey)).toMatchObject({ code: 0, failed: [] })
  expect(await commands()).toContain(
    `strongroom verify instance ${sampleInstance.hostname} --policy instance-policy.json --gateway-policy gateway-policy.json`,
  )
  await page.getByText(`strongroom ssh ${sampleInstance.hostname}`, { exact: true }).waitFor()
  await expectNoVerdict()
})

test('an instance that answers no more', async () => {
  // Goal: an attempt that gets no evidence leaves no command of an earlier one.
  await enter()
  await showInstance()
  const { name } = await download()
  const path = `GET /api/tenant/instances/v1/instances/${sampleInstance.name}/attestation`
  const message = 'The instance does not answer.'
  const before = own.answer(path, () => refusalResponse(503, 'attestation_unavailable', message))
  await downloadButton.click()
  await page.getByRole('alert').getByText(message).waitFor()
  expect((await commands()).filter(command => command.includes(name))).toEqual([])
  own.answer(path, present(before, 'an answer'))
})

test('a forged instance', async () => {
  // Goal: one word of the claim changed on the way looks like any evidence here, and fails the command by its name.
  tenant.forge()
  await enter()
  await showInstance()
  const { command } = await download()
  await expectNoVerdict()
  const { code, failed } = await verify(command, tenant.instanceFiles, '--no-known-hosts')
  expect(code).toBe(1)
  expect(failed).toContain('receipt/claim-document')
})

test('the gateway', async () => {
  // Goal: the saved document passes the command; every request has the key, as the relay needs it.
  const { keys } = tenant
  keys.delete('inference')
  await enter()
  await show('/tenant/models', 'Models and usage')
  await page.getByText('strongroom verify gateway https://', { exact: false }).first().waitFor()
  await page.getByText('--allowlist allowlist.json').waitFor()
  const { command } = await download()
  expect(command).toMatch(
    /^strongroom verify gateway --document gateway-attestation\.json --nonce [\w-]{43} --policy gateway-policy\.json --allowlist allowlist\.json --configuration gateway-configuration\.json$/,
  )
  const { code, failed, open } = await verify(command, await gatewayFiles())
  expect([code, failed]).toEqual([0, []])
  expect(open).toContain('tls-binding')
  expect([...(keys.get('inference') ?? [])]).toEqual([`Bearer ${gatewayKey}`])
  await expectNoVerdict()
})

test('a gateway in its VM', async () => {
  // Goal: the command compares with the tenant's own workload.json; the page does not save the one of the host.
  const path = 'GET /api/tenant/inference/workload.json'
  const before = own.answer(path, () => Response.json({}))
  await enter()
  await show('/tenant/models', 'Models and usage')
  const saved = readdirSync(directory).length
  const { command } = await download()
  expect(command).toEndWith(' --policy gateway-policy.json --workload workload.json')
  expect(readdirSync(directory).filter(name => name === 'workload.json')).toEqual([])
  expect(readdirSync(directory).length - saved).toBeLessThanOrEqual(1)
  own.answer(path, present(before, 'an answer'))
})

/** A tenant's policy for the builder of the sample. */
const buildPolicy = JSON.stringify(encodePolicy({ ...policyWithFloors(), measurements: [measurement] }))

test('a build', async () => {
  // Goal: result and evidence are one file; the command has the nonce and the commit that this tab sent.
  await enter([submittedBuild])
  await show(`/tenant/builds/${buildId}`, 'Build 4f9d2c1e')
  await page.getByRole('log').getByText('complete: ok').waitFor()
  expect(await page.getByRole('log').textContent()).toContain('build: <img src=x onerror=')
  expect(await page.locator('main img, main script').count()).toBe(0)
  const { command } = await download()
  expect(command).toBe(
    `strongroom verify build 4f9d2c1e.tar.gz --nonce ${submittedBuild.nonce} --commit ${buildCommit} --repository https://git.example/demo.git --ref ${buildCommit} --reproduce --policy build-policy.json`,
  )
  const files = { 'build-policy.json': buildPolicy, 'root.pem': present(tenant.instanceFiles['root.pem'], 'a root') }
  expect(await verify(command, files, '--as-of', simulatedAsOf.toISOString())).toMatchObject({ code: 0, failed: [] })
  await page.getByText('The command has the nonce and the source that this tab sent.').waitFor()
})

test('a build of another tab', async () => {
  // Goal: the record of the host stands for no expectation of the tenant's: the page says whose words they are.
  await enter()
  await show(`/tenant/builds/${buildId}`, 'Build 4f9d2c1e')
  const { command } = await download()
  expect(command).toBe(
    'strongroom verify build 4f9d2c1e.tar.gz --nonce 00112233445566778899aabbccddeeff --source . --reproduce --policy build-policy.json',
  )
  await page
    .getByText(/This tab did not submit the build, so the command has the nonce and the source of this host/)
    .waitFor()
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
  await enter()
  await show(`/tenant/builds/${buildId}`, 'Build 4f9d2c1e')
  const cancel = page.getByRole('button', { name: 'Cancel', exact: true })
  await cancel.click()
  await page.getByText('This stops the build and its VM now.').waitFor()
  expect(asked).toEqual([])
  await page.getByRole('button', { name: 'Cancel the build' }).click()
  await page.getByText('its owner ended it').waitFor()
  await cancel.waitFor({ state: 'detached' })
  expect(asked).toEqual([`Bearer ${apiKey}`])
})

test('goal: nothing of all that broke the policy or asked another host', () => {
  expect(opened.faults).toEqual([])
  expect(opened.strangers).toEqual([])
})

test('goal: a tenant reads the notice of maintenance on every page, its words as text, and none in operation', async () => {
  await enter()
  await page.goto(`${own.url}/tenant`)
  await page.locator('main h1').first().waitFor()
  expect(await page.locator('.maintenance').count()).toBe(0)
  const maintenance = { since: '2026-11-30T12:00:00.000Z', until: null, message: '<b>a disk</b>' }
  own.answer('GET /api/tenant', () => Response.json({ instances: null, inference: null, builds: null, maintenance }))
  await page.goto(`${own.url}/tenant/builds`)
  await page.getByText('This appliance is in maintenance and accepts no new instances and builds').waitFor()
  await page.getByText('Message of the operator: <b>a disk</b>').waitFor()
})
