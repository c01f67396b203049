// The console end to end: Chromium, the page in the executable, a real appliance, an instance and a build in real VMs.

import { expect, test } from 'bun:test'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { type Appliance, builtImage, createAppliance, imageDir } from '../../../scripts/rigs/appliance.ts'
import { holdings, NOTHING } from '../../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import type { AdminCommand } from '../../../src/contract/admin/events.ts'
import { type OpenedPage, openPage } from '../../rigs/console/browser.ts'
import { checksOf } from '../../rigs/program.ts'

const timeoutMs = 1_500_000
const bootTimeoutMs = 420_000
const buildTimeoutMs = 600_000
const origin = 'https://127.0.0.1:8445'

/** A Cargo project without dependencies, packed. */
function packedProject(directory: string): string {
  const project = join(directory, 'hello')
  mkdirSync(join(project, 'src'), { recursive: true })
  writeFileSync(join(project, 'Cargo.toml'), '[package]\nname = "hello"\nversion = "0.1.0"\nedition = "2021"\n')
  writeFileSync(join(project, 'Cargo.lock'), 'version = 3\n\n[[package]]\nname = "hello"\nversion = "0.1.0"\n')
  writeFileSync(join(project, 'src/main.rs'), 'fn main() { println!("hello"); }\n')
  const { exitCode } = Bun.spawnSync(['tar', '-czf', `${project}.tar.gz`, '-C', directory, 'hello'])
  expect(exitCode).toBe(0)
  return `${project}.tar.gz`
}

async function createConsoleAppliance(): Promise<{
  appliance: Appliance
  images: { instance: string; builder: string }
}> {
  const images = { instance: await imageDir(), builder: await builtImage('builder') }
  const builds = `image_dir = ${JSON.stringify(images.builder)}\nmemory_mib = 2048\nscratch_gib = 4\nwarm = 0`
  const listen = 'builds = "127.0.0.1:8443"\nconsole = "127.0.0.1:8445"'
  return { appliance: await createAppliance(builds, 'builds', images.instance, '', { listen }), images }
}

/** Policies of a tenant who knows images and operator, by the names that the page gives them. */
async function writePolicies(appliance: Appliance, images: { instance: string; builder: string }): Promise<void> {
  const operator = ['--operator-key', join(appliance.stateDir, 'operator-key.pub.pem')]
  for (const [name, image] of [
    ['instance-policy.json', images.instance],
    ['build-policy.json', images.builder],
  ] as const) {
    const { stdout } = await appliance.cli('verify', 'policy-example', '--image', image, ...operator)
    writeFileSync(join(appliance.directory, name), stdout)
  }
}

const heading = (page: Page, name: string) => page.getByRole('heading', { level: 1, name, exact: true }).waitFor()
const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })

/** Logs in by a link of the command line, makes an organization and a key. Returns the key. */
async function asOperator({ page }: OpenedPage, appliance: Appliance): Promise<string> {
  const { url } = await appliance.admin<{ url: string }>('console', 'open')
  await page.goto(url.replace(/^https:\/\/[^/]+/, origin))
  await heading(page, 'Overview')
  await page.getByRole('link', { name: 'Organizations' }).click()
  await button(page, 'New organization').click()
  await page.getByRole('textbox', { name: 'Slug' }).fill('acme')
  await button(page, 'Create').click()
  await heading(page, 'acme')
  await button(page, 'New API key').click()
  await button(page, 'Create').click()
  const key = (await page.locator('.secret code').textContent()) ?? ''
  await button(page, 'Done').click()
  return key
}

async function asTenant({ page }: OpenedPage, key: string): Promise<void> {
  await page.goto(`${origin}/tenant`)
  await page.getByRole('textbox', { name: 'Key' }).fill(key)
  await page.getByRole('checkbox', { name: /Remember until/ }).check()
  await button(page, 'Continue').click()
  await heading(page, 'Instances')
}

interface Verdict {
  exitCode: number
  /** Names of the checks that failed. */
  failed: string[]
  /** A build's artifacts, by name. */
  artifacts: string[]
}

/** Saves what the page offers, and runs the command that it then shows. */
async function verdict(page: Page, appliance: Appliance, ...more: string[]): Promise<Verdict> {
  const downloaded = page.waitForEvent('download', { timeout: bootTimeoutMs })
  await page.getByRole('button', { name: 'Download evidence' }).click()
  const file = await downloaded
  const name = file.suggestedFilename()
  await file.saveAs(join(appliance.directory, name))
  const command = page.locator('[role=status] .command code')
  const line = ((await command.textContent()) ?? '').replace(' --gateway-policy gateway-policy.json', '')
  const words = line.split(' ').slice(1)
  const argv = words.map(word => (/^[\w-]+\.(json|tar\.gz)$/.test(word) ? join(appliance.directory, word) : word))
  const root = ['--trust-simulated-root', join(appliance.stateDir, 'simulator/root.pem')]
  const { exitCode, stdout } = await appliance.cli(...argv, ...root, ...more, '--json')
  const document = JSON.parse(stdout)
  const artifacts = (document.provenance?.artifacts ?? []).map(({ name }: { name: string }) => name)
  return { exitCode, failed: checksOf(document, 'FAIL'), artifacts }
}

