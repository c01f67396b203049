// Goal: a restore trusts the operator key that the operator wrote down and nothing in the backup, and it writes only
// where the state directory, the restored configuration and the operator agree. The attacker here knows the age
// recipient, so each forged file opens.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeBackup } from '../../src/backup/backup.ts'
import type { Manifest, ManifestEntry } from '../../src/backup/manifest.ts'
import { checkBackup, restoreBackup } from '../../src/backup/restore.ts'
import { newIdentity, seal, unseal } from '../../src/backup/seal.ts'
import { TarReader, tarStream } from '../../src/backup/tar.ts'
import { Fault } from '../../src/base/fault.ts'
import { loadConfig } from '../../src/config/load.ts'
import { openOperatorKey } from '../../src/host/operator-key.ts'
import { openStore } from '../../src/store/db.ts'

const nowMs = Date.UTC(2026, 10, 25, 3)

let dir: string
let state: string
/** `/etc/strongroom` of this test. */
let etc: string
let file: string
let identity: string
let recipient: string
/** The digest in the operator's own record. */
let operatorKey: Uint8Array

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-forged-'))
  state = join(dir, 'state')
  etc = join(dir, 'etc')
  file = join(dir, 'backup.age')
  mkdirSync(state)
  mkdirSync(etc)
  const pair = await newIdentity()
  identity = pair.identity
  recipient = pair.recipient
  openStore(join(state, 'strongroom.db')).close()
  operatorKey = (await openOperatorKey(state)).digest
  writeFileSync(join(etc, 'upstream.key'), 'KEY', { mode: 0o600 })
  writeFileSync(join(etc, 'strongroom.toml'), upstream(join(etc, 'upstream.key')))
})

afterEach(() => rmSync(dir, { recursive: true }))

function upstream(keyFile: string): string {
  return `[[inference.upstreams]]\nname = "a"\nurl = "https://a.test/v1"\nmodels = ["m"]\nkey_file = "${keyFile}"\n`
}

function make(change: { readonly stateDir?: string; readonly isSigned?: boolean } = {}) {
  const loaded = loadConfig({ path: join(etc, 'strongroom.toml'), env: {} })
  const sealed = { recipients: [recipient] }
  return makeBackup(file, { stateDir: state, loaded, seal: sealed, isSigned: true, nowMs, ...change })
}

function rules(paths: readonly string[] = []) {
  return { configurationFile: join(etc, 'strongroom.toml'), directories: [etc], paths }
}

/** On the new machine, where none of the files is there. */
function restore(change: Partial<Parameters<typeof restoreBackup>[1]> = {}) {
  rmSync(etc, { recursive: true, force: true })
  return restoreBackup(file, {
    stateDir: join(dir, 'new'),
    key: { identities: [identity] },
    operatorKey,
    keys: { kind: 'keep', revoke: [] },
    outside: rules(),
    setAside: false,
    nowMs: nowMs + 1,
    ...change,
  })
}

async function faultOf(work: Promise<unknown>): Promise<{ code: string; message: string }> {
  try {
    await work
  } catch (error) {
    if (error instanceof Fault) return { code: error.code, message: error.message }
    throw error
  }
  return { code: 'no fault', message: 'the backup was restored' }
}

/** The restore left nothing but its lock. */
function expectUntouched(): void {
  expect(existsSync(etc)).toBe(false)
  const target = join(dir, 'new')
  expect(existsSync(target) ? readdirSync(target) : ['lock']).toEqual(['lock'])
}

type Packed = { readonly name: string; readonly content: Uint8Array }

async function unpacked(): Promise<Packed[]> {
  const reader = new TarReader(await unseal(Bun.file(file).stream(), { identities: [identity] }))
  const files: Packed[] = []
  for (let next = await reader.next(); next !== null; next = await reader.next()) {
    const content = new Uint8Array(Buffer.concat(await Array.fromAsync(reader.content(next.bytes))))
    files.push({ name: next.name, content })
  }
  return files
}

async function pack(files: readonly Packed[]): Promise<void> {
  const sized = files.map(entry => ({ ...entry, bytes: entry.content.length }))
  await Bun.write(file, new Response(await seal(tarStream(sized, 0), { recipients: [recipient] })))
}

const utf8 = (text: string) => new TextEncoder().encode(text)

/** Packs the backup again with a changed manifest, as an attacker would who has the recipient and no other key. */
async function changeManifest(change: (manifest: Manifest) => unknown): Promise<void> {
  const files = await unpacked()
  const manifest = JSON.parse(new TextDecoder().decode(files[0]?.content))
  await pack([{ name: 'manifest.json', content: utf8(JSON.stringify(change(manifest))) }, ...files.slice(1)])
}

