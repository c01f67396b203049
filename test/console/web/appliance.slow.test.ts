// Goal: the page and the console fit together: by a link and by a passkey a person gets in, and changes what the real
// interface lets them change, under their name in the record of commands.

import { afterAll, expect, test } from 'bun:test'
import type { AdminCommand } from '../../../src/contract/admin/events.ts'
import { openPage } from '../../rigs/console/browser.ts'
import { linkToken, startConsole } from '../../rigs/console/console.ts'

const rig = await startConsole({ administrators: [{ uid: 1001, user: 'ada', role: 'admin' }] })
const opened = await openPage(rig.origin)
const { page } = opened
afterAll(async () => {
  await opened[Symbol.asyncDispose]()
  await rig[Symbol.asyncDispose]()
})

const heading = (name: string) => page.getByRole('heading', { level: 1, name, exact: true }).waitFor()
const button = (name: string) => page.getByRole('button', { name, exact: true })

async function commands(): Promise<string[]> {
  const response = await rig.asRoot('GET', '/events?limit=100')
  const { commands } = (await response.json()) as { commands: AdminCommand[] }
  return commands.filter(row => row.socket === 'console').map(row => `${row.actor} ${row.operation} ${row.result}`)
}

test('by a link', async () => {
  // Goal: the link logs in once, to the page that it names; used again it says so.
  await page.goto(`${rig.origin}/`)
  await heading('Sign in')
  const token = await linkToken(rig, { as: 'ada' })
  await page.goto('about:blank')
  await page.goto(`${rig.origin}/organizations#token=${token}`)
  await heading('Organizations')
  await page.locator('.live.live').waitFor()
  const [cookie] = await page.context().cookies()
  expect(cookie).toMatchObject({ name: '__Host-strongroom', httpOnly: true, secure: true, sameSite: 'Strict' })
  await page.goto('about:blank')
  await page.goto(`${rig.origin}/#token=${token}`)
  await page.getByText(/This link was used or has expired/).waitFor()
  await page.goto(`${rig.origin}/organizations`)
  await heading('Organizations')
})

test('changes', async () => {
  // Goal: create and revoke reach the ledger under the person's name; what the socket changes shows by itself.
  await button('New organization').click()
  await page.getByRole('textbox', { name: 'Slug' }).fill('globex')
  await button('Create').click()
  await heading('globex')
  await button('New API key').click()
  await button('Create').click()
  const key = (await page.locator('.secret code').textContent()) ?? ''
  expect(key).toMatch(/^ca_[a-z0-9]{8}_[a-z0-9]{18}$/)
  await button('Done').click()
  const [, prefix = ''] = key.split('_')
  await page.getByRole('button', { name: `Revoke ca_${prefix}` }).click()
  await button('Revoke permanently').click()
  await page.getByRole('cell', { name: 'revoked' }).waitFor()
  expect(await commands()).toEqual(
    expect.arrayContaining(['ada org.create ok', 'ada key.create ok', 'ada key.revoke ok']),
  )
  await page.getByText('active', { exact: true }).first().waitFor()
  await rig.asRoot('POST', '/organizations/globex/suspend')
  await page.getByText('suspended', { exact: true }).waitFor()
})

test('by a passkey', async () => {
  // Goal: a passkey made in a session logs in without a link; removed, it does not.
  const devtools = await page.context().newCDPSession(page)
  await devtools.send('WebAuthn.enable')
  await devtools.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      ...{ protocol: 'ctap2', transport: 'internal', automaticPresenceSimulation: true },
      ...{ hasResidentKey: true, hasUserVerification: true, isUserVerified: true },
    },
  })
  await page.goto(`${rig.origin}/account`)
  await heading('Account')
  await button('New passkey').click()
  await page.getByRole('textbox', { name: 'Name', exact: true }).fill('laptop')
  await button('Create').click()
  await page.getByRole('cell', { name: 'laptop', exact: true }).waitFor()
  await button('Sign out').click()
  await heading('Sign in')
  await button('Sign in with a passkey').click()
  await heading('Account')
  await page.getByText('a passkey', { exact: true }).waitFor()
  await button('Remove laptop').click()
  await button('Remove permanently').click()
  // Sessions that began by it end with it.
  await page.getByText('your session has ended').waitFor()
  await button('Sign in with a passkey').click()
  await page.getByRole('alert').last().waitFor()
  expect(await commands()).toEqual(
    expect.arrayContaining(['ada passkey.add ok', 'ada console.login ok', 'ada passkey.remove ok']),
  )
})

test('goal: nothing of all that broke the policy or asked another host', () => {
  expect(opened.faults).toEqual([])
  expect(opened.strangers).toEqual([])
})
