// Goal: each page of the console is usable by keyboard, by a screen reader, on a phone, in light and in dark.

import { afterAll, describe, expect, test } from 'bun:test'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { build } from '../../../scripts/rigs/console/documents.ts'
import { scriptedConsole } from '../../../scripts/rigs/console/scripted-console.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { accessFaults, desk, openPage, phone } from '../../rigs/console/browser.ts'
import { apiKey, buildId, gatewayKey, serveTenant } from '../../rigs/console/tenant-services.ts'
import { sampleInstance } from '../../rigs/instances/instance-attestation.ts'

const console_ = await scriptedConsole()
const tenant = await serveTenant(console_)
const opened = await openPage(console_.url)
const { page } = opened
afterAll(async () => {
  await opened[Symbol.asyncDispose]()
  await tenant[Symbol.asyncDispose]()
  await console_[Symbol.asyncDispose]()
})

const OPERATOR = [
  ['/', 'Overview'],
  ['/organizations', 'Organizations'],
  ['/search?q=acme', 'Search'],
  ['/organizations/acme', 'acme'],
  ['/instances', 'Instances'],
  ['/instances/acme/aaaaaaa1', 'acme/aaaaaaa1'],
  ['/gateway', 'Gateway'],
  ['/builds', 'Builds'],
  [`/builds/${build(2).id}`, 'Build 4f9d2c1e'],
  ['/fleet', 'Fleet'],
  ['/fleet/rack-3', 'rack-3'],
  ['/events', 'Events'],
  ['/log', 'Log'],
  ['/doctor', 'Doctor'],
  ['/account', 'Account'],
  ['/nothing/here', 'Page not found'],
] as const

const TENANT = [
  ['/tenant', 'Instances'],
  [`/tenant/instances/${sampleInstance.name}`, sampleInstance.name],
  ['/tenant/models', 'Models and usage'],
  ['/tenant/builds', 'Builds'],
  [`/tenant/builds/${buildId}`, 'Build 4f9d2c1e'],
] as const

/** Colours do not depend on the size of the screen, nor the layout on the colours: each has its turn. */
const LOOKS = [
  ['light', desk, 0],
  ['dark', phone, 1],
  ...(runsAll
    ? ([
        ['dark', desk, 0],
        ['light', phone, 1],
      ] as const)
    : []),
] as const

/** All pages have one style sheet, so by default half of them have one look, and half the other. */
function pagesOf<Row>(rows: readonly Row[], half: number): readonly Row[] {
  return runsAll ? rows : rows.filter((_, at) => at % 2 === half)
}

/** The page with its documents, and nothing that still loads. */
async function show(path: string, title: string): Promise<void> {
  await page.goto(console_.url + path)
  await page.getByRole('heading', { level: 1, name: title, exact: true }).waitFor()
  // A condition that Playwright polls for is evaluated as text in the page, which the page's policy refuses.
  await until('nothing loads', 60_000, () => page.evaluate<boolean>(`document.querySelector('.waiting') === null`))
}

describe.each(LOOKS)('%s, %o', (colorScheme, size, half) => {
  test.each(pagesOf(OPERATOR, half))(
    'goal: no violation on %s, and nothing wider than the screen',
    async (path, title) => {
      await page.emulateMedia({ colorScheme })
      await page.setViewportSize(size)
      await show(path, title)
      expect(await accessFaults(page)).toEqual([])
      expect(await page.evaluate<number>('document.documentElement.scrollWidth')).toBeLessThanOrEqual(size.width)
    },
  )

  test.each(pagesOf(TENANT, half))(
    'goal: no violation on %s, and nothing wider than the screen',
    async (path, title) => {
      await page.emulateMedia({ colorScheme })
      await page.setViewportSize(size)
      await page.goto(`${console_.url}/tenant`)
      await page.evaluate(
        `sessionStorage.setItem('strongroom-keys', '${JSON.stringify({ ca: apiKey, gw: gatewayKey })}')`,
      )
      await show(path, title)
      expect(await accessFaults(page)).toEqual([])
      expect(await page.evaluate<number>('document.documentElement.scrollWidth')).toBeLessThanOrEqual(size.width)
    },
  )

  test('goal: no violation where nobody is logged in, and in a dialog', async () => {
    await page.emulateMedia({ colorScheme })
    await page.setViewportSize(size)
    await show('/organizations/acme', 'acme')
    await page.getByRole('button', { name: 'New gateway key' }).click()
    await page.getByRole('dialog').waitFor()
    expect(await accessFaults(page)).toEqual([])
    await page.evaluate('sessionStorage.clear()')
    await show('/tenant', 'Your instances, models and builds')
    expect(await accessFaults(page)).toEqual([])
  })
})

test('goal: by keyboard alone one gets from the page to another one, into a dialog and back', async () => {
  await page.setViewportSize(desk)
  await show('/organizations', 'Organizations')
  await page.keyboard.press('Tab')
  expect(await page.evaluate<string>('document.activeElement.textContent')).toBe('Skip to content')
  await page.getByRole('link', { name: 'Instances' }).focus()
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { level: 1, name: 'Instances' }).waitFor()
  // A screen reader goes on at the new page's heading.
  await until('the heading has it', 60_000, () => page.evaluate<boolean>(`document.activeElement.tagName === 'H1'`))
  await show('/organizations', 'Organizations')
  const button = page.getByRole('button', { name: 'New organization' })
  await button.focus()
  await page.keyboard.press('Enter')
  await page.getByRole('dialog').waitFor()
  await page.keyboard.press('Escape')
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  const focused = () => page.evaluate<string>('document.activeElement.textContent')
  await until('the button has it again', 60_000, async () => (await focused()) === 'New organization')
})

test('goal: who asks for less motion gets no turning wheel', async () => {
  await page.emulateMedia({ reducedMotion: 'reduce' })
  await show('/', 'Overview')
  const timing = await page.evaluate<string>(`(() => {
    const wheel = document.createElement('span')
    wheel.className = 'spinner'
    document.body.append(wheel)
    return getComputedStyle(wheel).animationTimingFunction
  })()`)
  expect(timing).toBe('steps(8)')
})

test('goal: nothing of all that broke the policy or asked another host', () => {
  expect(opened.faults).toEqual([])
  expect(opened.strangers).toEqual([])
})