/** Packs a backup without a signature and with more files, as `--unsigned` would accept it. */
async function addFiles(more: readonly { kind: string; path: string; text: string }[]): Promise<void> {
  await make({ isSigned: false })
  const [first, ...rest] = await unpacked()
  const manifest: Manifest = JSON.parse(new TextDecoder().decode(first?.content))
  const added = more.map(({ kind, path, text }) => {
    const sha256 = createHash('sha256').update(text).digest('hex')
    return { kind, path, mode: 0o600, bytes: text.length, sha256 } as ManifestEntry
  })
  const names = more.map(({ text }, at) => ({ name: `files/${manifest.entries.length + at}`, content: utf8(text) }))
  const entries = [...manifest.entries, ...added]
  await pack([{ name: 'manifest.json', content: utf8(JSON.stringify({ ...manifest, entries })) }, ...rest, ...names])
}

test('goal: a signed backup is restored under the key that the operator wrote down', async () => {
  expect((await make()).signer).toEqual(operatorKey)
  const { signer, written } = await restore()
  expect(signer).toEqual(operatorKey)
  expect(written).toEqual([join(etc, 'strongroom.toml'), join(etc, 'upstream.key'), join(dir, 'new')])
  expect(readFileSync(join(etc, 'upstream.key'), 'utf8')).toBe('KEY')
})

test('goal: an attacker who knows the age recipient cannot make a backup that is restored', async () => {
  const theirs = join(dir, 'theirs')
  mkdirSync(theirs)
  openStore(join(theirs, 'strongroom.db')).close()
  const { digest } = await openOperatorKey(theirs)
  await make({ stateDir: theirs })
  const foreign = await faultOf(restore())
  expect([foreign.code, foreign.message]).toEqual([
    'invalid_request',
    expect.stringContaining(`not signed with the operator key ${operatorKey.toHex()}, but with another one`),
  ])
  // A digest from the backup would vouch for itself.
  expect(foreign.message).not.toContain(digest.toHex())
  expectUntouched()
  // The public half of the right key beside another key's signature.
  mkdirSync(etc)
  writeFileSync(join(etc, 'strongroom.toml'), '')
  cpSync(join(state, 'operator-key.pub.pem'), join(theirs, 'operator-key.pub.pem'))
  const mixed = await unpacked()
  await make()
  const ours = JSON.parse(new TextDecoder().decode((await unpacked())[1]?.content))
  const theirsSigned = JSON.parse(new TextDecoder().decode(mixed[1]?.content))
  const content = utf8(JSON.stringify({ ...theirsSigned, public_key: ours.public_key }))
  await pack([...mixed.slice(0, 1), { name: 'manifest.sig', content }, ...mixed.slice(2)])
  expect((await faultOf(restore())).message).toContain('the signature of the manifest does not fit its content')
  expectUntouched()
})

test('goal: a backup without a signature needs the word of the operator', async () => {
  await make({ isSigned: false })
  const { code, message } = await faultOf(restore())
  expect([code, message]).toEqual(['invalid_request', expect.stringContaining('the backup is not signed')])
  expect(message).toContain('--unsigned')
  expectUntouched()
  expect((await restore({ operatorKey: 'any' })).signer).toBeNull()
})

// Goal: nothing of a signed manifest can change, and no signed file can be replaced or taken away.
test.each<[string, () => Promise<void>]>([
  ['a host', () => changeManifest(manifest => ({ ...manifest, host_id: 'another' }))],
  ['a time', () => changeManifest(manifest => ({ ...manifest, made_at: '2030-01-01T00:00:00.000Z' }))],
  ['a mode', () => changeManifest(({ entries, ...rest }) => ({ ...rest, entries: moded(entries) }))],
  ['a format', () => changeManifest(manifest => ({ ...manifest, format: 1 }))],
  ['a space', () => changeManifest(manifest => manifest)],
  ['no signature', async () => pack((await unpacked()).filter(({ name }) => name !== 'manifest.sig'))],
  [
    'neither format nor signature',
    async () => {
      await changeManifest(manifest => ({ ...manifest, format: 1 }))
      await pack((await unpacked()).filter(({ name }) => name !== 'manifest.sig'))
    },
  ],
  [
    'another content',
    async () => {
      const changed = (content: Uint8Array) => content.map(byte => byte ^ 1)
      await pack((await unpacked()).map(e => (e.name === 'files/0' ? { ...e, content: changed(e.content) } : e)))
    },
  ],
])('%s of a signed backup that changed is refused', async (_, change) => {
  await make()
  await change()
  expect((await faultOf(restore())).code).toBe('invalid_request')
  expectUntouched()
})

function moded(entries: readonly ManifestEntry[]): ManifestEntry[] {
  return entries.map(entry => ({ ...entry, mode: 0o666 }))
}

// Goal: even where the signature is waived, a file list leads nowhere that the restored configuration does not name.
test.each<[string, () => { kind: string; path: string }[], string]>([
  ['a file that no field names', () => [named(join(etc, 'cron'))], 'which its configuration does not name'],
  ['a second configuration', () => [{ kind: 'configuration', path: join(etc, 'b.toml') }], 'two configuration files'],
  ['a path twice', () => [named(join(etc, 'upstream.key')), named(join(etc, 'upstream.key'))], 'twice'],
  ['a path of two kinds', () => [named(join(etc, 'strongroom.toml'))], 'twice'],
  ['a file as a directory', () => [named(join(etc, 'upstream.key/b'))], 'both a file and a directory'],
  ['a file as a state directory', () => [{ kind: 'state', path: 'operator-key.pem/b' }], 'both a file and a directory'],
])('%s is refused', async (_, more, message) => {
  await addFiles(more().map(entry => ({ ...entry, text: 'x' })))
  const fault = await faultOf(restore({ operatorKey: 'any' }))
  expect([fault.code, fault.message]).toEqual(['invalid_request', expect.stringContaining(message)])
  expectUntouched()
})

