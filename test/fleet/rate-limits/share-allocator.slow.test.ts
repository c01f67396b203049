// Shares of keys' limits in a real PostgreSQL: what is given out, to whom, and when it comes back.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { connect, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { addHosts, hostId } from '../../../scripts/rigs/postgres/hosts.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure } from '../../../scripts/rigs/until.ts'
import type { Amounts, ShareAsk } from '../../../src/contract/vm/shares.ts'
import type { Postgres } from '../../../src/fleet/postgres.ts'
import { ShareAllocator, sharesGoodMs } from '../../../src/fleet/rate-limits/share-allocator.ts'
import { renewShares } from '../../../src/fleet/rate-limits/shares.query.ts'
import { grantHost } from '../../../src/fleet/rights.ts'

const limits: Amounts = [100, 1_000, 1]
const restMs = 66_000

const askOf = (changes: Partial<ShareAsk> = {}): ShareAsk => ({
  keyPrefix: 'k',
  share: [0, 0, 0],
  held: [0, 0, 0],
  wanted: [100, 1_000, 1],
  least: [0, 0, 0],
  freesInMs: [0, 0, 0],
  waitingMs: 0,
  ...changes,
})

/** The clock of silence stands still but for this. */
const serve = (postgres: Postgres, ms: number) =>
  postgres.query("UPDATE clock SET served_ms = served_ms + $1, renewed_at = clock_timestamp() + interval '1 day'", [ms])

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('shares', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server[Symbol.asyncDispose]())

  const open = async (...names: readonly string[]) => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, ...names)
    await serve(postgres, 0)
    const allocators = names.map(name => new ShareAllocator({ postgres, hostId: hostId(name), limitsOf: () => limits }))
    return { postgres, desks: allocators as [ShareAllocator, ShareAllocator, ShareAllocator] }
  }

  /** A gateway that follows its grants. */
  const gateway = (desk: ShareAllocator, member = 'm') => {
    let turn = 0
    let share: Amounts = [0, 0, 0]
    return {
      share: () => share,
      ask: async (changes: Partial<ShareAsk> = {}) => {
        turn += 1
        const { grants } = await desk.renew(member, turn, [askOf({ share, ...changes })])
        const grant = grants[0]
        if (grant === undefined) throw new Error('no grant')
        share = grant.share.map((amount, at) => Math.min(amount, grant.keep[at] ?? 0)) as Amounts
        return grant
      },
    }
  }

  // Goal: a host alone has nearly all of a limit at once, and the newcomer gets the rest at once and its even part at
  // the other's next question.
  test('one host, then two', async () => {
    const { postgres, desks } = await open('a', 'b')
    const [a, b] = [gateway(desks[0]), gateway(desks[1])]
    await a.ask()
    expect(a.share()).toEqual([95, 950, 1])
    await b.ask()
    expect(b.share()).toEqual([5, 50, 0])
    expect(await a.ask({ held: [10, 10, 0] })).toMatchObject({ isWanted: true })
    expect(a.share()).toEqual([47, 475, 0])
    await a.ask({ held: [10, 10, 0] })
    await b.ask()
    expect(b.share()).toEqual([48, 475, 1])
    await postgres.close()
  })

  // Goal: what a window holds is not given to others, whatever the plan says; it comes as it slides out.
  test('what is held stays', async () => {
    const { postgres, desks } = await open('a', 'b')
    const [a, b] = [gateway(desks[0]), gateway(desks[1])]
    await a.ask()
    await a.ask({ held: [95, 950, 1] })
    await b.ask()
    await a.ask({ held: [95, 950, 1], freesInMs: [30_000, 31_000, 500] })
    await a.ask({ held: [95, 950, 1], freesInMs: [30_000, 31_000, 500] })
    const grant = await b.ask()
    expect(b.share()).toEqual([5, 50, 0])
    // Honest: when something slides out of the other's window, and the time to hand it over.
    expect(grant.moreInMs).toEqual([34_000, 35_000, 4_500])
    await a.ask({ held: [60, 500, 0] })
    await b.ask()
    expect(b.share()).toEqual([40, 475, 1])
    await postgres.close()
  })

  // Goal: an answer that is lost gives nothing away twice, and a question that comes late changes nothing.
  test('lost answers and late questions', async () => {
    const { postgres, desks } = await open('a', 'b')
    const [a, b] = desks
    await a.renew('m', 5, [askOf()])
    // The answer was lost: the gateway still has nothing, and gets it again.
    expect((await a.renew('m', 6, [askOf()])).grants).toMatchObject([{ share: [95, 950, 1] }])
    expect(await a.renew('m', 6, [askOf({ share: [1, 1, 0] })])).toEqual({ goodMs: 0, grants: [] })
    expect((await b.renew('m', 1, [askOf()])).grants).toMatchObject([{ share: [5, 50, 0] }])
    await postgres.close()
  })

  // Goal: a dead host's share comes back once its time and its window are over, not before, and by the database's
  // clock; the share of a gateway that said its end, after its window.
  test('the share of a dead host comes back', async () => {
    const { postgres, desks } = await open('a', 'b')
    const [a, b] = [gateway(desks[0]), gateway(desks[1])]
    await a.ask()
    await serve(postgres, sharesGoodMs + restMs - 1)
    // A part of the rest is kept for newcomers.
    await b.ask()
    expect(b.share()).toEqual([5, 47, 0])
    await serve(postgres, 1)
    await b.ask()
    await b.ask()
    expect(b.share()).toEqual([95, 950, 1])
    await b.ask({ share: [0, 0, 0], wanted: [0, 0, 0] })
    expect(await postgres.query('SELECT * FROM shares')).toEqual([])

    const again = gateway(desks[0], 'next')
    await again.ask()
    await desks[0].end('next')
    await serve(postgres, restMs - 1)
    const [third, fourth] = [gateway(desks[1], 'third'), gateway(desks[1], 'fourth')]
    await third.ask()
    expect(third.share()).toEqual([5, 47, 0])
    await serve(postgres, 1)
    expect(await fourth.ask()).toMatchObject({ share: [95, 950, 1], keep: [47, 475, 0] })
    expect(await postgres.query('SELECT member FROM share_members ORDER BY member')).toEqual([
      { member: 'fourth' },
      { member: 'm' },
      { member: 'third' },
    ])
    await postgres.close()
  })

  // Goal: whatever gateways ask for, at once and in any order, no more than the limit is given out in any dimension.
  test('random questions of five hosts at once', async () => {
    const names = ['a', 'b', 'c', 'd', 'e']
    const { postgres } = await open(...names)
    const draw = createDraw(11)
    const shares = new Map(names.map(name => [name, { turn: 0, share: [0, 0, 0] as Amounts }]))
    for (let round = 0; round < 60; round += 1) {
      await Promise.all(
        names.map(async name => {
          const own = shares.get(name)
          if (own === undefined) return
          own.turn += 1
          own.share = own.share.map(amount => draw(amount + 1)) as Amounts
          const target: Amounts = [draw(120), draw(1_200), draw(3)]
          const ask = askOf({ share: own.share, held: own.share.map(amount => draw(amount + 1)) as Amounts })
          const asked = { hostId: hostId(name), member: 'm', turn: own.turn, goodMs: 1_000 }
          const rows = await renewShares(postgres, { ...asked, shares: [{ ask, limits, target }] })
          const sums = [0, 1, 2].map(at => rows.reduce((sum, { share }) => sum + (share[at] ?? 0), 0))
          for (const [at, limit] of limits.entries()) expect(sums[at]).toBeLessThanOrEqual(limit)
          own.share = rows.find(({ isOwn }) => isOwn)?.share ?? own.share
        }),
      )
      const sums = [0, 1, 2].map(at => [...shares.values()].reduce((sum, { share }) => sum + (share[at] ?? 0), 0))
      for (const [at, limit] of limits.entries()) expect(sums[at]).toBeLessThanOrEqual(limit)
    }
    await postgres.close()
  })

  // Goal: a lower limit of the operator's gives out no more, and the hosts come down to it; a revoked key has nothing.
  test('limits that change', async () => {
    const { postgres } = await open('a', 'b')
    let current: Amounts | null = [100, 100, 10]
    const deskOf = (name: string) => new ShareAllocator({ postgres, hostId: hostId(name), limitsOf: () => current })
    const [a, b] = [gateway(deskOf('a')), gateway(deskOf('b'))]
    await a.ask()
    await b.ask()
    await a.ask()
    await a.ask()
    await b.ask()
    expect([a.share(), b.share()]).toEqual([
      [47, 47, 5],
      [48, 48, 4],
    ])
    current = [20, 20, 2]
    await a.ask({ held: [10, 10, 1] })
    await b.ask({ held: [10, 10, 1] })
    expect([a.share(), b.share()]).toEqual([
      [9, 9, 1],
      [10, 10, 1],
    ])
    current = [0, 0, 0]
    await a.ask({ held: [10, 10, 1] })
    expect(a.share()).toEqual([0, 0, 0])
    current = null
    expect((await deskOf('a').renew('m', 99, [askOf()])).grants).toEqual([])
    await postgres.close()
  })

  // Goal: a host's role asks for its own gateways alone, and writes no row by itself.
  test('rights of a host', async () => {
    const url = await newFleet(server)
    const owner = await connect(server, url)
    await addHosts(owner, 'a', 'b')
    await server.run('CREATE ROLE rack_shares LOGIN')
    await owner.transact(tx => tx.query("UPDATE hosts SET database_role = 'rack_shares' WHERE name = 'a'"))
    await owner.transactPlain(tx => grantHost(tx, 'rack_shares'))
    const host = await connect(server, url.replace(/\/\/[^@/]*@/, '//rack_shares@'))
    const [a, b] = ['a', 'b'].map(
      name => new ShareAllocator({ postgres: host, hostId: hostId(name), limitsOf: () => limits }),
    ) as [ShareAllocator, ShareAllocator]
    expect((await a.renew('m', 1, [askOf()])).grants).toHaveLength(1)
    expect((await failure(b.renew('m', 1, [askOf()]))).message).toContain('no member')
    await b.endOthers('')
    expect((await failure(host.query('DELETE FROM shares'))).message).toContain('permission denied')
    expect((await failure(host.query('UPDATE share_members SET good_ms = 0'))).message).toContain('permission denied')
    await host.close()
    await owner.close()
  })
})
