// Goal: on the command line a backup is never made unsealed, a restore never decides about keys in silence, and what is
// printed can be followed.

import { Database } from 'bun:sqlite'
import { afterEach, beforeEach, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readBackups } from '../../../src/backup/last.ts'
import { newIdentity } from '../../../src/backup/seal.ts'
import { waitingHostCommands } from '../../../src/host/host-commands.ts'
import { openOperatorKey } from '../../../src/host/operator-key.ts'
import { MIGRATIONS, openStore, schemaVersionOf } from '../../../src/store/db.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'
import { expectUsageError, runHere } from '../../rigs/program.ts'

let dir: string
/** The digest in the operator's own record. */
let operatorKey: string

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-backup-cli-'))
  mkdirSync(join(dir, 'state'))
  const store = openStore(join(dir, 'state/strongroom.db'))
  insertOrganization(store.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
  store.close()
  operatorKey = (await openOperatorKey(join(dir, 'state'))).digest.toHex()
  writeFileSync(join(dir, 'strongroom.toml'), '')
})

afterEach(() => rmSync(dir, { recursive: true }))

function strongroom(...argv: string[]) {
  return runHere(argv, {
    variables: { STRONGROOM_STATE_DIR: join(dir, 'state'), STRONGROOM_CONFIG: join(dir, 'strongroom.toml') },
  })
}

test('goal: from a key to a restore, as the help says', async () => {
  const identity = join(dir, 'identity.txt')
  const { stdout: recipient } = await strongroom('backup-key', identity)
  expect(recipient).toMatch(/^age1[a-z0-9]{58}\n$/)
  expect(statSync(identity).mode & 0o777).toBe(0o600)
  expect((await strongroom('backup-key', identity)).stderr).toContain('it exists')

  const file = join(dir, 'b.age')
  const made = await strongroom('backup', '--recipient', recipient.trim(), file, '--json')
  expect([made.code, JSON.parse(made.stdout)]).toMatchObject([
    0,
    { file, manifest: { format: 2 }, removed: [], signed_by: operatorKey },
  ])

  rmSync(join(dir, 'state'), { recursive: true })
  const opened = ['--identity-file', identity, '--operator-key', operatorKey]
  const dry = await strongroom('restore', file, ...opened, '--dry-run')
  expect([dry.code, dry.stdout]).toEqual([0, expect.stringContaining('strongroom.db')])
  expect(dry.stdout).toContain(operatorKey)
  expect(existsSync(join(dir, 'state'))).toBe(false)

  const undecided = await strongroom('restore', file, ...opened)
  expect([undecided.code, undecided.stderr]).toEqual([
    2,
    expect.stringContaining('would work again: decide with --keys'),
  ])
  expect(existsSync(join(dir, 'state'))).toBe(false)

  const restored = await strongroom('restore', file, ...opened, '--keys', 'keep')
  expect([restored.code, restored.stdout]).toEqual([0, expect.stringContaining('0 were revoked by this restore')])
  expect(restored.stderr).toContain('the old machine never serves again')
  openStore(join(dir, 'state/strongroom.db')).close()
  expect((await strongroom('restore', file, ...opened, '--keys', 'keep')).code).toBe(5)
})

test('goal: --unsigned leaves the signature out on both sides, and what is printed says so', async () => {
  const { identity, recipient } = await newIdentity()
  writeFileSync(join(dir, 'identity.txt'), identity)
  const file = join(dir, 'b.age')
  const made = await strongroom('backup', '--unsigned', '--recipient', recipient, file)
  expect([made.code, made.stdout]).toEqual([0, expect.stringMatching(/^signed by: unsigned$/m)])
  const dry = ['restore', file, '--identity-file', join(dir, 'identity.txt'), '--dry-run']
  const refused = await strongroom(...dry, '--operator-key', operatorKey)
  expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('the backup is not signed; --unsigned')])
  const waived = await strongroom(...dry, '--unsigned', '--json')
  expect([waived.code, JSON.parse(waived.stdout)]).toMatchObject([0, { signed_by: null, paths_to_allow: [] }])
})

