// Goal: each command that the page shows beside what it does is one that the command line takes, word for word.

import { afterAll, expect, test } from 'bun:test'
import { build } from '../../../scripts/rigs/console/documents.ts'
import { scriptedConsole } from '../../../scripts/rigs/console/scripted-console.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { openPage } from '../../rigs/console/browser.ts'
import { commandFault } from '../../rigs/console/command-line.ts'
import { apiKey, buildId, gatewayKey, serveTenant } from '../../rigs/console/tenant-services.ts'
import { sampleInstance } from '../../rigs/instances/instance-attestation.ts'

const own = await scriptedConsole()
const tenant = await serveTenant(own)
const opened = await openPage(own.url)
const { page } = opened
afterAll(async () => {
  await opened[Symbol.asyncDispose]()
  await tenant[Symbol.asyncDispose]()
  await own[Symbol.asyncDispose]()
})

const PAGES = [
  ['/', 'Overview'],
  ['/organizations', 'Organizations'],
  ['/organizations/acme', 'acme'],
  ['/instances?status=failed&organization=acme&name=k', 'Instances'],
  ['/instances/acme/aaaaaaa1', 'acme/aaaaaaa1'],
  ['/gateway', 'Gateway'],
  ['/builds?organization=acme', 'Builds'],
  [`/builds/${build(2).id}`, 'Build 4f9d2c1e'],
  ['/fleet', 'Fleet'],
  ['/fleet/rack-1', 'rack-1'],
  ['/fleet/rack-3', 'rack-3'],
  ['/events?since=7d&actor=ada', 'Events'],
  ['/log', 'Log'],
  ['/doctor', 'Doctor'],
  ['/account', 'Account'],
  ['/tenant', 'Instances'],
  ['/tenant/builds', 'Builds'],
  [`/tenant/instances/${sampleInstance.name}`, sampleInstance.name],
  ['/tenant/models', 'Models and usage'],
  [`/tenant/builds/${buildId}`, 'Build 4f9d2c1e'],
] as const

/** Buttons that open a dialog. */
const asking = /^(New|Change|Revoke|Delete|Suspend|Resume|Update|Raise|Cancel|Drain|Undrain|Forget|Remove|Confirm)\b/

/** The button after which a page shows the command for the file that it saved. */
const evidence = 'Download evidence'

const shown = async () => (await page.locator('.command code').allTextContents()).filter(isOurs)

function isOurs(text: string): boolean {
  return text.startsWith('strongroom ')
}

/** Commands of a page and of its dialogs. */
async function commandsOf(path: string, title: string): Promise<string[]> {
  await page.goto(own.url + path)
  await page.getByRole('heading', { level: 1, name: title, exact: true }).waitFor()
  await until('nothing loads', 15_000, () => page.evaluate<boolean>(`document.querySelector('.waiting') === null`))
  const dialog = page.getByRole('dialog')
  const found: string[] = []
  const buttons = await page.locator('main button:not(.copy)').all()
  const names = await Promise.all(
    buttons.map(async button => (await button.getAttribute('aria-label')) ?? (await button.textContent()) ?? ''),
  )
  for (const name of new Set(names.filter(name => asking.test(name)))) {
    await page.getByRole('button', { name, exact: true }).first().click()
    await dialog.waitFor()
    found.push(...(await shown()))
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'detached' })
  }
  if (names.includes(evidence)) {
    await page.getByRole('button', { name: evidence, exact: true }).click()
    await page.getByText(/ is saved\. /).waitFor()
  }
  return [...found, ...(await shown())]
}

test('goal: each command of a page and of its dialogs is taken by the command line', async () => {
  await page.goto(`${own.url}/tenant`)
  await page.evaluate(`sessionStorage.setItem('strongroom-keys', '${JSON.stringify({ ca: apiKey, gw: gatewayKey })}')`)
  const all = new Set<string>()
  for (const [path, title] of PAGES) for (const command of await commandsOf(path, title)) all.add(command)
  expect([...all].flatMap(command => commandFault(command) ?? [])).toEqual([])
  expect(all.size).toBeGreaterThan(35)
})

test('goal: a command that the command line would not take is found', () => {
  expect(commandFault('strongroom org create acme --force')).toContain('--force')
  expect(commandFault('strongroom instance egress raise a/b --to 1.5GiB')).toContain('1.5GiB')
  expect(commandFault(`strongroom gateway key set k3v9x2ab --alias 'a=b c'`)).toBeNull()
  expect(commandFault('curl https://a')).toContain('not a command')
})
