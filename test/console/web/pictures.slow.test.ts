// Goal: pages look as they did when somebody last looked at them: a broken layout or colour shows, though every word is
// there.

import { afterAll, expect, test } from 'bun:test'
import type { Page } from 'playwright-core'
import { nowMs } from '../../../scripts/rigs/console/documents.ts'
import { scriptedConsole } from '../../../scripts/rigs/console/scripted-console.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { desk, openPage, phone, tablet } from '../../rigs/console/browser.ts'
import { fixedFonts } from '../../rigs/console/fonts.ts'
import { expectPicture } from '../../rigs/console/pictures.ts'
import { apiKey, gatewayKey, serveTenant } from '../../rigs/console/tenant-services.ts'
import { sampleInstance } from '../../rigs/instances/instance-attestation.ts'

const scripted = await scriptedConsole()
const tenant = await serveTenant(scripted)
const opened = await openPage(scripted.url, fixedFonts)
const { page } = opened
await page.clock.setFixedTime(nowMs)
/** Evidence is of now. */
const openedNow = await openPage(scripted.url, fixedFonts)
afterAll(async () => {
  await opened[Symbol.asyncDispose]()
  await openedNow[Symbol.asyncDispose]()
  await tenant[Symbol.asyncDispose]()
  await scripted[Symbol.asyncDispose]()
})

/** The last text to come, and the name of the table that the picture is about, if it is not at the top. */
const SCREENS = [
  ['overview', '/', 'agents.example, version 0.1.0', null],
  ['instances', '/instances', '4 instances', null],
  ['instance', '/instances/acme/aaaaaaa1', 'agent started', null],
  ['gateway', '/gateway', /^130 ms median/, null],
  ['keys', '/organizations/acme', /^Total: 903 requests/, 'Gateway keys'],
] as const

const LOOKS = [
  ['desk-light', 'light', desk],
  ['tablet-light', 'light', tablet],
  ['phone-dark', 'dark', phone],
] as const

async function lookAs(of: Page, colorScheme: 'light' | 'dark', size: { width: number; height: number }): Promise<void> {
  await of.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
  await of.setViewportSize(size)
}

/** Charts draw what has come until then. */
async function picture(of: Page): Promise<Uint8Array> {
  return await of.screenshot({ animations: 'disabled', mask: [of.locator('.chart')], maskColor: '#808080' })
}

const PICTURES = SCREENS.flatMap(([name, ...screen]) =>
  LOOKS.map(([look, ...how]) => [name, look, ...screen, ...how] as const),
)

test.each(PICTURES)('goal: %s, %s', async (name, look, path, last, table, colorScheme, size) => {
  await lookAs(page, colorScheme, size)
  await page.goto(scripted.url + path)
  await page.getByText(last).first().waitFor()
  await page.locator('.live.live').waitFor()
  await until('nothing loads', 60_000, () => page.evaluate<boolean>(`document.querySelector('.waiting') === null`))
  if (table !== null)
    await page.evaluate(
      `document.querySelector('.table-scroll[aria-label="${table}"]').scrollIntoView({ block: 'center', behavior: 'instant' })`,
    )
  expectPicture(`${name}-${look}`, await picture(page))
})

test.each(LOOKS)("goal: a tenant's evidence, %s", async (look, colorScheme, size) => {
  const { page: own } = openedNow
  await lookAs(own, colorScheme, size)
  await own.goto(`${scripted.url}/tenant`)
  await own.evaluate(`sessionStorage.setItem('strongroom-keys', '${JSON.stringify({ ca: apiKey, gw: gatewayKey })}')`)
  await own.goto(`${scripted.url}/tenant/instances/${sampleInstance.name}`)
  await own.getByRole('button', { name: 'Download evidence' }).click()
  await own.getByText(/ is saved\. /).waitFor()
  await own.evaluate(
    `document.querySelectorAll('[role=status] .command code').forEach(part => part.textContent = 'another each time')`,
  )
  await own.evaluate(`document.querySelector('[role=status]').scrollIntoView({ block: 'center', behavior: 'instant' })`)
  expectPicture(`evidence-${look}`, await picture(own))
})

test('goal: nothing of all that broke the policy', () => {
  expect([...opened.faults, ...openedNow.faults]).toEqual([])
})