function named(path: string) {
  return { kind: 'named', path }
}

test('goal: a forged list of files leads nowhere: no path outside, no second database, no program', async () => {
  const { manifest } = await make({ isSigned: false })
  const database = manifest.entries.at(-1)
  if (database === undefined) throw new Error('the backup has files')
  const faultOn = async (entries: unknown, name = 'files/0') => {
    const content = utf8(JSON.stringify({ ...manifest, entries }))
    await pack([
      { name: 'manifest.json', content },
      { name, content: new Uint8Array(1) },
    ])
    return await faultOf(restore({ operatorKey: 'any' }))
  }
  const forge = async (...forged: Parameters<typeof faultOn>) => (await faultOn(...forged)).code
  const entry = { ...database, bytes: 1, sha256: '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d' }
  for (const path of ['../x', 'ca/../../x', '/etc/x', 'ca/b/c/d', '', '.', 'ca//x', 'strongroom.db-wal', 'lock', 'vms'])
    expect([path, await forge([{ ...entry, path }])]).toEqual([path, 'invalid_request'])
  for (const path of ['etc/passwd', '/etc/../x', '//x'])
    expect([path, await forge([{ ...entry, kind: 'named', path }])]).toEqual([path, 'invalid_request'])
  expect(await forge([{ ...entry, kind: 'named', path: '/x', mode: 0o755 }])).toBe('invalid_request')
  expect(await forge([entry, entry])).toBe('invalid_request')
  expect(await forge([{ ...entry, path: 'ca/x' }])).toBe('invalid_request')
  expect(await forge([entry], 'files/1')).toBe('invalid_request')
  expect(await forge([{ ...entry, bytes: 2 }])).toBe('invalid_request')
  expect(await forge([{ ...entry, bytes: 2 ** 50 }])).toBe('host.disk_full')
  expect((await faultOn([{ ...entry, sha256: '00'.repeat(32) }])).message).toContain('is not that of the manifest')
  // One NUL byte holds no records.
  expect(await forge([entry])).toBe('invalid_request')
  expectUntouched()
})

test('goal: a path that the configuration names itself is written only below its directory, or as the operator lists it', async () => {
  const outside = join(dir, 'shadow')
  writeFileSync(join(etc, 'strongroom.toml'), upstream(outside))
  writeFileSync(outside, 'root::0:::::::')
  await make()
  rmSync(outside)
  const { code, message } = await faultOf(restore())
  expect([code, message]).toEqual(['invalid_request', expect.stringContaining(`--allow-path ${outside}`)])
  expectUntouched()
  expect(existsSync(outside)).toBe(false)
  const check = { key: { identities: [identity] }, operatorKey, stateDir: join(dir, 'new') }
  const scratchDir = mkdtempSync(join(dir, 'check-'))
  expect((await checkBackup(file, { ...check, outside: rules() }, scratchDir)).unlisted).toEqual([outside])
  expect((await restore({ outside: rules([outside]) })).written).toContain(outside)
})

test('goal: a configuration cannot name a file of the state directory, such as the log beside the database', async () => {
  const log = join(dir, 'new/strongroom.db-wal')
  writeFileSync(join(etc, 'strongroom.toml'), upstream(log))
  await addFiles([{ ...named(log), text: 'rows of the attacker' }])
  const fault = await faultOf(restore({ operatorKey: 'any', outside: rules([log]) }))
  expect([fault.code, fault.message]).toEqual(['invalid_request', expect.stringContaining('in the state directory')])
  expectUntouched()
})

test('goal: the configuration goes where this machine reads it, never where the backup says', async () => {
  await make()
  const configurationFile = join(dir, 'other/strongroom.toml')
  const elsewhere = await faultOf(restore({ outside: { ...rules(), configurationFile } }))
  expect([elsewhere.code, elsewhere.message]).toEqual([
    'invalid_request',
    expect.stringContaining(`--config ${join(etc, 'strongroom.toml')}`),
  ])
  expectUntouched()
  expect((await restore({ outside: null })).written).toEqual([join(dir, 'new')])
  expect(existsSync(etc)).toBe(false)
})

test('goal: without its operator key a backup is refused, unless it is asked for unsigned', async () => {
  rmSync(join(state, 'operator-key.pem'))
  const missing = await faultOf(make())
  expect([missing.code, missing.message]).toEqual(['not_found', expect.stringContaining('operator-key.pem')])
  expect([missing.message, existsSync(file)]).toEqual([expect.stringContaining('backup --unsigned'), false])
  writeFileSync(join(state, 'operator-key.pem'), 'no key')
  expect((await faultOf(make())).message).toContain('operator-key.pem')
  expect((await make({ isSigned: false })).signer).toBeNull()
})
