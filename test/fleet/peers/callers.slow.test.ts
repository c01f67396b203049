// Hosts of a fleet answer each other and nobody else: over real TLS and a real PostgreSQL, the fleet as it is now, each
// host for itself, once for each call.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { asOwner, connect, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { endBuildsOf } from '../../../src/fleet/hosts/give-up.ts'
import { forgetHost, removeHost, setDraining } from '../../../src/fleet/hosts/hosts.query.ts'
import { type Call, encodeCall, peerField, signedBytes } from '../../../src/fleet/peers/call.codec.ts'
import { openPeerKey, type PeerKey, peerName } from '../../../src/fleet/peers/peer-key.ts'
import { listPeers, publishPeer } from '../../../src/fleet/peers/peers.query.ts'
import { grantHost } from '../../../src/fleet/rights.ts'
import { type PeerHost, startPeerHost } from '../../rigs/fleet/peer-host.ts'

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('callers', () => {
  let server: PostgresServer
  let root: string
  let database: string
  let west: PeerHost
  let east: PeerHost
  let heard = 0
  beforeAll(async () => {
    server = await startPostgres()
    root = mkdtempSync(join(tmpdir(), 'srt-peers-'))
    database = await newFleet(server)
    const service = async () => {
      heard += 1
      return new Response('west')
    }
    west = await startPeerHost(server, database, { root, name: 'west', service })
    east = await startPeerHost(server, database, { root, name: 'east', service: async () => new Response('east') })
    await until('they know each other', 60_000, async () => (await asked(east.key)).status === 200)
  }, 60_000)
  afterAll(async () => {
    await west[Symbol.asyncDispose]()
    await east[Symbol.asyncDispose]()
    await server[Symbol.asyncDispose]()
    rmSync(root, { recursive: true, force: true })
  })

  type CallChanges = {
    readonly call?: Partial<Call>
    readonly path?: string
    readonly method?: string
    readonly sent?: string
  }

  /** A call of service A to west by a key; `sent` is the path that goes over the wire, `path` the signed one. */
  function fieldOf(key: PeerKey, { call = {}, path = '/v1/instances', method = 'GET' }: CallChanges = {}): string {
    const whole: Call = {
      ...{ from: key.hostId, to: west.hostId, service: 'instances', client: '10.0.0.1', atMs: Date.now() },
      principal: null,
      nonce: systemRandom(16).toBase64({ alphabet: 'base64url', omitPadding: true }),
      ...call,
    }
    return encodeCall({ ...whole, signature: key.sign(signedBytes(whole, { method, target: path })) })
  }

  function send(field: string | null, path = '/v1/instances', method = 'GET'): Promise<Response> {
    return fetch(`https://127.0.0.1:${west.port}${path}`, {
      ...{ method, keepalive: false, headers: field === null ? {} : { [peerField]: field } },
      tls: { ca: west.key.certificate, serverName: peerName(west.hostId) },
    })
  }

  const asked = (key: PeerKey, how: CallChanges = {}) => send(fieldOf(key, how), how.sent, 'GET')

  async function refused(response: Response, refusal: string | null = null): Promise<void> {
    expect(response.status).toBe(401)
    expect(response.headers.get('strongroom-peer-refusal')).toBe(refusal)
    expect(await response.text()).toBe('')
  }

  async function notHeard(work: () => Promise<void>): Promise<void> {
    const before = heard
    await work()
    expect(heard).toBe(before)
  }

  // Goal: without a signature of a host, or with a broken one, the answer says nothing, whatever is asked.
  test('strangers', () =>
    notHeard(async () => {
      for (const path of ['/', '/openapi.json', '/v1/instances', '/health', '/metrics'])
        await refused(await send(null, path))
      const field = fieldOf(east.key)
      for (const broken of ['', 'v2', field.slice(0, -1), `${field} x`, field.replace('v2', 'v1'), 'x'.repeat(8_000)]) {
        await refused(await send(broken))
      }
      const last = field.at(-3) === 'A' ? 'B' : 'A'
      await refused(await send(field.slice(0, -3) + last + field.slice(-2)))
    }))

  // Goal: a key that the directory does not have for the host is nobody's.
  test('a key of no host', () =>
    notHeard(async () => {
      const other = (hostId: string) =>
        openPeerKey({ stateDir: mkdtempSync(join(root, 'other-')), hostId, nowMs: Date.now(), random: systemRandom })
      await refused(await asked(await other('00000000-0000-4000-8000-000000000000')))
      await refused(await asked(await other(east.hostId)))
      // Nor does a host pass for another, or for the one that it calls.
      await refused(await asked(east.key, { call: { from: west.hostId } }))
      await refused(await asked(west.key))
    }))

  // Goal: a call is good for what was signed alone.
  test('another call than the signed one', () =>
    notHeard(async () => {
      await refused(await asked(east.key, { sent: '/v1/instances?x=1' }))
      await refused(await asked(east.key, { method: 'POST' }))
      await refused(await asked(east.key, { call: { to: east.hostId } }))
      const field = fieldOf(east.key)
      for (const [from, to] of [
        ['instances', 'builds'],
        ['10.0.0.1', '10.0.0.2'],
        // The principal is signed as well.
        [' - ', ' ca:o-1:abcd1234:write '],
      ] as const) {
        await refused(await send(field.replace(from, to)))
      }
    }))

  // Goal: who has seen a call can do nothing with it.
  test('a call is taken once, and in time', async () => {
    const field = fieldOf(east.key)
    expect((await send(field)).status).toBe(200)
    await notHeard(async () => {
      await refused(await send(field), 'replay')
      await refused(await asked(east.key, { call: { atMs: Date.now() - 31_000 } }), 'clock')
      // A minute: what comes from the future gets less so on its way.
      await refused(await asked(east.key, { call: { atMs: Date.now() + 60_000 } }), 'clock')
      await refused(await asked(east.key, { call: { service: 'builds' } }), 'off')
    })
  })

  // Goal: a host signs in with a role of its own, and cannot take another one's place by what it publishes.
  test('a host publishes itself alone', async () => {
    await server.run("CREATE ROLE lone LOGIN PASSWORD 'x'")
    const owner = await connect(server, database)
    await owner.transactPlain(tx => grantHost(tx, 'lone'))
    const url = new URL(database)
    url.username = 'lone'
    url.password = 'x'
    const lone = await connect(server, url.href)
    const own = { address: '127.0.0.1:1', certificate: east.key.certificate }
    expect(await publishPeer(lone, west.hostId, own)).toBe(false)
    for (const statement of ['UPDATE peers SET address = NULL', 'DELETE FROM peers']) {
      expect(
        await lone.query(statement).then(
          () => 'done',
          error => String(error),
        ),
      ).toContain('permission denied')
    }
    expect((await listPeers(lone)).find(({ hostId }) => hostId === west.hostId)?.address).toBe(west.own.address)
    await lone.close()
    await owner.close()
  })

  // Goal: a host that is removed or forgotten is a stranger, about a second later.
  test('removed and forgotten hosts', async () => {
    for (const end of ['remove', 'forget'] as const) {
      const service = async () => new Response()
      await using gone = await startPeerHost(server, database, { root, name: `gone-${end}`, service })
      await until('it is answered', 60_000, async () => (await asked(gone.key)).status === 200)
      await asOwner(database, owner =>
        owner.transact(async tx => {
          await setDraining(tx, gone.name, 1)
          if (end === 'remove') await removeHost(tx, gone.name, endBuildsOf)
          else await forgetHost(tx, gone.name, async () => 0)
        }),
      )
      await until('it is refused', 60_000, async () => (await asked(gone.key)).status === 401)
      await notHeard(async () => refused(await asked(gone.key)))
      // Nor can it publish itself again.
      expect(await publishPeer(gone.postgres, gone.hostId, gone.own)).toBe(false)
    }
  })

  // Goal: hosts that know each other go on while the database is away.
  test('without the database', async () => {
    await server.stop('kill')
    try {
      await Bun.sleep(0)
      for (const _ of [1, 2, 3]) expect((await asked(east.key)).status).toBe(200)
    } finally {
      await server.start()
    }
  }, 60_000)
})
