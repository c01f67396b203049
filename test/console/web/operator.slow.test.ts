// Goal: an operator does at the page what the command line does: the same requests, words and refusals, live.

import { afterAll, beforeEach, expect, test } from 'bun:test'
import {
  API_KEYS,
  at,
  BUSY_STATUS,
  build,
  hostileText,
  instance,
  organization,
  SESSION,
} from '../../../scripts/rigs/console/documents.ts'
import { PROBLEM_LIST } from '../../../scripts/rigs/console/problem-list.ts'
import {
  document,
  refusalResponse,
  type ScriptedConsole,
  scriptedConsole,
} from '../../../scripts/rigs/console/scripted-console.ts'
import { until } from '../../../scripts/rigs/until.ts'
import {
  AdminBuild,
  AdminInstance,
  AdminInstanceList,
  AdminKeyCreated,
  AdminKeyList,
  AdminOrganization,
  AdminStatus,
} from '../../../src/contract/admin/admin.ts'
import { SessionDocument } from '../../../src/contract/admin/console.ts'
import { NO_QUOTAS } from '../../../src/contract/admin/organizations/quotas.ts'
import { desk, openPage } from '../../rigs/console/browser.ts'

const operator = '/api/operator'
const first = await scriptedConsole()
const opened = await openPage(first.url)
const { page } = opened
afterAll(async () => {
  await opened[Symbol.asyncDispose]()
  await first[Symbol.asyncDispose]()
})
beforeEach(async () => await page.setViewportSize(desk))

async function show(path: string, title: string, to: ScriptedConsole = first): Promise<void> {
  await page.goto(to.url + path)
  await page.getByRole('heading', { level: 1, name: title, exact: true }).waitFor()
}

const commandIn = (text: string) => page.getByText(text, { exact: true }).first().waitFor()

test('an organization and a key', async () => {
  // Goal: fields reach the operator's interface, the command beside them does the same, and the key is shown once.
  await show('/organizations', 'Organizations')
  await page.getByRole('button', { name: 'New organization' }).click()
  await page.getByRole('textbox', { name: 'Slug' }).fill('globex')
  await commandIn('strongroom org create globex')
  first.answer(`POST ${operator}/organizations`, () => document(AdminOrganization, organization('globex'), 201))
  first.answer(`GET ${operator}/organizations/globex`, () => document(AdminOrganization, organization('globex')))
  await page.getByRole('button', { name: 'Create', exact: true }).click()
  await page.getByRole('heading', { level: 1, name: 'globex' }).waitFor()
  expect(first.changes.at(-1)).toEqual({ method: 'POST', path: `${operator}/organizations`, body: { slug: 'globex' } })

  await show('/organizations/acme', 'acme')
  const key = 'ca_newkey00_0123456789abcdefgh'
  first.answer(`POST ${operator}/organizations/acme/keys`, () =>
    document(
      AdminKeyCreated,
      { key, prefix: 'newkey00', name: 'ci', organization: 'acme', scope: 'read', created_at: at(0) },
      201,
    ),
  )
  await page.getByRole('button', { name: 'New API key' }).click()
  await page.getByRole('combobox', { name: 'Scope' }).selectOption('read')
  const create = page.getByRole('button', { name: 'Create', exact: true })
  await page.getByRole('textbox', { name: 'Name', exact: true }).fill('-rf')
  await page.getByText(/^The name of a key may hold letters/).waitFor()
  expect(await create.isDisabled()).toBe(true)
  await page.getByRole('textbox', { name: 'Name', exact: true }).fill('ci')
  await commandIn('strongroom key create acme --name ci --scope read')
  await page.getByRole('button', { name: 'Create', exact: true }).click()
  await page.getByText(key).waitFor()
  expect(first.changes.at(-1)?.body).toEqual({ scope: 'read', name: 'ci' })
  await page.getByRole('button', { name: 'Done' }).click()
  await page.getByText(key).waitFor({ state: 'detached' })
})

