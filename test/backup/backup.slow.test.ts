// Goal: a backup that was made beside a daemon holds all that was acknowledged before; restored, it is what was there,
// and what must not come back does not. Real SQLite, real files, real age.

import { Database } from 'bun:sqlite'
import { afterEach, beforeEach, expect, test } from 'bun:test'
import { generateKeyPairSync } from 'node:crypto'
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Decrypter } from 'age-encryption'
import { keepBackups, makeBackup } from '../../src/backup/backup.ts'
import { surplusOf } from '../../src/backup/keep.plan.ts'
import { checkBackup, restoreBackup } from '../../src/backup/restore.ts'
import { type Key, newIdentity } from '../../src/backup/seal.ts'
import { Fault } from '../../src/base/fault.ts'
import { loadConfig } from '../../src/config/load.ts'
import { leftoversOfRecords } from '../../src/host/state-files.ts'
import { openStore, type Store } from '../../src/store/db.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'
import { swapMeta } from '../../src/store/ledger/meta.query.ts'
import { hasNonce, insertNonce } from '../../src/store/ledger/nonce.query.ts'

const nowMs = Date.UTC(2026, 10, 25, 3)

let dir: string
let state: string
let file: string
let identity: string
let recipient: string

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-backup-'))
  state = join(dir, 'state')
  file = join(dir, 'backup.age')
  mkdirSync(state)
  const pair = await newIdentity()
  identity = pair.identity
  recipient = pair.recipient
})

afterEach(() => rmSync(dir, { recursive: true }))

/** An appliance that has run: records, keys, a configuration that names files. */
function appliance(): Store {
  const store = openStore(join(state, 'strongroom.db'))
  const { db } = store.directory
  insertOrganization(db, { id: 'o1', slug: 'acme', nowMs: 1 })
  db.run(`INSERT INTO keys (prefix, organization_id, secret_sha256, scope, created_at_ms, revoked_at_ms)
    VALUES ('sk_live', 'o1', zeroblob(32), 'write', 1, NULL), ('sk_lost', 'o1', zeroblob(32), 'write', 1, NULL), ('sk_old', 'o1', zeroblob(32), 'read', 1, 7)`)
  db.run(
    `INSERT INTO gateway_keys (prefix, organization_id, secret_sha256, created_at_ms) VALUES ('gk_live', 'o1', zeroblob(32), 1)`,
  )
  db.run(`INSERT INTO idempotency VALUES ('o1', 'once', zeroblob(32), 201, '{}', 5)`)
  db.run(`INSERT INTO vms (id, host_id, image, desired, state, vcpus, memory_mib, created_at_ms, changed_at_ms)
    VALUES ('v1', '${store.hostId}', 'instance', 'running', 'running', 1, 512, 1, 1)`)
  insertNonce(store.ledger.db, { nonce: new Uint8Array(32).fill(7), nowMs: 5 })
  swapMeta(store.ledger.db, 'host_boot_id', 'the boot of the old machine')
  for (const [path, text] of Object.entries(STATE)) {
    mkdirSync(join(state, path, '..'), { recursive: true })
    writeFileSync(join(state, path), text, { mode: 0o600 })
  }
  chmodSync(join(state, 'ca/ca.pem'), 0o644)
  // Made again by the daemon, or nobody's.
  mkdirSync(join(state, 'vms/v1'), { recursive: true })
  writeFileSync(join(state, 'vms/v1/disk'), 'x'.repeat(5_000))
  writeFileSync(join(state, 'ca/ca.key.tmp'), 'half')
  // A restored host must not take itself for the one that has answered for this tree (transparency/log.ts).
  writeFileSync(join(state, 'log-head.txt'), 'head')
  return store
}

const STATE: Record<string, string> = {
  'operator-key.pem': generateKeyPairSync('ec', { namedCurve: 'P-384' })
    .privateKey.export({ format: 'pem', type: 'pkcs8' })
    .toString(),
  'operator-key.pub.pem': 'public',
  'operator-keys.txt': 'history',
  'gateway-key.secret': 's'.repeat(32),
  'control.key': 'control',
  'log-key.pem': 'log',
  'ca/ca.key': 'authority',
  'ca/ca.pem': 'root',
  'guest-ca/ca.key': 'guests',
  'simulator/keys.json': '{}',
  'allowlist.json': '{"a":1}',
  'kds/vcek.der': 'der',
}

