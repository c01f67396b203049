// Goal: in a fleet, requests about an instance of another host go there in the caller's name, with their bodies; a
// restore reads a snapshot of another host through it.

import { expect, test } from 'bun:test'
import type { EdgeContext } from '../../../src/http/edge.ts'
import type { Edge, InstanceApi, InstancePeer } from '../../../src/instances/http/handler.ts'
import { SNAPSHOT_HANDLERS } from '../../../src/instances/http/snapshot-routes.ts'
import type { OpenElsewhere } from '../../../src/instances/snapshots/snapshots.ts'

type Forwarded = { hostId: string; method: string; url: string; body: string; principal: unknown }

const caller = { organization: { id: 'org', slug: 'acme' }, keyPrefix: 'abcdefgh' }
const elsewhere = async () => ({ otherHostId: 'host-2' })

function apiOf(snapshots: object) {
  const forwarded: Forwarded[] = []
  const api = {
    caller: () => caller,
    json: (request: Request) => request.json(),
    snapshots,
    peers: {
      forward: async (hostId: string, request: Request, { principal }: { principal: unknown }) => {
        forwarded.push({ hostId, method: request.method, url: request.url, body: await request.text(), principal })
        return new Response('ciphertext')
      },
    },
  } as unknown as InstanceApi & Edge
  return { api, forwarded }
}
function contextOf(method: string, path: string, params: Record<string, string>, body?: string) {
  const request = new Request(`https://a.test${path}`, { method, ...(body === undefined ? {} : { body }) })
  return { request, params, address: () => '192.0.2.1' } as unknown as InstancePeer & EdgeContext
}
const principal = (scope: string) => ({ organizationId: 'org', keyPrefix: 'abcdefgh', scope })

test('goal: each request is forwarded as it came', async () => {
  const { api, forwarded } = apiOf({
    take: elsewhere,
    listOf: elsewhere,
    find: elsewhere,
    remove: elsewhere,
    restore: elsewhere,
  })
  const params = { name: 'k3v9x2ma', number: '2' }
  const path = '/v1/instances/k3v9x2ma/snapshots'
  const body = JSON.stringify({ instance: 'aaaaaaaa', number: 1 })
  await SNAPSHOT_HANDLERS.createSnapshot(api, contextOf('POST', path, params))
  await SNAPSHOT_HANDLERS.listInstanceSnapshots(api, contextOf('GET', path, params))
  await SNAPSHOT_HANDLERS.retrieveSnapshot(api, contextOf('GET', `${path}/2`, params))
  await SNAPSHOT_HANDLERS.deleteSnapshot(api, contextOf('DELETE', `${path}/2`, params))
  await SNAPSHOT_HANDLERS.restoreSnapshot(api, contextOf('POST', '/v1/instances/k3v9x2ma/restore', params, body))
  const to = (method: string, url: string, scope: string, text = '') => {
    return { hostId: 'host-2', method, url: `https://a.test${url}`, body: text, principal: principal(scope) }
  }
  expect(forwarded).toEqual([
    to('POST', path, 'write'),
    to('GET', path, 'read'),
    to('GET', `${path}/2`, 'read'),
    to('DELETE', `${path}/2`, 'write'),
    to('POST', '/v1/instances/k3v9x2ma/restore', 'write', body),
  ])
})

test('goal: the ciphertext of a snapshot on another host is read through that host', async () => {
  const { api, forwarded } = apiOf({
    restore: async (_: unknown, __: string, { from, openElsewhere }: { from: never; openElsewhere: OpenElsewhere }) => {
      const chunks = await Array.fromAsync(await openElsewhere('host-3', from))
      return { pipe: Buffer.concat(chunks).toString(), bytes: 0 }
    },
  })
  const body = JSON.stringify({ instance: 'aaaaaaaa', number: 7 })
  const params = { name: 'k3v9x2ma' }
  const reply = await SNAPSHOT_HANDLERS.restoreSnapshot(
    api,
    contextOf('POST', '/v1/instances/k3v9x2ma/restore', params, body),
  )
  expect(reply).toMatchObject({ status: 202, data: { pipe: 'ciphertext' } })
  expect(forwarded).toMatchObject([
    {
      hostId: 'host-3',
      method: 'GET',
      url: 'https://a.test/v1/instances/aaaaaaaa/snapshots/7',
      principal: principal('read'),
    },
  ])
})
