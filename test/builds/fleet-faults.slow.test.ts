// Hosts of a fleet, their database and the ways between them fail at random while clients submit and cancel builds; a
// checker looks for what was lost, ran twice, ended twice or was left behind. STRONGROOM_FLEET_SEED runs another seed,
// STRONGROOM_FLEET_FAULTS asks for more faults.

import { expect, test } from 'bun:test'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { runsAll } from '../../scripts/rigs/all.ts'
import { randomNonce, source } from '../../scripts/rigs/build/builds-service.ts'
import { goodScript, line, resultOf } from '../../scripts/rigs/build/engine.ts'
import { createDraw } from '../../scripts/rigs/draw.ts'
import { hasPostgres, type PostgresServer } from '../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { until } from '../../scripts/rigs/until.ts'
import { systemClock } from '../../src/base/clock.ts'
import { silentLogger } from '../../src/base/log.ts'
import { Checksums } from '../../src/fleet/directory/checksums.ts'
import { type BuildFleetRig, type BuildHost, eventFile, openBuildFleet } from '../rigs/fleet/build-fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')
const names = ['east', 'west', 'north'] as const
const asked = process.env.STRONGROOM_FLEET_SEED
/** The last one's faults are of every kind, on every host. */
const seeds = asked !== undefined ? [Number(asked)] : runsAll ? [1, 2, 3, 4] : [4]
const faultCount = Number(process.env.STRONGROOM_FLEET_FAULTS ?? 10)
const settleMs = 90_000
const settings = { queueMax: 100, uploadsMax: 100, concurrentMax: 2 }

let server: PostgresServer

startForTests(started => {
  server = started
})

type Acknowledged = { readonly id: string; isCancelled: boolean }

class Faulted {
  readonly acknowledged: Acknowledged[] = []
  readonly faults: string[] = []
  readonly #rig: BuildFleetRig
  readonly #draw: (count: number) => number
  readonly #hosts = new Map<string, BuildHost>()

  constructor(rig: BuildFleetRig, seed: number) {
    this.#rig = rig
    this.#draw = createDraw(seed)
  }