test('goal: a key file outside of /etc/strongroom is restored only once its path is allowed', async () => {
  const { identity, recipient } = await newIdentity()
  writeFileSync(join(dir, 'identity.txt'), identity)
  const [file, keyFile] = [join(dir, 'b.age'), join(dir, 'upstream.key')]
  writeFileSync(keyFile, 'KEY')
  const upstream = `name = "a"\nurl = "https://a.test/v1"\nmodels = ["m"]\nkey_file = "${keyFile}"\n`
  writeFileSync(join(dir, 'strongroom.toml'), `[[inference.upstreams]]\n${upstream}`)
  expect((await strongroom('backup', '--recipient', recipient, file)).code).toBe(0)
  for (const name of ['state', 'upstream.key', 'strongroom.toml']) rmSync(join(dir, name), { recursive: true })
  const opened = [file, '--identity-file', join(dir, 'identity.txt'), '--operator-key', operatorKey]
  const dry = await strongroom('restore', ...opened, '--dry-run')
  expect([dry.code, dry.stderr]).toEqual([0, expect.stringContaining(`a restore needs --allow-path ${keyFile}`)])
  const refused = await strongroom('restore', ...opened, '--keys', 'keep')
  expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining(`add --allow-path ${keyFile}`)])
  expect(existsSync(keyFile)).toBe(false)
  const restored = await strongroom('restore', ...opened, '--keys', 'keep', '--allow-path', keyFile)
  expect([restored.code, readFileSync(keyFile, 'utf8')]).toEqual([0, 'KEY'])
})

test('goal: --keep rotates, and says what it removed', async () => {
  const passphrase = join(dir, 'passphrase')
  writeFileSync(passphrase, 'correct horse battery staple\n')
  const kept = join(dir, 'kept')
  mkdirSync(kept)
  writeFileSync(join(kept, 'strongroom-20200101T000000Z.age'), '')
  const { code, stdout } = await strongroom('backup', '--keep', '1', '--passphrase-file', passphrase, kept, '--json')
  expect([code, JSON.parse(stdout).removed]).toEqual([0, ['strongroom-20200101T000000Z.age']])
  const [name = ''] = readdirSync(kept)
  const opened = ['--passphrase-file', passphrase, '--operator-key', operatorKey]
  const dry = await strongroom('restore', join(kept, name), ...opened, '--dry-run', '--json')
  expect([dry.code, JSON.parse(dry.stdout).ok]).toEqual([0, true])
}, 60_000)

test('goal: the state directory has the last backup and the last failure, for the daemon to show', async () => {
  const passphrase = join(dir, 'passphrase')
  writeFileSync(passphrase, 'correct horse battery staple\n')
  const file = join(dir, 'b.age')
  const backup = () => strongroom('backup', '--passphrase-file', passphrase, file, '--json')
  const made = JSON.parse((await backup()).stdout)
  const known = readBackups(join(dir, 'state'), Date.now())
  expect(known).toMatchObject({
    ...{ state: 'good', nightly: false, failure: null, problem: null },
    last: { at: made.manifest.made_at, file, bytes: made.bytes },
  })

  writeFileSync(passphrase, 'short\n')
  expect((await backup()).code).not.toBe(0)
  const failed = readBackups(join(dir, 'state'), Date.now())
  expect(failed).toMatchObject({
    state: 'failed',
    last: known.last,
    failure: { message: expect.stringContaining('has 5 characters') },
  })

  writeFileSync(passphrase, 'correct horse battery staple\n')
  expect((await backup()).code).toBe(0)
  expect(readBackups(join(dir, 'state'), Date.now())).toMatchObject({ state: 'good', failure: null })
  rmSync(join(dir, 'state'), { recursive: true })
  expect((await backup()).code).not.toBe(0)
  expect(existsSync(join(dir, 'state'))).toBe(false)
}, 60_000)