function configured() {
  const path = join(dir, 'strongroom.toml')
  writeFileSync(join(dir, 'tls.pem'), 'CERTIFICATE')
  writeFileSync(join(dir, 'tls.key'), 'KEY', { mode: 0o600 })
  writeFileSync(path, `[tls]\ncertificate_file = "${join(dir, 'tls.pem')}"\nkey_file = "${join(dir, 'tls.key')}"\n`)
  return loadConfig({ path, env: {} })
}

function options() {
  return { stateDir: state, loaded: configured(), seal: { recipients: [recipient] }, isSigned: true, nowMs }
}

function make() {
  return makeBackup(file, options())
}

function outside() {
  return { configurationFile: join(dir, 'strongroom.toml'), directories: [dir], paths: [] }
}

function restore(change: Partial<Parameters<typeof restoreBackup>[1]> = {}) {
  return restoreBackup(file, {
    stateDir: join(dir, 'new'),
    key: { identities: [identity] },
    operatorKey: 'any',
    keys: { kind: 'keep', revoke: [] },
    outside: outside(),
    setAside: false,
    nowMs: nowMs + 1,
    ...change,
  })
}

async function faultOf(work: Promise<unknown>): Promise<Fault> {
  try {
    await work
  } catch (error) {
    if (error instanceof Fault) return error
    throw error
  }
  throw new Error('no fault')
}

test('goal: every row that was acknowledged before a backup began is in it, while others write without a pause', async () => {
  const store = appliance()
  const writer = Bun.spawn([process.execPath, '-e', WRITER, join(state, 'strongroom.db')], { stdout: 'pipe' })
  try {
    const lines = writer.stdout[Symbol.asyncIterator]()
    for (let round = 0; round < 3; round += 1) {
      let acknowledged = -1
      // A line is written after its commit.
      while (acknowledged < 20 * (round + 1)) {
        const { value } = await lines.next()
        acknowledged = Number(new TextDecoder().decode(value).trim().split('\n').at(-1))
      }
      await make()
      rmSync(join(dir, 'new'), { recursive: true, force: true })
      await restore()
      const copy = new Database(join(dir, 'new/strongroom.db'))
      const found = copy.query<{ at_ms: number }, []>("SELECT at_ms FROM events WHERE kind = 'w' ORDER BY at_ms").all()
      copy.close()
      expect(found.length).toBeGreaterThan(acknowledged)
      // A prefix of what was written: nothing is missing in the middle.
      expect(found.map(({ at_ms }) => at_ms)).toEqual(found.map((_, index) => index))
    }
  } finally {
    writer.kill('SIGKILL')
    await writer.exited
    store.close()
  }
}, 60_000)

const WRITER = `
  const { Database } = require('bun:sqlite')
  const db = new Database(process.argv[1])
  db.run('PRAGMA busy_timeout = 5000')
  db.run('PRAGMA synchronous = FULL')
  for (let at = 0; ; at += 1) {
    db.run("INSERT INTO events (at_ms, kind, subject, detail) VALUES (" + at + ", 'w', '', '{}')")
    require('node:fs').writeSync(1, at + '\\n')
  }
`

