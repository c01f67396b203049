// Goal: killed before any of their system calls with an effect, a backup, a restore, a migration, the way back and an
// upgrade under load leave what was there or what was asked for, and the same command again ends the work.
// `scripts/test --all` tries more of them, STRONGROOM_KILL_POINTS=all tries all.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { choosePoints } from '../../scripts/faults/choose.plan.ts'
import { type KillAfter, trace } from '../../scripts/faults/tracing.ts'
import { runsAll } from '../../scripts/rigs/all.ts'
import { checkBackup } from '../../src/backup/restore.ts'
import { newIdentity } from '../../src/backup/seal.ts'
import { openOperatorKey } from '../../src/host/operator-key.ts'
import { leftoversOfRecords } from '../../src/host/state-files.ts'
import { MIGRATIONS, openStore, schemaVersionOf } from '../../src/store/db.ts'
import { insertOrganization, listOrganizations } from '../../src/store/directory/organization.query.ts'
import { inspectDatabase } from '../../src/store/inspect.ts'
import { readEnd, upgradePaths } from '../../src/upgrade/record.ts'
import { LATER, WORKS } from '../rigs/backup/program.ts'
import { acceptedIn } from '../rigs/upgrade/program.ts'

const points = process.env.STRONGROOM_KILL_POINTS === 'all' ? 'all' : runsAll ? 24 : 3
const source = join(import.meta.dir, '../rigs/backup/program.ts')
const schema = schemaVersionOf(MIGRATIONS)
const KEYS = ['gateway-key.secret', 'ca/ca.key', 'guest-ca/ca.key']
const OPERATOR = ['operator-key.pem', 'operator-key.pub.pem', 'operator-keys.txt']

let origin: string
/** Bundled once: each case starts it many times. */
let programDir: string
let program: string
let identity: string
let operatorKey: Uint8Array

beforeAll(async () => {
  origin = mkdtempSync(join(tmpdir(), 'strongroom-kill-'))
  programDir = mkdtempSync(join(tmpdir(), 'strongroom-kill-program-'))
  const { outputs } = await Bun.build({ entrypoints: [source], outdir: programDir, target: 'bun' })
  program = outputs[0]?.path ?? ''
  const pair = await newIdentity()
  identity = pair.identity
  writeFileSync(join(origin, 'identity'), pair.identity)
  writeFileSync(join(origin, 'recipient'), pair.recipient)
  writeFileSync(join(origin, 'strongroom.toml'), 'domain = "agents.test"\n')
  // The backup has the absolute path, and the cases run in copies.
  writeFileSync(join(origin, 'configuration'), join(origin, 'strongroom.toml'))
  for (const name of KEYS) {
    mkdirSync(join(origin, 'state', name, '..'), { recursive: true })
    writeFileSync(join(origin, 'state', name), name, { mode: 0o600 })
  }
  const store = openStore(join(origin, 'state/strongroom.db'))
  for (let at = 0; at < 50; at += 1) insertOrganization(store.directory.db, { id: `o${at}`, slug: `o-${at}`, nowMs: 1 })
  store.close()
  operatorKey = (await openOperatorKey(join(origin, 'state'))).digest
  writeFileSync(join(origin, 'operator-key'), operatorKey.toHex())
  await WORKS.backup(origin)
})

afterAll(() => {
  for (const dir of [origin, programDir]) rmSync(dir, { recursive: true, force: true })
})

/** Runs the program in a copy of what is there; gives the effects, and checks what is left. */
async function runIn(name: keyof typeof WORKS, killAfter: KillAfter, prepare: (dir: string) => void) {
  const dir = mkdtempSync(join(tmpdir(), 'strongroom-killed-'))
  cpSync(origin, dir, { recursive: true })
  prepare(dir)
  const child = Bun.spawn(['sh', '-c', 'kill -STOP $$; exec "$@"', 'sh', process.execPath, program, name, dir], {
    stdout: 'ignore',
    stderr: 'pipe',
  })
  await using tracing = await trace(child.pid, { killAfter, isHeld: true })
  const [code, stderr] = await Promise.all([child.exited, child.stderr.text()])
  await tracing.end()
  return { dir, code, stderr, effects: [...tracing.effects] }
}