test('goal: a command takes a backup that restores, and its failure is on record', async () => {
  const passphrase = join(dir, 'passphrase')
  writeFileSync(passphrase, 'correct horse battery staple\n')
  const stored = join(dir, 'stored')
  mkdirSync(stored)
  const command = `cat > "${stored}/$STRONGROOM_BACKUP_NAME"`
  const made = await strongroom('backup', '--passphrase-file', passphrase, '--to-command', command, '--json')
  expect(made.code).toBe(0)
  const [name = ''] = readdirSync(stored)
  expect(JSON.parse(made.stdout)).toMatchObject({
    file: `${name} by --to-command`,
    bytes: statSync(join(stored, name)).size,
  })
  const opened = ['--passphrase-file', passphrase, '--operator-key', operatorKey]
  const dry = await strongroom('restore', join(stored, name), ...opened, '--dry-run', '--json')
  expect([dry.code, JSON.parse(dry.stdout).ok]).toEqual([0, true])
  expect(readBackups(join(dir, 'state'), Date.now())).toMatchObject({
    state: 'good',
    last: { file: `${name} by --to-command` },
  })
  const failing = 'cat > /dev/null; echo no such bucket >&2; exit 3'
  expect((await strongroom('backup', '--passphrase-file', passphrase, '--to-command', failing)).code).not.toBe(0)
  expect(readBackups(join(dir, 'state'), Date.now())).toMatchObject({
    state: 'failed',
    failure: { message: 'the command of the backup failed: exit code 3: no such bucket' },
  })
  expect(readdirSync(join(dir, 'state'))).not.toContain('backup.partial')
}, 60_000)

test('goal: backup, its failure, restore and downgrade are noted for the record of commands', async () => {
  const noted = () =>
    waitingHostCommands(join(dir, 'state')).map(({ command }) => [command?.operation, command?.result])
  const passphrase = join(dir, 'passphrase')
  writeFileSync(passphrase, 'correct horse battery staple\n')
  const file = join(dir, 'b.age')
  const backup = ['backup', '--passphrase-file', passphrase]
  expect((await strongroom(...backup, '--to-command', 'exit 3')).code).not.toBe(0)
  expect((await strongroom(...backup, file)).code).toBe(0)
  expect(noted()).toEqual([
    ['backup', 'host.command_failed'],
    ['backup', 'ok'],
  ])
  rmSync(join(dir, 'state'), { recursive: true })
  const opened = ['--passphrase-file', passphrase, '--operator-key', operatorKey]
  expect((await strongroom('restore', file, ...opened, '--keys', 'keep')).code).toBe(0)
  expect(noted()).toEqual([['restore', 'ok']])
  const path = join(dir, 'state/strongroom.db')
  openStore(path).close()
  const sqlite = new Database(path)
  const schema = schemaVersionOf(MIGRATIONS)
  sqlite.run('VACUUM INTO ?', [`${path}.schema-${schema}`])
  sqlite.run(`PRAGMA user_version = ${schema + 1}`)
  sqlite.close()
  expect((await strongroom('downgrade')).code).toBe(0)
  expect(noted()).toEqual([
    ['restore', 'ok'],
    ['downgrade', 'ok'],
  ])
}, 60_000)