test('goal: restored is what was there: records, keys, authorities, configuration and what it names, with their modes', async () => {
  const store = appliance()
  const { manifest } = await make()
  store.close()
  expect(statSync(file).mode & 0o777).toBe(0o600)
  expect(readdirSync(state).filter(name => name.includes('partial'))).toEqual([])
  for (const name of ['strongroom.toml', 'tls.pem', 'tls.key']) rmSync(join(dir, name))
  const { written, vmsLost, keysLive, keysRevoked } = await restore()
  expect([vmsLost, keysLive, keysRevoked]).toEqual([1, 3, 0])
  expect(written).toEqual([join(dir, 'strongroom.toml'), join(dir, 'tls.pem'), join(dir, 'tls.key'), join(dir, 'new')])
  for (const [path, text] of Object.entries(STATE)) expect(readFileSync(join(dir, 'new', path), 'utf8')).toBe(text)
  const modes = ['ca/ca.pem', 'ca/ca.key', 'operator-key.pem'].map(
    path => statSync(join(dir, 'new', path)).mode & 0o777,
  )
  expect(modes).toEqual([0o644, 0o600, 0o600])
  expect(statSync(join(dir, 'tls.key')).mode & 0o777).toBe(0o600)
  expect(readdirSync(join(dir, 'new')).toSorted()).toEqual(
    ['lock', 'strongroom.db', ...new Set(Object.keys(STATE).map(path => path.split('/')[0] ?? ''))].toSorted(),
  )
  expect(manifest.entries.map(({ path }) => path)).not.toContain('ca/ca.key.tmp')
  const before = openStore(join(state, 'strongroom.db'))
  const after = openStore(join(dir, 'new/strongroom.db'), { leftovers: leftoversOfRecords(join(dir, 'new')) })
  for (const table of ['organizations', 'keys', 'gateway_keys', 'idempotency', 'nonces', 'vms']) {
    const rows = (of: Store) => of.directory.db.all(`SELECT * FROM ${table}`)
    expect([table, rows(after)]).toEqual([table, rows(before)])
  }
  // A nonce that was used is used; a create that was answered is answered alike.
  expect(hasNonce(after.ledger.db, new Uint8Array(32).fill(7))).toBe(true)
  expect(after.hostId).toBe(before.hostId)
  expect(swapMeta(after.ledger.db, 'host_boot_id', 'x')).toBe('restored')
  before.close()
  after.close()
})

test('goal: a key that was revoked before the backup stays revoked; of the others the operator decides', async () => {
  appliance().close()
  await make()
  const revoked = () => {
    const sqlite = new Database(join(dir, 'new/strongroom.db'), { readonly: true })
    const sql =
      'SELECT prefix, revoked_at_ms AS at FROM keys UNION SELECT prefix, revoked_at_ms FROM gateway_keys ORDER BY 1'
    const rows = sqlite.query<{ prefix: string; at: number | null }, []>(sql).all()
    sqlite.close()
    rmSync(join(dir, 'new'), { recursive: true })
    return Object.fromEntries(rows.map(({ prefix, at }) => [prefix, at]))
  }
  await restore()
  expect(revoked()).toEqual({ gk_live: null, sk_live: null, sk_lost: null, sk_old: 7 })
  await restore({ keys: { kind: 'keep', revoke: ['sk_lost', 'sk_old'] } })
  expect(revoked()).toEqual({ gk_live: null, sk_live: null, sk_lost: nowMs + 1, sk_old: 7 })
  expect(await restore({ keys: { kind: 'revoke' } })).toMatchObject({ keysLive: 0, keysRevoked: 3 })
  expect(revoked()).toEqual({ gk_live: nowMs + 1, sk_live: nowMs + 1, sk_lost: nowMs + 1, sk_old: 7 })
  expect(await faultOf(restore({ keys: { kind: 'keep', revoke: ['sk_typo'] } }))).toMatchObject({ code: 'not_found' })
  expect(readdirSync(join(dir, 'new'))).toEqual(['lock'])
})

test('goal: a state directory with anything of an appliance in it is refused and left as it is; images may be there', async () => {
  appliance().close()
  await make()
  const target = join(dir, 'new')
  for (const name of ['strongroom.db', 'operator-key.pem', 'vms', 'unknown']) {
    mkdirSync(target)
    writeFileSync(join(target, name), 'mine')
    const { code, message } = await faultOf(restore())
    expect([code, message]).toEqual(['conflict', expect.stringContaining(`not empty (${name})`)])
    expect(readFileSync(join(target, name), 'utf8')).toBe('mine')
    rmSync(target, { recursive: true })
  }
  mkdirSync(join(target, 'images/instance'), { recursive: true })
  await restore()
  expect(existsSync(join(target, 'images/instance'))).toBe(true)
})

