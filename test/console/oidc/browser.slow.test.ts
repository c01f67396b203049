// Goal: in a real browser a person signs in at the identity provider and comes back to a session; the sign-in page
// shows passkeys and links beside it, and a link from outside with an answer in it does nothing. The provider is a
// scripted one on this machine, of another site than the console.

import { expect, setDefaultTimeout, test } from 'bun:test'
import { until } from '../../../scripts/rigs/until.ts'
import { accessFaults, openPage } from '../../rigs/console/browser.ts'
import { startConsole } from '../../rigs/console/console.ts'
import { startProvider } from '../../rigs/console/provider.ts'

setDefaultTimeout(180_000)

test('goal: the sign-in page leads to the provider and back into a session, which leaves no code in the address', async () => {
  await using provider = await startProvider({ contact: 'it@example.org' })
  await using rig = await startConsole({ settings: { oidc: provider.config } })
  await using opened = await openPage(rig.origin)
  const { page } = opened
  await page.goto(`${rig.origin}/instances`)
  const button = page.getByRole('button', { name: 'Sign in with Example ID' })
  await button.waitFor()
  expect(await page.getByRole('heading', { level: 2 }).allTextContents()).toEqual([
    'With Example ID',
    'With a passkey',
    'With a link',
  ])
  expect(await accessFaults(page)).toEqual([])

  provider.self.claims = { groups: ['staff'] }
  await button.click()
  await page.getByText('none of your groups has a role on this host. Ask it@example.org.').waitFor()
  expect(page.url()).toBe(`${rig.origin}/`)

  provider.self.claims = { groups: ['staff', 'room-auditors'] }
  await button.click()
  await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
  await until('the code has left the address', 60_000, () => page.url() === `${rig.origin}/`)
  expect(await page.evaluate('document.cookie')).toBe('')
  await page.goto(`${rig.origin}/account`)
  await page.getByText('get no passkeys, because a passkey would keep working').waitFor()

  // A link of an attacker, with an answer that belongs to another sign-in; the session stays.
  await page.goto(`${rig.origin}/oidc?code=a&state=b&iss=${encodeURIComponent(provider.issuer)}`)
  await page.getByText('This sign-in did not begin in this browser').waitFor()
  expect(page.url()).toBe(`${rig.origin}/`)
  await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
  await page.getByRole('button', { name: 'Close' }).click()
  await page.getByText('This sign-in did not begin in this browser').waitFor({ state: 'detached' })
  // A link that was used does not show the sign-in page either.
  await page.goto(`${rig.origin}/account#token=used`)
  await page.getByText('This link was used or has expired').waitFor()
  expect(page.url()).toBe(`${rig.origin}/account`)
  await page.getByText('oidc:f81d4fae').first().waitFor()
  expect(opened.faults).toEqual([])
})

test('goal: while the provider is down, the sign-in page says that a passkey or a link works', async () => {
  await using provider = await startProvider()
  await using rig = await startConsole({ settings: { oidc: provider.config } })
  await using opened = await openPage(rig.origin)
  const { page } = opened
  await provider.stop()
  await page.goto(rig.origin)
  await page.getByRole('button', { name: 'Sign in with Example ID' }).click()
  await page.getByText('Passkeys and links work without it.').waitFor()
  await page.getByText('strongroom console open').first().waitFor()
  await page.getByRole('heading', { name: 'With a passkey' }).waitFor()
})