test('quotas of an organization', async () => {
  // Goal: only changed fields are sent, an emptied one as `default`, and the command beside them does the same.
  await using own = await scriptedConsole()
  const quotas = { ...NO_QUOTAS, instances: 5 }
  own.answer(`GET ${operator}/organizations/acme`, () => document(AdminOrganization, organization('acme', { quotas })))
  own.answer(`POST ${operator}/organizations/acme/quotas`, () => document(AdminOrganization, organization('acme')))
  await show('/organizations/acme', 'acme', own)
  await page.getByRole('button', { name: 'Change quotas' }).click()
  await page.getByRole('textbox', { name: 'Instances', exact: true }).fill('')
  await page.getByRole('textbox', { name: 'Memory in MiB' }).fill('16384')
  await commandIn('strongroom org quota acme --instances default --memory-mib 16384')
  await page.getByRole('button', { name: 'Set', exact: true }).click()
  await page.getByRole('textbox', { name: 'Memory in MiB' }).waitFor({ state: 'detached' })
  expect(own.changes.at(-1)?.body).toEqual({ instances: null, memory_mib: 16_384 })
})

test('keys that clients made', async () => {
  // Goal: a registration line reaches the operator's interface, a pasted key never does, and lists
  // mark minted keys.
  await using own = await scriptedConsole()
  own.answer(`GET ${operator}/organizations/acme/keys`, () =>
    document(AdminKeyList, { keys: API_KEYS.map(key => ({ ...key, name: 'ci' })).slice(0, 1) }),
  )
  await show('/organizations/acme', 'acme', own)
  await page.getByText('ci ca_k3v9x2ab_… created by its client').waitFor()
  await page.getByText('gw_g4t3w4yk_… created by the host').waitFor()
  const add = page.getByRole('button', { name: 'Add', exact: true })
  const field = page.getByRole('textbox', { name: 'Registration line' })
  await page.getByRole('button', { name: "Add a client's API key" }).click()
  await field.fill('ca_newkey00_0123456789abcdefgh')
  await page.getByText(/^this is a whole key, not its registration line/).waitFor()
  expect(await add.isDisabled()).toBe(true)
  const line = `_newkey00_sha256_${'5e'.repeat(32)}`
  await field.fill(`ca${line}`)
  await page.getByRole('combobox', { name: 'Scope' }).selectOption('read')
  await commandIn(`strongroom key add acme ca${line} --scope read`)
  own.answer(`POST ${operator}/organizations/acme/keys/add`, () => Response.json({}, { status: 201 }))
  await add.click()
  await field.waitFor({ state: 'detached' })
  await page.getByRole('button', { name: "Add a client's gateway key" }).click()
  await field.fill(`gw${line}`)
  await page.getByRole('textbox', { name: 'Concurrent requests' }).fill('3')
  await commandIn(`strongroom gateway key add acme gw${line} --concurrency 3`)
  own.answer(`POST ${operator}/organizations/acme/gateway-keys/add`, () => Response.json({}, { status: 201 }))
  await add.click()
  await field.waitFor({ state: 'detached' })
  expect(own.changes.map(({ path, body }) => [path, body])).toMatchObject([
    [`${operator}/organizations/acme/keys/add`, { registration: `ca${line}`, scope: 'read' }],
    [`${operator}/organizations/acme/gateway-keys/add`, { registration: `gw${line}`, concurrency_max: 3 }],
  ])
})