test('goal: nothing is written unsealed or by a guess', async () => {
  const file = join(dir, 'b.age')
  writeFileSync(join(dir, 'short'), 'password\n')
  writeFileSync(join(dir, 'empty'), '# none\n')
  const restore = ['restore', file, '--identity-file', join(dir, 'empty')]
  for (const [argv, message] of [
    [['backup', file], 'say for whom it is sealed'],
    [['backup', file, '--recipients-file', join(dir, 'empty')], 'say for whom it is sealed'],
    [['backup', file, '--passphrase-file', join(dir, 'short')], 'the first line has 8 characters'],
    [['backup', file, '--passphrase-file', join(dir, 'short'), '--recipient', 'age1x'], 'say for whom it is sealed'],
    [['backup', file, '--recipient', 'age1x', '--keep', '0'], '--keep 0: not a number'],
    [['backup', '--recipient', 'age1x'], 'say where the backup goes'],
    [['backup', file, '--recipient', 'age1x', '--to-command', 'cat'], 'neither a target nor --keep'],
    [['backup', '--recipient', 'age1x', '--to-command', 'cat', '--keep', '1'], 'neither a target nor --keep'],
    [['backup', '--recipient', 'age1x', '--to-command', ' '], 'takes a command'],
    [['restore', file], 'say what opens the backup'],
    [['restore', file, '--dry-run'], 'say what opens the backup'],
    [[...restore, '--dry-run'], '--operator-key names the key that must have signed it'],
    [[...restore, '--keys', 'keep'], '--operator-key names the key that must have signed it'],
    [[...restore, '--unsigned', '--operator-key', operatorKey], '--operator-key and --unsigned exclude each other'],
    [[...restore, '--operator-key', join(dir, 'none')], 'there is no such file'],
    [[...restore, '--unsigned', '--keys', 'all'], 'choose one of keep, revoke'],
    [[...restore, '--unsigned', '--keys', 'revoke', '--revoke', 'x'], 'choose one of keep, revoke'],
  ] as const)
    await expectUsageError(argv, message)
  const wrong = await strongroom('backup', file, '--recipient', 'age1wrong')
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('no age recipient: age1wrong')])
  expect(existsSync(file)).toBe(false)
})

test('goal: the units do what the help says: off without recipients, the same directory and number', () => {
  const unit = (name: string) => readFileSync(join(import.meta.dir, '../../../scripts/systemd', name), 'utf8')
  const service = unit('strongroom-backup.service')
  expect(service).toContain('ConditionPathExists=/etc/strongroom/backup-recipients.txt')
  expect(service).toMatch(/^ExecStart=\S+ backup --keep 14 --recipients-file \S+ \/var\/backups\/strongroom$/m)
  expect(service).toContain('OnFailure=strongroom-backup-failed.service')
  // As systemd runs it: a double percent sign is one, and the variables come from the unit that failed.
  const script = /^ExecStart=\/bin\/sh -c '(.*)'$/m.exec(unit('strongroom-backup-failed.service'))?.[1] ?? ''
  const here = script.replaceAll('%%', '%').replace('/var/lib/strongroom/', `${join(dir, 'state')}/`)
  const env = { MONITOR_SERVICE_RESULT: 'exit-code', MONITOR_EXIT_CODE: 'exited', MONITOR_EXIT_STATUS: '226' }
  expect(Bun.spawnSync(['/bin/sh', '-c', here], { env }).exitCode).toBe(0)
  expect(readBackups(join(dir, 'state'), Date.now())).toMatchObject({
    state: 'failed',
    failure: { message: 'strongroom-backup.service failed and made no backup: exit-code exited 226' },
  })
  expect(unit('strongroom-backup.timer')).toContain('WantedBy=timers.target')
})

test('goal: downgrade says what it put back and where the newer records are, and refuses when there is nothing to do', async () => {
  const path = join(dir, 'state/strongroom.db')
  expect((await strongroom('downgrade')).code).toBe(4)
  const sqlite = new Database(path)
  const schema = schemaVersionOf(MIGRATIONS)
  sqlite.run('VACUUM INTO ?', [`${path}.schema-${schema}`])
  expect((await strongroom('downgrade')).code).toBe(5)
  sqlite.run(`PRAGMA user_version = ${schema + 1}`)
  sqlite.close()
  const { code, stdout, stderr } = await strongroom('downgrade', '--json')
  expect([code, stderr, JSON.parse(stdout)]).toMatchObject([
    0,
    '',
    { schema, set_aside: `${path}.set-aside-${schema + 1}` },
  ])
  openStore(path).close()
})
