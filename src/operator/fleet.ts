// The fleet in the admin interface: its hosts, drain, remove, forget. Effects: the directory's.

import { Elysia } from 'elysia'
import { Fault } from '../base/fault.ts'
import { FleetHost, FleetHosts } from '../contract/admin/fleet.ts'
import type { FleetAdmin } from '../fleet/hosts/fleet-admin.ts'

/** `fleet` null: this host is in none. */
export function fleetRoutes({ fleet }: { readonly fleet: FleetAdmin | null }) {
  const present = () => {
    if (fleet !== null) return fleet
    throw new Fault('not_found', 'this host is in no fleet: its configuration has no fleet.database')
  }
  const response = { response: FleetHost }
  return new Elysia({ normalize: false })
    .get('/fleet/hosts', async () => ({ hosts: await present().list() }), { response: FleetHosts })
    .get('/fleet/hosts/:name', ({ params: { name } }) => present().show(name), response)
    .post('/fleet/hosts/:name/drain', ({ params: { name } }) => present().drain(name), response)
    .post('/fleet/hosts/:name/undrain', ({ params: { name } }) => present().undrain(name), response)
    .post('/fleet/hosts/:name/remove', ({ params: { name } }) => present().remove(name), response)
    .post('/fleet/hosts/:name/forget', ({ params: { name } }) => present().forget(name), response)
}