test('the end of a build', async () => {
  // Goal: a build that runs is cancelled after a question, the page then shows its failure, and it is over for good.
  await using own = await scriptedConsole()
  const running = build(1, { state: 'running', result: null })
  const ended = build(1, { state: 'cancelled', result: null, error_type: 'cancelled', error: 'the operator ended it' })
  own.answer(`GET ${operator}/builds/${running.id}`, () => document(AdminBuild, running))
  own.answer(`POST ${operator}/builds/${running.id}/cancel`, () => {
    own.answer(`GET ${operator}/builds/${running.id}`, () => document(AdminBuild, ended))
    return document(AdminBuild, ended)
  })
  const cancel = page.getByRole('button', { name: 'Cancel', exact: true })
  await show(`/builds/${running.id}`, `Build ${running.id.slice(0, 8)}`, own)
  await cancel.click()
  await commandIn(`strongroom builds cancel ${running.id}`)
  expect(own.changes).toEqual([])
  await page.getByRole('button', { name: 'Cancel the build' }).click()
  await page.getByText('the operator ended it').waitFor()
  await cancel.waitFor({ state: 'detached' })
  expect(own.changes).toEqual([{ method: 'POST', path: `${operator}/builds/${running.id}/cancel`, body: null }])
})

test('a refusal', async () => {
  // Goal: a refusal stands where the change was asked for, in the server's words, at the field at fault.
  await show('/organizations', 'Organizations')
  await page.getByRole('button', { name: 'New organization' }).click()
  const message = 'slug: is reserved for the appliance itself'
  first.answer(`POST ${operator}/organizations`, () => refusalResponse(400, 'invalid_request', message, 'slug'))
  await page.getByRole('textbox', { name: 'Slug' }).fill('admin')
  await page.getByRole('button', { name: 'Create', exact: true }).click()
  await page.getByRole('alert').getByText(message).waitFor()
  expect(await page.getByRole('textbox', { name: 'Slug' }).getAttribute('aria-invalid')).toBe('true')
})

test('live', async () => {
  // Goal: a change elsewhere shows by itself; a lost appliance is said so, and found again without a reload.
  await using own = await scriptedConsole()
  let status: 'provisioning' | 'ready' = 'provisioning'
  own.answer(`GET ${operator}/instance`, () => document(AdminInstance, instance(1, { status })))
  await show('/instances/acme/aaaaaaa1', 'acme/aaaaaaa1', own)
  await page.getByText('provisioning', { exact: true }).waitFor()
  status = 'ready'
  await own.tell('instances')
  await page.getByText('ready', { exact: true }).waitFor()
  own.live(false)
  await page.getByText(/^No answer from the appliance/).waitFor()
  own.live(true)
  await page.getByText(/^No answer from the appliance/).waitFor({ state: 'detached' })
  await page.locator('.live.live').waitFor()
})

test('a text that breaks off', async () => {
  // Goal: a console whose connection breaks is followed again by itself; one that was refused is not.
  await using own = await scriptedConsole()
  let asked = 0
  own.answer(`GET ${operator}/instance/console`, () => {
    asked += 1
    const [part, isLast] = [`part ${asked}\n`, asked > 2]
    const body = new ReadableStream<Uint8Array>({
      start: controller => controller.enqueue(Buffer.from(part)),
      pull: controller => (isLast ? controller.close() : controller.error()),
    })
    return new Response(body)
  })
  await show('/instances/acme/aaaaaaa1', 'acme/aaaaaaa1', own)
  await page.getByRole('log').getByText('part 3').waitFor()
  expect(await page.getByText(/connection lost/).count()).toBe(0)
  own.answer(`GET ${operator}/instance/console`, () => refusalResponse(409, 'conflict', 'this instance has no VM'))
  await page.reload()
  await page.getByRole('alert').getByText('this instance has no VM').waitFor()
  await page.getByRole('button', { name: 'Try again' }).waitFor()
})

test('a page behind others', async () => {
  // Goal: a page that nobody sees holds no connection: a browser has six to a host. Seen again it is of the present.
  await using own = await scriptedConsole()
  await show('/instances/acme/aaaaaaa1', 'acme/aaaaaaa1', own)
  await page.locator('.live.live').waitFor()
  const turn = (state: 'hidden' | 'visible') =>
    page.evaluate(`(() => {
      Object.defineProperty(document, 'hidden', { configurable: true, value: ${state === 'hidden'} })
      document.dispatchEvent(new Event('visibilitychange'))
    })()`)
  await turn('hidden')
  await until('its stream has ended', 15_000, () => own.streams() === 0)
  own.answer(`GET ${operator}/instance`, () => document(AdminInstance, instance(1, { status: 'terminating' })))
  await turn('visible')
  await page.locator('.live.live').waitFor()
  await own.tell('instances')
  await page.getByText('terminating', { exact: true }).waitFor()
})