test('goal: a file outside of the state directory is never overwritten: an equal one stays, another refuses', async () => {
  appliance().close()
  await make()
  writeFileSync(join(dir, 'tls.key'), 'ANOTHER')
  const fault = await faultOf(restore())
  expect([fault.code, fault.message]).toEqual(['conflict', expect.stringContaining(join(dir, 'tls.key'))])
  expect(readdirSync(join(dir, 'new'))).toEqual(['lock'])
  const { written } = await restore({ outside: null })
  expect([written, readFileSync(join(dir, 'tls.key'), 'utf8')]).toEqual([[join(dir, 'new')], 'ANOTHER'])
})

test('goal: what is in the way of a restore moves aside, nothing of it is lost, and a bad backup moves nothing', async () => {
  appliance().close()
  await make()
  const target = join(dir, 'new')
  mkdirSync(join(target, 'images/instance'), { recursive: true })
  writeFileSync(join(target, 'operator-key.pem'), 'mine')
  // `strongroom teardown` still has to put these back.
  writeFileSync(join(target, 'changed-settings.json'), '{}')
  writeFileSync(join(dir, 'tls.key'), 'ANOTHER')
  const whole = readFileSync(file)
  writeFileSync(file, whole.subarray(0, -1))
  expect((await faultOf(restore({ setAside: true }))).code).toBe('invalid_request')
  expect([readdirSync(target).toSorted(), readFileSync(join(dir, 'tls.key'), 'utf8')]).toEqual([
    ['changed-settings.json', 'images', 'lock', 'operator-key.pem'],
    'ANOTHER',
  ])
  writeFileSync(file, whole)
  const { setAside } = await restore({ setAside: true })
  expect(setAside).toEqual([join(target, 'set-aside-1'), join(dir, 'tls.key.set-aside-1')])
  expect(readFileSync(join(target, 'set-aside-1/operator-key.pem'), 'utf8')).toBe('mine')
  expect(readFileSync(join(dir, 'tls.key.set-aside-1'), 'utf8')).toBe('ANOTHER')
  for (const name of ['images/instance', 'changed-settings.json']) expect(existsSync(join(target, name))).toBe(true)
  expect(readFileSync(join(dir, 'tls.key'), 'utf8')).toBe('KEY')
  // Once more: what was restored goes aside as well, and the first is still there.
  expect((await restore({ setAside: true })).setAside).toEqual([join(target, 'set-aside-2')])
  expect(readFileSync(join(target, 'set-aside-1/operator-key.pem'), 'utf8')).toBe('mine')
})

type Change = { readonly key: Key } | null

const damaged = (work: () => void) => async (): Promise<Change> => {
  work()
  return null
}

// Goal: a backup that is not whole, or not ours to open, changes nothing.
test.each<[string, () => Promise<Change>]>([
  ['another key', async () => ({ key: { identities: [(await newIdentity()).identity] } })],
  ['a passphrase', async () => ({ key: { passphrase: 'correct horse battery' } })],
  ['cut short', damaged(() => truncateSync(file, statSync(file).size - 1))],
  ['cut at half', damaged(() => truncateSync(file, Math.floor(statSync(file).size / 2)))],
  ['a changed byte', damaged(() => flip(Math.floor(statSync(file).size / 2)))],
  ['a changed last byte', damaged(() => flip(statSync(file).size - 1))],
  ['something behind it', damaged(() => writeFileSync(file, 'more', { flag: 'a' }))],
  ['no backup', damaged(() => writeFileSync(file, 'nothing of the kind'))],
])(
  '%s',
  async (name, damage) => {
    appliance().close()
    await make()
    const fault = await faultOf(restore((await damage()) ?? {}))
    expect([name, fault.code]).toEqual([name, 'invalid_request'])
    expect(readdirSync(join(dir, 'new'))).toEqual(['lock'])
  },
  30_000,
)

function flip(at: number): void {
  const bytes = readFileSync(file)
  bytes[at] = (bytes[at] ?? 0) ^ 1
  writeFileSync(file, bytes)
}

