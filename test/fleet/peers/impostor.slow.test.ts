// Goal: no host takes another one's identity, and a third host passes neither a request nor a key on
// to an impostor. The operator alone binds a host anew.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { asOwner, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { messageOf } from '../../../src/base/fault.ts'
import { rebindHost } from '../../../src/fleet/hosts/hosts.query.ts'
import type { ForwardedFetch } from '../../../src/fleet/peers/peer-server.ts'
import { type Publication, publishPeer } from '../../../src/fleet/peers/peers.query.ts'
import { type PeerHost, startPeerHost } from '../../rigs/fleet/peer-host.ts'

const apiKey = 'ca_abcd1234_abcdefghijklmnopqr'

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('an impostor', () => {
  let server: PostgresServer
  let root: string
  beforeAll(async () => {
    server = await startPostgres()
    root = mkdtempSync(join(tmpdir(), 'srt-impostor-'))
  }, 120_000)
  afterAll(async () => {
    await server[Symbol.asyncDispose]()
    rmSync(root, { recursive: true, force: true })
  })

  async function threeHosts() {
    const stack = new AsyncDisposableStack()
    const database = await newFleet(server)
    const directory = mkdtempSync(join(root, 'fleet-'))
    const seen: { readonly at: string; readonly text: string }[] = []
    const open = async (name: string): Promise<PeerHost> => {
      const service: ForwardedFetch = async request => {
        const fields = JSON.stringify(Object.fromEntries(request.headers))
        seen.push({ at: name, text: `${request.url} ${fields} ${await request.text()}` })
        return new Response(name)
      }
      return stack.use(await startPeerHost(server, database, { root: directory, name, service }))
    }
    const [west, east, mallory] = [await open('west'), await open('east'), await open('mallory')]
    const [front] = [east.front(west.hostId)]
    const ask = async () => {
      const answer = await fetch(`${front}/v1/instances/x/attestation`, {
        headers: { Authorization: `Bearer ${apiKey}` },
      })
      return answer.status === 200 ? await answer.text() : `status ${answer.status}`
    }
    await until('east reaches west', 60_000, async () => (await ask()) === 'west')
    return { database, west, east, mallory, seen, ask, [Symbol.asyncDispose]: () => stack.disposeAsync() }
  }

  const publishes = (host: PeerHost, hostId: string, own: Publication) =>
    publishPeer(host.postgres, hostId, own).then(String, messageOf)

  // Goal: no host's role brings a third host to send a client's request, or its key, to an impostor.
  test('with the role of another host', async () => {
    await using hosts = await threeHosts()
    const { west, mallory, seen, ask } = hosts
    const tries = (statement: string) =>
      mallory.postgres.transact(tx => tx.query(statement)).then(() => 'done', messageOf)
    expect(await tries(`DELETE FROM hosts WHERE id = '${west.hostId}'`)).toBe('permission denied for table hosts')
    expect(await tries(`SELECT join_host('${west.hostId}', 'west', session_user, 0)`)).toBe(
      'permission denied for function join_host',
    )
    expect(await tries(`SELECT rebind_host('${west.hostId}', session_user)`)).toBe(
      'permission denied for function rebind_host',
    )
    expect(await publishes(mallory, west.hostId, mallory.own)).toBe('false')
    // Longer than a host keeps what it has read of the others.
    await Bun.sleep(1_500)
    expect(await ask()).toBe('west')
    expect(seen.filter(({ at }) => at !== 'west')).toEqual([])
    // Nor does the host that has the thing get the key.
    expect(seen.at(-1)?.text).toContain('/v1/instances/x/attestation')
    for (const { text } of seen) expect(text).not.toMatch(/ca_abcd1234|abcdefghijklmnopqr|authorization/)
  })

  // Goal: even the host's own role, in wrong hands, brings no other key into the directory.
  test('with the role of the host itself', async () => {
    await using hosts = await threeHosts()
    const { database, west, mallory, ask } = hosts
    const other = /may not answer others by another key than the one it is bound to/
    expect(await publishes(west, west.hostId, mallory.own)).toMatch(other)
    const both = `${west.own.certificate}${mallory.own.certificate}`
    expect(await publishes(west, west.hostId, { ...mallory.own, certificate: both })).toBe('not one certificate in PEM')
    expect(await publishes(west, west.hostId, { ...mallory.own, certificate: 'x' })).toBe('not one certificate in PEM')
    // Its address may change with the same key.
    expect(await publishes(west, west.hostId, { ...west.own, address: null })).toBe('true')
    expect(await publishes(west, west.hostId, west.own)).toBe('true')
    await until('east reaches west again', 60_000, async () => (await ask()) === 'west')
    // By the operator's hand, as for a host that was set up anew.
    const role = await asOwner(database, async owner => {
      const [row] = await owner.query<{ role: string }>('SELECT database_role AS role FROM hosts WHERE id = $1', [
        west.hostId,
      ])
      await rebindHost(owner, { name: 'west', role: row?.role ?? '' })
      return row?.role
    })
    expect(role).toContain('host_')
    const anew = { ...mallory.own, certificate: mallory.own.certificate }
    expect(await publishes(west, west.hostId, anew)).toBe('true')
    expect(await publishes(west, west.hostId, west.own)).toMatch(other)
    const lines = await west.postgres.query<{ action: string }>(
      "SELECT action FROM host_actions WHERE subject = 'west' ORDER BY seq",
    )
    expect(lines.map(({ action }) => action)).toEqual(['host.joined', 'host.bound', 'host.rebound', 'host.bound'])
  })
})