test('a deletion', async () => {
  // Goal: an instance ends by its name alone, with a word before it, and the record shows what became of it.
  await using own = await scriptedConsole()
  own.answer(`DELETE ${operator}/instance`, () => document(AdminInstance, instance(1, { status: 'terminating' })))
  await show('/instances/acme/aaaaaaa1', 'acme/aaaaaaa1', own)
  await page.getByRole('button', { name: 'Delete', exact: true }).click()
  await commandIn('strongroom instance delete acme/aaaaaaa1')
  expect(own.changes).toEqual([])
  own.answer(`GET ${operator}/instance`, () => document(AdminInstance, instance(1, { status: 'terminating' })))
  await page.getByRole('button', { name: 'Delete permanently' }).click()
  await page.getByText('terminating', { exact: true }).waitFor()
  expect(own.changes).toEqual([{ method: 'DELETE', path: `${operator}/instance?ref=acme%2Faaaaaaa1`, body: null }])
  await page.getByRole('button', { name: 'Delete', exact: true }).waitFor({ state: 'detached' })
})

test('a thousand instances', async () => {
  // Goal: a thousand rows scroll with a few dozen in the document, to the very last one.
  await using own = await scriptedConsole()
  const rows = [...Array(1_000).keys()].map(number => instance(number))
  own.answer(`GET ${operator}/instances`, () => document(AdminInstanceList, { instances: rows, more: false }))
  await show('/instances', 'Instances', own)
  await page.getByText('1,000 instances').waitFor()
  const drawn = () => page.locator('.long-table tbody tr:not(.spacer)').count()
  expect(await drawn()).toBeLessThan(60)
  // As far as an end, and nothing blank in between.
  for (const share of [0.25, 0.5, 0.75, 1]) {
    await page.evaluate(
      `(area => { area.scrollTop = area.scrollHeight * ${share} })(document.querySelector('.long-table'))`,
    )
    const wanted = Math.min(999, Math.round(1_000 * share) + 3)
    const name = rows[999 - wanted]?.name ?? ''
    await page.getByText(`acme/${name}`, { exact: true }).waitFor()
    expect(await drawn()).toBeLessThan(60)
  }
})

test('hostile text', async () => {
  // Goal: markup and escapes that a guest prints are shown as text, and nothing of them runs or loads.
  await show('/instances/acme/aaaaaaa1', 'acme/aaaaaaa1')
  await page.getByRole('log').getByText('agent started').waitFor()
  const text = await page.getByRole('log').textContent()
  expect(text).toContain('<img src=x onerror=')
  expect(text).toContain('\\x1b[2J\\u202egnp.exe\\x00')
  expect(await page.locator('main img, main script').count()).toBe(0)
  expect(await page.content()).not.toContain('\u202e')
  expect(hostileText).toContain('\u202e')
})

test('roles', async () => {
  // Goal: an auditor sees no button that the interface would refuse.
  await using own = await scriptedConsole()
  own.answer('GET /api/session', () => document(SessionDocument, { ...SESSION, role: 'auditor' }))
  await show('/organizations/acme', 'acme', own)
  await page.getByText('ca_k3v9x2ab_…').waitFor()
  const names = ['Delete', 'Suspend', 'Change', 'New API key', 'New gateway key', /^Add a client/, /^Revoke/]
  for (const name of names) expect(await page.getByRole('button', { name }).count()).toBe(0)
  await show('/instances/acme/aaaaaaa1', 'acme/aaaaaaa1', own)
  expect(await page.getByRole('heading', { name: 'Console' }).count()).toBe(0)
})

