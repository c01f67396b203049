// The fleet in the admin interface: its hosts; draining, removing and forgetting them. Effects: the directory's.

import { Elysia } from 'elysia'
import { FleetHost, FleetHosts } from '../contract/admin/fleet.ts'
import type { FleetAdmin } from '../fleet/hosts/fleet-admin.ts'

export function fleetRoutes({ fleet }: { readonly fleet: FleetAdmin }) {
  const response = { response: FleetHost }
  return new Elysia({ normalize: false })
    .get('/fleet/hosts', async () => ({ hosts: await fleet.list() }), { response: FleetHosts })
    .get('/fleet/hosts/:name', ({ params: { name } }) => fleet.show(name), response)
    .post('/fleet/hosts/:name/drain', ({ params: { name } }) => fleet.drain(name), response)
    .post('/fleet/hosts/:name/undrain', ({ params: { name } }) => fleet.undrain(name), response)
    .post('/fleet/hosts/:name/remove', ({ params: { name } }) => fleet.remove(name), response)
    .post('/fleet/hosts/:name/forget', ({ params: { name } }) => fleet.forget(name), response)
}