/** The same command once more; the message of its refusal, or null. */
async function again(name: keyof typeof WORKS, dir: string): Promise<string | null> {
  try {
    await WORKS[name](dir)
    return null
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

const counted = (path: string, migrations = MIGRATIONS, leftovers: string[] = []) => {
  const store = openStore(path, { migrations, leftovers })
  const { length } = listOrganizations(store.directory.db)
  store.close()
  return length
}

async function check(dir: string): Promise<void> {
  const options = { stateDir: join(dir, 'new'), key: { identities: [identity] }, operatorKey, outside: null }
  await checkBackup(join(dir, 'backup.age'), options, mkdtempSync(join(dir, 'check-')))
}

type Case = {
  readonly name: keyof typeof WORKS
  readonly prepare: (dir: string) => void
  /** Holds after any kill. */
  readonly left: (dir: string) => Promise<void>
  /** Holds once the command was given again. */
  readonly ended: (dir: string) => Promise<void>
}

const CASES: Case[] = [
  {
    name: 'backup',
    prepare: dir => writeFileSync(join(dir, 'earlier'), readFileSync(join(dir, 'backup.age'))),
    left: async dir => {
      // The earlier one or the new one, never half a one.
      await check(dir)
      expect(counted(join(dir, 'state/strongroom.db'))).toBe(50)
    },
    ended: async dir => {
      await check(dir)
      expect(readdirSync(dir).filter(name => name.endsWith('.partial'))).toEqual([])
      expect(readdirSync(join(dir, 'state'))).not.toContain('backup.partial')
    },
  },
  {
    name: 'restore',
    // The backup has its path, which is absolute.
    prepare: () => rmSync(join(origin, 'strongroom.toml'), { force: true }),
    left: async dir => {
      const state = join(dir, 'new')
      const path = join(state, 'strongroom.db')
      const leftovers = leftoversOfRecords(state)
      if (existsSync(path)) expect(counted(path, MIGRATIONS, leftovers)).toBe(50)
      // Nothing, or what the daemon refuses to start beside.
      else if (leftovers.length === 0)
        expect(existsSync(state) ? readdirSync(state) : []).toEqual(existsSync(join(state, 'lock')) ? ['lock'] : [])
      else expect(() => openStore(path, { leftovers })).toThrow('keys of an appliance')
    },
    ended: async dir => {
      expectKeys(dir)
      expect(readFileSync(join(origin, 'strongroom.toml'), 'utf8')).toBe('domain = "agents.test"\n')
      expect(counted(join(dir, 'new/strongroom.db'))).toBe(50)
    },
  },
  {
    name: 'restore over',
    prepare: dir => {
      const files = readdirSync(origin).filter(name => name.startsWith('strongroom.toml'))
      for (const file of files) rmSync(join(origin, file))
      writeFileSync(join(origin, 'strongroom.toml'), '# of another installation\n')
      mkdirSync(join(dir, 'new/ca'), { recursive: true })
      for (const name of ['operator-key.pem', 'ca/ca.key']) writeFileSync(join(dir, 'new', name), 'another')
      openStore(join(dir, 'new/strongroom.db')).close()
    },
    left: async dir => {
      const state = join(dir, 'new')
      const path = join(state, 'strongroom.db')
      const leftovers = leftoversOfRecords(state)
      // All of the one or all of the other, or the daemon refuses to start.
      if (existsSync(path)) {
        const key = readFileSync(join(state, 'ca/ca.key'), 'utf8')
        expect([key, counted(path, MIGRATIONS, leftovers)]).toEqual(
          key === 'another' ? ['another', 0] : ['ca/ca.key', 50],
        )
      } else expect(() => openStore(path, { leftovers })).toThrow('keys of an appliance')
    },
    ended: async dir => {
      expectKeys(dir)
      expect(readFileSync(join(origin, 'strongroom.toml'), 'utf8')).toBe('domain = "agents.test"\n')
      expect(counted(join(dir, 'new/strongroom.db'))).toBe(50)
      // In one piece, though a run was killed; a command that was given again after its end sets the whole aside.
      const aside = join(dir, 'new/set-aside-1')
      expect(readFileSync(join(aside, 'ca/ca.key'), 'utf8')).toBe('another')
      expect(counted(join(aside, 'strongroom.db'))).toBe(0)
    },
  },
  {
    name: 'migration',
    prepare: () => {},
    left: async dir => {
      const path = join(dir, 'state/strongroom.db')
      const { problem, schema: found } = inspectDatabase(path)
      expect([problem, found === schema || found === schema + 1]).toEqual([null, true])
      // Never newer without the way back.
      if (found > schema) expect(inspectDatabase(`${path}.schema-${schema}`)).toMatchObject({ problem: null, schema })
    },
    ended: async dir => {
      const path = join(dir, 'state/strongroom.db')
      expect(counted(path, LATER)).toBe(50)
      expect(counted(`${path}.schema-${schema}`)).toBe(50)
    },
  },
  {
    name: 'downgrade',
    prepare: dir => {
      openStore(join(dir, 'state/strongroom.db'), { migrations: LATER }).close()
      for (const suffix of ['-wal', '-shm']) rmSync(join(dir, `state/strongroom.db${suffix}`), { force: true })
    },
    left: async dir => {
      const { problem, schema: found } = inspectDatabase(join(dir, 'state/strongroom.db'))
      expect([problem, found === schema || found === schema + 1]).toEqual([null, true])
    },
    ended: async dir => {
      expect(counted(join(dir, 'state/strongroom.db'))).toBe(50)
      expect(counted(join(dir, `state/strongroom.db.set-aside-${schema + 1}`), LATER)).toBe(50)
    },
  },
  {
    name: 'upgrade',
    prepare: () => {},
    left: async dir => nothingHalf(dir),
    ended: async dir => upgradeEnded(dir, { failing: false }),
  },
  {
    name: 'upgrade that fails',
    prepare: () => {},
    left: async dir => nothingHalf(dir),
    ended: async dir => upgradeEnded(dir, { failing: true }),
  },
]

function expectKeys(dir: string): void {
  for (const name of KEYS) expect(readFileSync(join(dir, 'new', name), 'utf8')).toBe(name)
  for (const name of OPERATOR)
    expect(readFileSync(join(dir, 'new', name), 'utf8')).toBe(readFileSync(join(dir, 'state', name), 'utf8'))
}

/** The database is whole, or its copy is and puts it right: then the gate is shut. */
function nothingHalf(dir: string): void {
  const path = join(dir, 'state/strongroom.db')
  const { problem, schema: found } = inspectDatabase(path)
  expect([problem, found === schema || found === schema + 1]).toEqual([null, true])
}

/** Each acknowledged request is there, once, in the database of the executable that serves now. */
function upgradeEnded(dir: string, { failing }: { failing: boolean }): void {
  const paths = upgradePaths(join(dir, 'state'))
  const end = readEnd(paths)
  expect(failing ? ['returned', 'abandoned'] : ['upgraded', 'returned', 'abandoned']).toContain(end?.outcome ?? '')
  expect(readdirSync(paths.directory).toSorted()).toEqual(['asker.lock', 'end.json', 'lock', 'progress.jsonl'])
  expect(existsSync(join(dir, 'units/strongroom.service.d/zz-upgrade.conf'))).toBe(false)
  const path = join(dir, 'state/strongroom.db')
  expect(inspectDatabase(path).schema).toBe(end?.outcome === 'upgraded' ? schema + 1 : schema)
  const store = openStore(path, { migrations: end?.outcome === 'upgraded' ? LATER : MIGRATIONS })
  const slugs = listOrganizations(store.directory.db).map(({ slug }) => slug)
  store.close()
  const accepted = acceptedIn(dir)
  expect(accepted.length).toBeGreaterThan(1)
  expect(accepted.filter(slug => !slugs.includes(slug))).toEqual([])
  expect([slugs.length, new Set(accepted).size]).toEqual([50 + accepted.length, accepted.length])
}

/** The aim, where all points are tried. */
const pointsMin = 500
let pointsTried = 0

// Goal: each of the works is safe at each of its points.
test.each(CASES.map(work => [work.name, work] as const))(
  '%s',
  async (name, { prepare, left, ended }) => {
    const whole = await runIn(name, 'all', prepare)
    expect([whole.code, whole.stderr]).toEqual([0, ''])
    await ended(whole.dir)
    rmSync(whole.dir, { recursive: true })
    const chosen = choosePoints(whole.effects, points, 1)
    if (points !== 'all') expect(chosen).toHaveLength(points)
    pointsTried += chosen.length
    let kills = 0
    for (const point of chosen) {
      const { dir, code, effects } = await runIn(name, point, prepare)
      if (code !== 0) kills += 1
      const at = `${name}:${point} before ${effects.at(-1)?.replaceAll(dir, '')}`
      try {
        await left(dir)
        const refusal = await again(name, dir)
        if (refusal !== null) expect(refusal).toMatch(/not empty|opens as it is/)
        await ended(dir)
      } catch (error) {
        throw new Error(`${at}: ${error instanceof Error ? error.message : String(error)}`)
      }
      rmSync(dir, { recursive: true })
    }
    // The last points may lie behind what this run did.
    expect(kills).toBeGreaterThan(chosen.length / 2)
    process.stdout.write(`${name}: ${whole.effects.length} points, ${kills} kills\n`)
  },
  points === 'all' ? 7_200_000 : 600_000,
)

test('goal: the points are counted, and with all of them they are as many as were asked for', () => {
  process.stdout.write(`all of them: ${pointsTried} points\n`)
  if (points === 'all') expect(pointsTried).toBeGreaterThanOrEqual(pointsMin)
  else expect(pointsTried).toBe(CASES.length * points)
})
