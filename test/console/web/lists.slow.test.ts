// Goal: lists are whole on every screen, failed instances say why and are deleted together, and a search finds what an
// operator looks for without sending a secret.

import { afterAll, expect, test } from 'bun:test'
import { hostileText, instance } from '../../../scripts/rigs/console/documents.ts'
import { document, refusalResponse, scriptedConsole } from '../../../scripts/rigs/console/scripted-console.ts'
import { INSTANCE_USAGE, SEARCH } from '../../../scripts/rigs/console/views.ts'
import { AdminInstance, AdminInstanceList } from '../../../src/contract/admin/admin.ts'
import { AdminInstanceUsage } from '../../../src/contract/admin/views/instance-usage.ts'
import { AdminSearch } from '../../../src/contract/admin/views/search.ts'
import { desk, openPage, phone, tablet } from '../../rigs/console/browser.ts'

const operator = '/api/operator'
const scripted = await scriptedConsole()
const opened = await openPage(scripted.url)
const { page } = opened
page.setDefaultTimeout(20_000)
afterAll(async () => {
  await opened[Symbol.asyncDispose]()
  await scripted[Symbol.asyncDispose]()
})

async function show(path: string, title: string, to = scripted): Promise<void> {
  await page.goto(to.url + path)
  await page.getByRole('heading', { level: 1, name: title, exact: true }).waitFor()
}

const drawn = () => page.locator('.long-table tbody tr:not(.spacer)').count()

/** Pixels between the height of a drawn row and the height by which the positions of all rows are computed. */
const rowGap = () =>
  page.evaluate<number>(`(row => Math.abs(row.getBoundingClientRect().height - parseFloat(row.style.height)))(
    document.querySelector('.long-table tbody tr:not(.spacer)'))`)

/** Share of an element's width that its scroll areas and the screen show. */
const shownShare = (label: string) =>
  page.evaluate<number>(`(element => {
    const { left, right, width } = element.getBoundingClientRect()
    const area = element.closest('section').getBoundingClientRect()
    const shown = Math.min(right, area.right, innerWidth) - Math.max(left, area.left, 0)
    return shown / width
  })(document.querySelector('[aria-label="${label}"]'))`)

const SIZES = [
  ['phone', phone],
  ['tablet', tablet],
  ['desk', desk],
] as const

test.each(SIZES)('goal: no column vanishes and no button of a row is cut off: %s', async (_name, size) => {
  await page.setViewportSize(size)
  await show('/organizations/acme', 'acme')
  await page.getByRole('button', { name: 'Revoke gw_g4t3w4yk' }).waitFor()
  for (const label of ['Revoke ca_k3v9x2ab', 'Change gw_g4t3w4yk', 'Revoke gw_g4t3w4yk'])
    expect([label, await shownShare(label)]).toEqual([label, 1])
  const names = ['Key', 'State', 'Models', 'Tokens this month', 'Cost', 'Last used', 'Actions']
  const cells = page.locator('[aria-label="Gateway keys"] td')
  expect(await cells.evaluateAll(found => found.map(cell => cell.getAttribute('data-label')))).toEqual(names)
  for (const cell of await cells.all()) expect(await cell.isVisible()).toBe(true)
})

test('goal: filters stand in one row on a desktop and on a tablet', async () => {
  for (const size of [desk, tablet]) {
    await page.setViewportSize(size)
    await show('/instances', 'Instances')
    const tops = await page
      .locator('.filters label')
      .evaluateAll(labels => labels.map(label => label.getBoundingClientRect().top))
    expect(tops).toHaveLength(3)
    expect(new Set(tops).size).toBe(1)
  }
})

test('goal: ten thousand instances scroll to the last one with few rows drawn, as rows and as cards', async () => {
  await using own = await scriptedConsole()
  const count = 10_000
  const rows = [...Array(count).keys()].map(number => instance(number, { failure_message: hostileText }))
  own.answer(`GET ${operator}/instances`, () => document(AdminInstanceList, { instances: rows, more: true }))
  for (const size of [desk, phone]) {
    await page.setViewportSize(size)
    await show('/instances', 'Instances', own)
    await page.getByText('10,000 instances', { exact: true }).waitFor()
    await page.getByText('The list shows the newest 10,000 instances.').waitFor()
    expect(await drawn()).toBeLessThan(60)
    // The list is newest first, so its end is the first instance.
    for (const [share, name] of [
      [0.5, rows[4_998]?.name],
      [1, rows[0]?.name],
    ] as const) {
      await page.evaluate(
        `(area => { area.scrollTop = area.scrollHeight * ${share} })(document.querySelector('.long-table'))`,
      )
      await page.getByText(`acme/${name}`, { exact: true }).waitFor()
      expect(await drawn()).toBeLessThan(60)
      expect(await rowGap()).toBeLessThan(1)
    }
  }
  await page.setViewportSize(desk)
})

