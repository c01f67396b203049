// Goal: hosts of a fleet are seen and taken out at the page as by `strongroom fleet`, and a single host has none of it.

import { afterAll, expect, test } from 'bun:test'
import { FLEET_HOSTS, fleetHost, SESSION } from '../../../scripts/rigs/console/documents.ts'
import {
  document,
  refusalResponse,
  type ScriptedConsole,
  scriptedConsole,
} from '../../../scripts/rigs/console/scripted-console.ts'
import { disagreements, faultsOf } from '../../../src/console/web/operator/fleet/hosts.ts'
import { SessionDocument } from '../../../src/contract/admin/console.ts'
import { FleetHost, FleetHosts } from '../../../src/contract/admin/fleet.ts'
import { openPage } from '../../rigs/console/browser.ts'

const hosts = '/api/operator/fleet/hosts'
const first = await scriptedConsole()
const opened = await openPage(first.url)
const { page } = opened
afterAll(async () => {
  await opened[Symbol.asyncDispose]()
  await first[Symbol.asyncDispose]()
})

async function show(path: string, title: string, to: ScriptedConsole = first): Promise<void> {
  await page.goto(to.url + path)
  await page.getByRole('heading', { level: 1, name: title, exact: true }).waitFor()
}

test('the list', async () => {
  // Goal: each host shows its state and what is wrong with it, and the hosts together in what they differ.
  await show('/', 'Overview')
  await page.getByRole('link', { name: 'all hosts of the fleet' }).click()
  await page.getByRole('heading', { level: 1, name: 'Fleet' }).waitFor()
  await page.getByText('strongroom fleet list', { exact: true }).waitFor()
  await page.getByText('0.1.0: rack-1, rack-4; 0.0.9: rack-2').waitFor()
  const rows = await page.getByRole('region', { name: 'Hosts' }).getByRole('row').allTextContents()
  expect(rows).toHaveLength(5)
  expect(rows[1]).toContain('rack-1 this hostserving1214')
  expect(rows[2]).toContain('draining00')
  expect(rows[3]).toContain('has no lease; its VMs may go on')
  expect(rows[4]).toContain('its clock is 4 seconds ahead')
})

test('goal: a host that is well has no fault, nor have hosts that agree', () => {
  expect(faultsOf(fleetHost('a'))).toEqual([])
  expect(faultsOf(fleetHost('a', { state: 'draining', lacking: 'it drains' }))).toEqual([])
  expect(faultsOf(fleetHost('a', { clock_ahead_ms: -3_000 }))).toEqual(["its clock is 3 seconds behind the database's"])
  expect(disagreements([fleetHost('a'), fleetHost('b'), fleetHost('c', { state: 'silent', version: '9' })])).toEqual([])
  const apart = disagreements([fleetHost('a'), fleetHost('b', { domain: 'other.example' })])
  expect(apart.map(({ what }) => what)).toEqual(['fleet domains'])
})

test('drain and remove', async () => {
  // Goal: a host drains and comes back by the words of the command line; a refusal stands in the dialog.
  await using own = await scriptedConsole()
  await show('/fleet/rack-1', 'rack-1', own)
  const drain = page.getByRole('button', { name: 'Drain', exact: true })
  await drain.waitFor()
  expect(await page.getByRole('button', { name: /^(Undrain|Remove|Forget)$/ }).count()).toBe(0)
  await drain.click()
  const dialog = page.getByRole('dialog')
  await dialog.getByText('strongroom fleet drain rack-1', { exact: true }).waitFor()
  expect(own.changes).toEqual([])
  const drained = fleetHost('rack-1', { state: 'draining', draining_since: '2026-11-26T12:00:00.000Z', instances: 0 })
  own.answer(`POST ${hosts}/rack-1/drain`, () => document(FleetHost, drained))
  own.answer(`GET ${hosts}/rack-1`, () => document(FleetHost, drained))
  await dialog.getByRole('button', { name: 'Drain', exact: true }).click()
  await page.getByRole('button', { name: 'Undrain' }).waitFor()
  expect(own.changes).toEqual([{ method: 'POST', path: `${hosts}/rack-1/drain`, body: null }])

  const message = 'rack-1 has 1 instances: delete them, or wait until their owners have'
  own.answer(`POST ${hosts}/rack-1/remove`, () => refusalResponse(409, 'conflict', message))
  await page.getByRole('button', { name: 'Remove' }).click()
  await dialog.getByText('strongroom fleet remove rack-1', { exact: true }).waitFor()
  await dialog.getByRole('button', { name: 'Remove', exact: true }).click()
  await dialog.getByRole('alert').getByText(message).waitFor()
  own.answer(`POST ${hosts}/rack-1/remove`, () => document(FleetHost, drained))
  own.answer(`GET ${hosts}`, () => document(FleetHosts, { hosts: FLEET_HOSTS.slice(1) }))
  await dialog.getByRole('button', { name: 'Remove', exact: true }).click()
  await page.getByRole('heading', { level: 1, name: 'Fleet' }).waitFor()
  await page.getByText('3 hosts').waitFor()
})

test('forget', async () => {
  // Goal: a host whose instances would fail goes only after its name was typed.
  await using own = await scriptedConsole()
  const [, , silent] = FLEET_HOSTS
  own.answer(`POST ${hosts}/rack-3/forget`, () => document(FleetHost, silent))
  await show('/fleet/rack-3', 'rack-3', own)
  await page.getByRole('button', { name: 'Forget' }).click()
  const forget = page.getByRole('button', { name: 'Forget permanently' })
  await page.getByText('strongroom fleet forget rack-3', { exact: true }).waitFor()
  await page.getByText('Its 5 instances fail with host_lost').waitFor()
  expect(await forget.isDisabled()).toBe(true)
  await page.getByRole('textbox', { name: 'Type rack-3 to confirm' }).fill('rack-3')
  await forget.click()
  await page.getByRole('heading', { level: 1, name: 'Fleet' }).waitFor()
  expect(own.changes).toEqual([{ method: 'POST', path: `${hosts}/rack-3/forget`, body: null }])
})

test('roles and single hosts', async () => {
  // Goal: nobody sees a button that the interface would refuse, and a host by itself has no page of a fleet.
  await using own = await scriptedConsole()
  own.answer('GET /api/session', () => document(SessionDocument, { ...SESSION, role: 'operator' }))
  await show('/fleet/rack-3', 'rack-3', own)
  await page.getByRole('button', { name: 'Drain', exact: true }).waitFor()
  expect(await page.getByRole('button', { name: 'Forget' }).count()).toBe(0)
  own.answer('GET /api/session', () => document(SessionDocument, { ...SESSION, fleet: false }))
  await show('/fleet', 'Page not found', own)
  expect(await page.getByRole('link', { name: 'Fleet' }).count()).toBe(0)
})

test('goal: nothing of all that broke the policy or asked another host', () => {
  expect(opened.faults).toEqual([])
  expect(opened.strangers).toEqual([])
})