test('problems', async () => {
  // Goal: the first page has each problem with its effect and remedy, and calls no such host good; without one it does.
  await show('/', 'Overview')
  const rows = page.getByRole('list', { name: 'Problems' }).getByRole('listitem')
  await rows.first().waitFor()
  const texts = await rows.allTextContents()
  expect(texts).toHaveLength(PROBLEM_LIST.length)
  for (const [at, { detail, affects, remedy }] of PROBLEM_LIST.entries()) {
    for (const part of [detail, `Affects ${affects}`, remedy]) expect(texts[at]).toContain(part)
  }
  expect(await page.getByText('No known problems').count()).toBe(0)
  const before = first.answer(`GET ${operator}/status`, () => document(AdminStatus, { ...BUSY_STATUS, problems: [] }))
  await show('/', 'Overview')
  await page.getByText('Ready. No known problems.').waitFor()
  if (before !== null) first.answer(`GET ${operator}/status`, before)
})

test('backups', async () => {
  // Goal: an overdue backup is among what needs somebody, with its remedy, and a card says when the last one was made.
  await show('/', 'Overview')
  const alert = page.getByRole('listitem').filter({ hasText: 'backup' })
  await alert.first().waitFor()
  expect(await alert.allTextContents()).toEqual([expect.stringContaining('journalctl --unit strongroom-backup')])
  const card = page.locator('.card').filter({ has: page.getByRole('heading', { name: 'Backups' }) })
  const text = await card.textContent()
  for (const part of ['old', 'strongroom-20261123T031500Z.age', '40.0 MiB', 'by the timer'])
    expect(text).toContain(part)
})

test('logging in', async () => {
  // Goal: a link's token is traded once and leaves the address; an ended session says so, and shows nothing of before.
  await using own = await scriptedConsole()
  const out = () => refusalResponse(401, 'unauthenticated', 'You are not signed in')
  own.answer('GET /api/session', out)
  await show('/events', 'Sign in', own)
  await commandIn('strongroom console open')
  own.answer('POST /api/session', () => document(SessionDocument, SESSION, 201))
  own.answer('GET /api/session', () => document(SessionDocument, SESSION))
  await page.goto('about:blank')
  await page.goto(`${own.url}/organizations#token=${'t'.repeat(43)}`)
  await page.getByRole('heading', { level: 1, name: 'Organizations' }).waitFor()
  await until('the secret has left the address', 60_000, () => page.url() === `${own.url}/organizations`)
  expect(own.changes).toEqual([{ method: 'POST', path: '/api/session', body: { token: 't'.repeat(43) } }])
  own.answer(`GET ${operator}/organizations`, out)
  await own.tell('organizations')
  await page.getByText('your session has ended').waitFor()
  await page.getByText('acme').waitFor({ state: 'detached' })
})

test('a link in the same tab', async () => {
  // Goal: a link that is put into the address of an open console, which changes the fragment alone, logs in, too.
  await using own = await scriptedConsole()
  own.answer('GET /api/session', () => refusalResponse(401, 'unauthenticated', 'You are not signed in'))
  await show('/', 'Sign in', own)
  own.answer('POST /api/session', () => document(SessionDocument, SESSION, 201))
  own.answer('GET /api/session', () => document(SessionDocument, SESSION))
  await page.goto(`${own.url}/#token=${'t'.repeat(43)}`)
  await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
  expect(page.url()).toBe(`${own.url}/`)
})

test('an ended session', async () => {
  // Goal: a page that only looks says that its session has ended, and not that the appliance is away.
  await using own = await scriptedConsole()
  await show('/account', 'Account', own)
  await page.locator('.live.live').waitFor()
  own.answer('GET /api/session', () => refusalResponse(401, 'unauthenticated', 'You are not signed in'))
  own.live(false)
  await page.getByText('your session has ended').waitFor()
  expect(await page.getByText(/^No answer from the appliance/).count()).toBe(0)
})

test('goal: nothing of all that broke the policy or asked another host', () => {
  expect(opened.faults).toEqual([])
  expect(opened.strangers).toEqual([])
})