test('goal: a dry run reads and checks all of it', async () => {
  appliance().close()
  const { manifest } = await make()
  const options = {
    stateDir: join(dir, 'new'),
    key: { identities: [identity] },
    operatorKey: 'any',
    outside: outside(),
  } as const
  const found = await checkBackup(file, options, mkdtempSync(join(dir, 'check-')))
  expect(found).toEqual({ manifest, signer: null, unlisted: [] })
  flip(statSync(file).size - 1)
  const check = checkBackup(file, options, mkdtempSync(join(dir, 'check-')))
  expect((await faultOf(check)).code).toBe('invalid_request')
})

test('goal: a damaged database is not backed up, and the earlier backup stays', async () => {
  appliance().close()
  await make()
  const earlier = readFileSync(file)
  const path = join(state, 'strongroom.db')
  const bytes = readFileSync(path)
  bytes.fill(0xa5, 4_096 * 3, 4_096 * 6)
  writeFileSync(path, bytes)
  expect((await faultOf(make())).code).toBe('store.corrupt')
  expect(readFileSync(file).equals(earlier)).toBe(true)
  expect(readdirSync(dir).filter(name => name.endsWith('.partial'))).toEqual([])
})

test('goal: nothing but a regular file is replaced, and a directory that is there keeps its mode', async () => {
  appliance().close()
  mkdirSync(file)
  expect((await faultOf(make())).code).toBe('invalid_request')
  rmSync(file, { recursive: true })
  symlinkSync('/dev/null', file)
  expect((await faultOf(make())).code).toBe('invalid_request')
  expect(lstatSync(file).isSymbolicLink()).toBe(true)
  const shared = join(dir, 'shared')
  mkdirSync(shared)
  chmodSync(shared, 0o755)
  await keepBackups(shared, 1, {
    stateDir: state,
    loaded: configured(),
    seal: { recipients: [recipient] },
    isSigned: true,
    nowMs,
  })
  expect([statSync(shared).mode & 0o777, readdirSync(shared).length]).toEqual([0o755, 1])
})

test('goal: a directory keeps the newest so many, forgets half ones, and touches nothing else', async () => {
  appliance().close()
  const target = join(dir, 'kept')
  mkdirSync(target)
  for (const name of ['strongroom-20261101T000000Z.age.partial', 'notes.txt', 'other.age'])
    writeFileSync(join(target, name), '')
  const options = { stateDir: state, loaded: configured(), seal: { recipients: [recipient] }, isSigned: true }
  for (let day = 0; day < 4; day += 1) await keepBackups(target, 2, { ...options, nowMs: nowMs + day * 86_400_000 })
  expect(readdirSync(target).toSorted()).toEqual([
    'notes.txt',
    'other.age',
    'strongroom-20261127T030000Z.age',
    'strongroom-20261128T030000Z.age',
  ])
  expect(surplusOf(['strongroom-20261127T030000Z.age'], 1)).toEqual([])
})

test('goal: one backup at a time, and a restore never beside a daemon', async () => {
  appliance().close()
  await make()
  const both = await Promise.allSettled([make(), make()])
  expect(both.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected'])
  mkdirSync(join(dir, 'new'))
  const holder = Bun.spawn(['flock', '--nonblock', join(dir, 'new/lock'), 'sh', '-c', 'echo held; cat'], {
    stdin: 'pipe',
    stdout: 'pipe',
  })
  await holder.stdout.getReader().read()
  expect((await faultOf(restore())).code).toBe('conflict')
  holder.stdin.end()
  await holder.exited
  await restore()
})

test('goal: without our executable the file opens with age and tar', async () => {
  appliance().close()
  await make()
  const decrypter = new Decrypter()
  decrypter.addIdentity(identity)
  const tar = join(dir, 'plain.tar')
  writeFileSync(tar, await decrypter.decrypt(new Uint8Array(readFileSync(file))))
  const child = Bun.spawnSync(['tar', '--extract', '--to-stdout', '--file', tar, 'manifest.json'])
  expect(JSON.parse(child.stdout.toString())).toMatchObject({ format: 2, made_at: '2026-11-25T03:00:00.000Z' })
  const names = Bun.spawnSync(['tar', '--list', '--file', tar]).stdout.toString().trim().split('\n')
  expect(names.at(-1)).toBe(`files/${names.length - 3}`)
})