  get hosts(): readonly BuildHost[] {
    return [...this.#hosts.values()]
  }

  async start(name: string): Promise<void> {
    const host = await this.#rig.host(name, { settings, bringMs: 1_000 })
    host.world.script = [line('init', 'begun'), ...goodScript]
    this.#hosts.set(name, host)
  }

  async fault(): Promise<void> {
    const name = names[this.#draw(names.length)] ?? 'east'
    const forMs = 100 + this.#draw(900)
    const kinds: readonly (readonly [string, () => Promise<void>])[] = [
      [`kill ${name} ${forMs}`, () => this.#kill(name, forMs)],
      [`kill ${name} at once`, () => this.#kill(name, 0)],
      [`database ${forMs}`, () => this.#while(this.#rig.cut, this.#rig.restore, forMs)],
      [
        `peers ${forMs}`,
        () =>
          this.#while(
            () => this.#rig.cutPeers(true),
            () => this.#rig.cutPeers(false),
            forMs,
          ),
      ],
    ]
    const [what, run] = kinds[this.#draw(kinds.length)] ?? ['none', async () => {}]
    this.faults.push(what)
    await run()
    await Bun.sleep(this.#draw(300))
  }

  async client(seed: number, signal: AbortSignal): Promise<void> {
    const draw = createDraw(seed)
    const own: Acknowledged[] = []
    while (!signal.aborted) {
      const host = this.hosts[draw(this.hosts.length)]
      const open = own.filter(({ isCancelled }) => !isCancelled)
      const chosen = open[draw(Math.max(1, open.length))]
      if (host === undefined) continue
      if (draw(4) === 0 && chosen !== undefined) {
        const answer = await host.send('DELETE', `/build/${chosen.id}`).catch(() => null)
        if (answer?.status === 404) throw new Error(`${chosen.id} was acknowledged and is not there`)
        if (answer?.json.state === 'cancelled') chosen.isCancelled = true
      } else {
        const body = { nonce: randomNonce(), source_data: source.toString('base64') }
        const answer = await host.send('POST', '/build', { body }).catch(() => null)
        if (answer?.status === 200) {
          const build = { id: String(answer.json.job_id), isCancelled: false }
          own.push(build)
          this.acknowledged.push(build)
        }
      }
      await Bun.sleep(20 + draw(150))
    }
  }

  async #kill(name: string, forMs: number): Promise<void> {
    await this.#hosts.get(name)?.kill()
    this.#hosts.delete(name)
    await Bun.sleep(forMs)
    await this.start(name)
  }

  async #while(begin: () => void, end: () => void, forMs: number): Promise<void> {
    begin()
    await Bun.sleep(forMs)
    end()
  }
}

// Goal: whatever fails, every acknowledged build ends exactly once, none runs twice, and nothing of it is left behind.
test.skipIf(missing).each(seeds)(
  'builds through random faults, seed %d',
  async seed => {
    await using rig = await openBuildFleet(server, { isCut: true })
    const faulted = new Faulted(rig, seed)
    for (const name of names) await faulted.start(name)
    const ending = new AbortController()
    const clients = Promise.all([1, 2, 3].map(at => faulted.client(seed * 100 + at, ending.signal)))
    for (let count = 0; count < faultCount; count += 1) await Promise.race([faulted.fault(), clients])
    ending.abort()
    await clients
    const { hosts, acknowledged } = faulted
    const isOver = (host: BuildHost) =>
      acknowledged.every(({ id }) => host.look(id)?.closedAtMs != null && host.look(id)?.state !== 'queued')
    await until('everything is over, and known everywhere', settleMs, () => hosts.every(isOver)).catch(error => {
      const left = acknowledged.flatMap(({ id }) =>
        hosts.map(({ name, look }) => `${name} ${JSON.stringify(look(id))}`),
      )
      throw new Error(
        [error.message, ...faulted.faults, ...left.filter(text => /"closedAtMs":null/.test(text))].join('\n'),
      )
    })

    const jobs = hosts.flatMap(({ world }) => world.jobs)
    expect(new Set(jobs).size).toBe(jobs.length)
    for (const { id, isCancelled } of acknowledged) {
      const builds = hosts.map(host => host.look(id))
      const [build] = builds
      expect(builds.map(found => [found?.state, found?.hostId, found?.resultSha256])).toEqual(
        hosts.map(() => [build?.state, build?.hostId, build?.resultSha256]),
      )
      if (isCancelled) expect([id, build?.state]).toEqual([id, 'cancelled'])
      if (build?.state === 'ok') expect(jobs).toContain(id)
      const holder = hosts.find(({ hostId }) => hostId === build?.hostId)
      const events = eventFile(holder as BuildHost, id)
      expect([id, events.match(/"type":"complete"/g)?.length]).toEqual([id, 1])
      for (const host of hosts) {
        const answer = await host.send('GET', `/build/${id}/result`)
        const expected = build?.state === 'ok' ? [200, resultOf(source).toString()] : [404, answer.text]
        expect([answer.status, answer.text]).toEqual(expected)
        if (host !== holder) expect(existsSync(join(host.directory, 'builds', id, 'source'))).toBe(false)
      }
    }
    // An end that is in the directory stays as it is.
    const ends = await rig.sql(`SELECT count(*) FROM (
      SELECT row_key FROM strongroom.changes
      WHERE table_name = 'builds' AND row ->> 'state' IN ('ok', 'failed', 'cancelled')
      GROUP BY row_key HAVING count(DISTINCT row ->> 'state') > 1) AS twice`)
    expect(ends).toBe('0')
    const count = await rig.sql('SELECT count(*) FROM strongroom.builds')
    expect(Number(count)).toBeGreaterThanOrEqual(acknowledged.length)
    await until('no VM is left', settleMs, () =>
      hosts.every(({ world }) => world.vms().every(({ state }) => state === 'gone')),
    )
    for (const { name, store, postgres, reported } of hosts) {
      await reported()
      const catchUp = async () => void (await store.directory.read(null, () => {}))
      const checksums = new Checksums(store.directory.db)
      const { signal } = new AbortController()
      const deps = { postgres, clock: systemClock, log: silentLogger, catchUp, signal }
      expect([name, await checksums.differing(deps)]).toEqual([name, []])
    }
    const states = Map.groupBy(acknowledged, ({ id }) => hosts[0]?.look(id)?.state)
    const told = [...states].map(([state, { length }]) => `${length} ${state}`).join(', ')
    process.stdout.write(`seed ${seed}: ${faulted.faults.length} faults, ${acknowledged.length} builds: ${told}\n`)
  },
  300_000,
)