test('goal: failed instances show why as text, and are deleted together by id, those of the dialog alone', async () => {
  await using own = await scriptedConsole()
  const failed = (number: number) =>
    instance(number, { status: 'failed', vm: null, failure_code: 'boot_timeout', failure_message: hostileText })
  const all = [instance(1), failed(2), failed(3), failed(4)]
  const gone = new Set<string>()
  let isRefused = true
  own.answer(`GET ${operator}/instances`, () =>
    document(AdminInstanceList, { instances: all.filter(({ id }) => !gone.has(id)), more: false }),
  )
  own.answer(`DELETE ${operator}/instance`, (_request, url) => {
    const ref = url.searchParams.get('ref') ?? ''
    if (ref === 'id-3') return refusalResponse(404, 'not_found', 'there is no instance id-3')
    if (ref === 'id-4' && isRefused) return refusalResponse(503, 'unavailable', 'the directory is unreachable')
    gone.add(ref)
    return document(AdminInstance, { ...failed(2), status: 'terminating' })
  })
  await show('/instances', 'Instances', own)
  await page.getByText('boot_timeout: <img src=x').first().waitFor()
  expect(await page.locator('main img, main script').count()).toBe(0)
  expect(await page.content()).not.toContain('\u202e')
  await page.getByRole('button', { name: 'Delete 3 failed instances' }).click()
  expect(own.changes).toEqual([])
  // Fails after the dialog was opened, so it is not deleted.
  all.push(failed(5))
  await own.tell('instances')
  await page.getByRole('button', { name: 'Delete 4 failed instances' }).waitFor()
  const confirm = page.getByRole('dialog').getByRole('button', { name: 'Delete 3 failed instances' })
  await confirm.click()
  await page.getByRole('alert').getByText('the directory is unreachable').waitFor()
  // The second attempt continues after those that are gone.
  isRefused = false
  await confirm.click()
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  await page.getByRole('button', { name: 'Delete 2 failed instances' }).waitFor()
  expect(own.changes.map(({ method, path }) => `${method} ${path}`)).toEqual(
    ['id-2', 'id-3', 'id-4', 'id-4'].map(id => `DELETE ${operator}/instance?ref=${id}`),
  )
})

test('goal: a dialog that is closed ends the deletion', async () => {
  await using own = await scriptedConsole()
  const rows = [1, 2, 3].map(number => instance(number, { status: 'failed', vm: null, failure_code: 'internal' }))
  own.answer(`GET ${operator}/instances`, () => document(AdminInstanceList, { instances: rows, more: false }))
  const { promise, resolve } = Promise.withResolvers<Response>()
  own.answer(`DELETE ${operator}/instance`, () => promise)
  await show('/instances', 'Instances', own)
  await page.getByRole('button', { name: 'Delete 3 failed instances' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Delete 3 failed instances' }).click()
  await page.getByText('Deleted 0 of 3 …').waitFor()
  await page.getByRole('button', { name: 'Close' }).click()
  await page.getByRole('dialog').waitFor({ state: 'detached' })
  resolve(document(AdminInstance, { ...instance(1), status: 'terminating' }))
  // A request of the page after the answer: the deletion would have continued before it.
  await page.getByRole('link', { name: 'Organizations' }).click()
  await page.getByRole('heading', { level: 1, name: 'Organizations' }).waitFor()
  await page.getByRole('link', { name: 'acme', exact: true }).waitFor()
  expect(own.changes).toHaveLength(1)
})

test('goal: a search links to what it found, shows markup as text, and never sends the secret of a key', async () => {
  await using own = await scriptedConsole()
  const asked: string[] = []
  own.answer(`GET ${operator}/search`, (_request, url) => {
    asked.push(url.searchParams.get('q') ?? '')
    return document(AdminSearch, SEARCH)
  })
  await show('/search', 'Search', own)
  await page.getByRole('searchbox', { name: 'Search for' }).fill('ca_k3v9x2ab_0123456789abcdefgh')
  await page.getByText('4 results', { exact: true }).waitFor()
  expect(asked).toEqual(['ca_k3v9x2ab'])
  expect(page.url()).toBe(`${own.url}/search?q=ca_k3v9x2ab`)
  expect(await page.locator('main img, main script').count()).toBe(0)
  const links = await page.locator('.hits a').evaluateAll(all => all.map(link => link.getAttribute('href')))
  expect(links).toEqual([
    '/organizations/acme',
    '/instances/acme/aaaaaaa1',
    '/organizations/acme',
    `/builds/${SEARCH.builds[0]?.id}`,
  ])
})

test('goal: charts show CPU, memory and egress of the last hour, and say why there are none', async () => {
  await using own = await scriptedConsole()
  await show('/instances/acme/aaaaaaa1', 'acme/aaaaaaa1', own)
  await page.getByText('1.15 of 2 vCPUs').waitFor()
  await page.getByText('1.1 GiB of 4.0 GiB').waitFor()
  await page.getByText('25.6 KiB/s').waitFor()
  own.answer(`GET ${operator}/instance/usage`, () => document(AdminInstanceUsage, { ...INSTANCE_USAGE, points: [] }))
  await page.reload()
  await page.getByText('No samples yet').waitFor()
})

test('goal: a chart that cannot be loaded says so, and the page stays whole', async () => {
  await using own = await scriptedConsole()
  const parts = /\/assets\/part-/
  await page.route(parts, route => route.abort())
  await show('/instances/acme/aaaaaaa1', 'acme/aaaaaaa1', own)
  await page.getByText('The chart could not be loaded. Reload the page.').nth(2).waitFor()
  await page.getByText('1.15 of 2 vCPUs').waitFor()
  await page.unroute(parts)
})

test('goal: nothing of all that broke the policy or asked another host', () => {
  expect(opened.faults).toEqual([])
  expect(opened.strangers).toEqual([])
})