/** Its gateway has no worker of its own, so that no measured VM of it runs. */
const noGatewayVm = ['--no-known-hosts', '--any-gateway', '--unattested-gateway', 'no-worker']

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'create, watch, verify, build, delete and revoke',
      async () => {
        // Goal: all that a person does at the console happens on a real appliance, by the page in the executable.
        const { appliance: made, images } = await createConsoleAppliance()
        await using appliance = made
        await appliance.start()
        await using operator = await openPage(origin)
        await using tenant = await openPage(origin)
        const key = await asOperator(operator, appliance)
        await asTenant(tenant, key)

        const [own, all] = [tenant.page, operator.page]
        await button(own, 'New instance').click()
        await own.getByRole('textbox', { name: 'Your SSH public key' }).fill(appliance.publicKey)
        await button(own, 'Create').click()
        await own.getByText('provisioning', { exact: true }).waitFor()
        const name = (await own.getByRole('heading', { level: 1 }).textContent()) ?? ''
        await all.goto(`${origin}/instances`)
        await all.getByRole('link', { name: `acme/${name}` }).click()
        await heading(all, `acme/${name}`)
        await own
          .getByText('ready', { exact: true })
          .waitFor({ timeout: bootTimeoutMs })
          .catch(error => {
            throw new Error(`not ready: ${appliance.log().split('\n').slice(-40).join('\n')}`, { cause: error })
          })
        // The operator's page has followed by itself.
        await all.getByText('ready', { exact: true }).waitFor()
        await all.getByRole('log').getByText('agent started').waitFor()
        await all.getByRole('meter', { name: 'Total' }).waitFor()
        // Two samples of the running QEMU.
        const summary = (text: RegExp) => all.locator('.chart-summary').filter({ hasText: text })
        await summary(/^[0-9.]+ of [0-9]+ vCPUs?$/).waitFor({ timeout: 180_000 })
        await summary(/^[0-9.]+ [MG]iB of [0-9.]+ [MG]iB$/).waitFor()
        await writePolicies(appliance, images)
        const passed = { exitCode: 0, failed: [], artifacts: [] }
        expect(await verdict(own, appliance, '--public-key', appliance.publicKey, ...noGatewayVm)).toEqual(passed)

        await own.getByRole('link', { name: 'Builds' }).click()
        await button(own, 'New build').click()
        await own.getByLabel(/Or an archive/).setInputFiles(packedProject(appliance.directory))
        await button(own, 'Submit').click()
        await own.getByRole('log').getByText('complete: ok').waitFor({ timeout: buildTimeoutMs })
        await all.goto(`${origin}/builds`)
        await all.locator('.long-table tbody a').first().click()
        await all.getByRole('log').getByText('complete: ok').waitFor()
        await all.goto(`${origin}/instances/acme/${name}`)
        await button(own, 'Download evidence').waitFor()
        expect(await verdict(own, appliance)).toEqual({ ...passed, artifacts: ['hello'] })

        await button(all, 'Delete').click()
        await button(all, 'Delete permanently').click()
        await all.getByText('terminated', { exact: true }).waitFor({ timeout: 60_000 })
        await all.goto(`${origin}/organizations/acme`)
        await button(all, `Revoke ${key.slice(0, 11)}`).click()
        await button(all, 'Revoke permanently').click()
        // The instance's own key for the gateway is in the table beside it, revoked with the instance.
        await all.getByRole('region', { name: 'API keys' }).getByRole('cell', { name: 'revoked' }).waitFor()
        await own.goto(`${origin}/tenant`)
        await own
          .getByRole('alert')
          .getByText(/Bearer token/)
          .first()
          .waitFor()

        const { commands } = await appliance.admin<{ commands: AdminCommand[] }>('events')
        const byConsole = commands
          .filter(({ socket }) => socket === 'console')
          .map(row => `${row.operation} ${row.result}`)
        expect(byConsole).toEqual(
          expect.arrayContaining(['org.create ok', 'key.create ok', 'instance.delete ok', 'key.revoke ok']),
        )
        expect([...operator.faults, ...tenant.faults, ...operator.strangers, ...tenant.strangers]).toEqual([])
        expect(appliance.log()).not.toContain(key.slice(12))
        expect(holdings(appliance.stateDir).taps).toEqual(NOTHING.taps)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
