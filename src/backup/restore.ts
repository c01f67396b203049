// Puts a backup in place on an empty machine. Effects: writes the state directory, the configuration and the files that
// it names; nothing before the whole backup has been read and checked, its signature first.
//
// Everything is gathered in one directory below the state directory, then renamed into place, the database last.
// Killed anywhere, the next run of the same command starts over, and until then the daemon refuses to start: keys
// without records.

import { createHash } from 'node:crypto'
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { utf8 } from '../base/bytes.ts'
import { Fault, messageOf, wrapFault } from '../base/fault.ts'
import { changedSettingsFile } from '../host/changed-settings.ts'
import { databaseFile, restoringDir } from '../host/state-files.ts'
import { diskSpace } from '../linux/files/disk-space.ts'
import { removeTree } from '../linux/files/removal.ts'
import { ensureDir, readTextOrNull, syncDirectory, syncFile, writeFileAtomic } from '../linux/files.ts'
import { lockFile } from '../linux/lock.ts'
import { MIGRATIONS, schemaVersionOf } from '../store/db.ts'
import { inspectDatabase } from '../store/inspect.ts'
import { type RestoredCounts, type RestoredKeys, settleRestored } from '../store/restored.ts'
import { recordName } from './last.ts'
import {
  entryName,
  type Manifest,
  type ManifestEntry,
  manifestBytesMax,
  manifestName,
  readManifest,
  smallFileBytesMax,
} from './manifest.ts'
import { type OutsideFiles, type OutsideRules, outsideFiles } from './outside.ts'
import { type Key, unseal } from './seal.ts'
import { checkSignature, type ExpectedSigner, signatureBytesMax, signatureName } from './signature.ts'
import { TarReader } from './tar.ts'

export type RestoreOptions = {
  readonly stateDir: string
  readonly key: Key
  /** From the operator's own record, never from the backup. */
  readonly operatorKey: ExpectedSigner
  readonly keys: RestoredKeys
  /** Null if the files outside of the state directory stay as they are on this machine. */
  readonly outside: OutsideRules | null
  /** True to move existing files aside once the backup is known to be good; false to refuse them. */
  readonly setAside: boolean
  readonly nowMs: number
}

/** A backup that was read whole, with the key that signed its manifest; null if that was not checked. */
export type ReadBackup = { readonly manifest: Manifest; readonly signer: Uint8Array | null }

export type RestoredBackup = RestoredCounts &
  ReadBackup & {
    readonly written: readonly string[]
    /** Where the files are that were in the way. */
    readonly setAside: readonly string[]
  }

/**
 * A state directory with nothing else counts as empty: the operator puts images and models there before the first
 * start, and what was changed in the kernel is still to be put back.
 */
const MAY_BE_THERE: ReadonlySet<string> = new Set([
  changedSettingsFile,
  'lock',
  'backup.lock',
  recordName,
  'images',
  'models',
  'worker-root',
  'lost+found',
  restoringDir,
])
const placingFile = 'placing.txt'

/**
 * Restores `file`. Faults: conflict (the state directory is not empty, or in use, or a file outside of it differs),
 * invalid_request (no backup, another key, another signer, a path that may not be written), not_found (a key to
 * revoke), store.*, host.disk_full.
 */
export async function restoreBackup(file: string, options: RestoreOptions): Promise<RestoredBackup> {
  const { stateDir, keys, nowMs, setAside: maySetAside } = options
  ensureDir(stateDir, { mode: 0o711 })
  using _ = lockFile(join(stateDir, 'lock'))
  const staging = join(stateDir, restoringDir)
  takeBack(stateDir, staging)
  if (!maySetAside) refuseOthers(stateDir)
  ensureDir(staging, { mode: 0o700 })
  try {
    const { manifest, signer } = await unpack(file, options, staging)
    const { entries: outside, unlisted } = outsideIn(staging, manifest, options)
    refuseUnlisted(unlisted)
    const different = differentOf(outside, manifest, staging)
    if (!maySetAside) refuseDifferent(different)
    checkDatabase(staged(staging, manifest, databaseFile), manifest)
    const restored = settleRestored(staged(staging, manifest, databaseFile), { keys, nowMs })
    const setAside = [...setStateAside(stateDir), ...different.map(setFileAside)]
    const written = placeOutside(outside, manifest, staging)
    place(stateDir, staging, manifest)
    return { ...restored, manifest, signer, written: [...written, stateDir], setAside }
  } catch (error) {
    takeBack(stateDir, staging)
    throw error
  }
}

/**
 * Reads and checks all of `file`, database included, and keeps nothing. `scratchDir` is empty. Returns also the paths
 * that a restore would refuse until the operator allows them. Faults as above.
 */
export async function checkBackup(
  file: string,
  options: Pick<RestoreOptions, 'stateDir' | 'key' | 'operatorKey' | 'outside'>,
  scratchDir: string,
): Promise<ReadBackup & { readonly unlisted: readonly string[] }> {
  const { manifest, signer } = await unpack(file, options, scratchDir)
  const { unlisted } = outsideIn(scratchDir, manifest, options)
  checkDatabase(staged(scratchDir, manifest, databaseFile), manifest)
  return { manifest, signer, unlisted }
}

function outsideIn(
  staging: string,
  manifest: Manifest,
  { stateDir, outside }: Pick<RestoreOptions, 'stateDir' | 'outside'>,
): OutsideFiles {
  if (outside === null) return { entries: [], unlisted: [] }
  const configuration = manifest.entries.find(({ kind }) => kind === 'configuration')
  const text = configuration === undefined ? null : readFileSync(stagedEntry(staging, manifest, configuration), 'utf8')
  return outsideFiles(manifest, text, { stateDir, rules: outside })
}

function refuseUnlisted(paths: readonly string[]): void {
  if (paths.length === 0) return
  const options = paths.map(path => `--allow-path ${path}`).join(' ')
  throw new Fault(
    'invalid_request',
    `the configuration in the backup names files elsewhere: ${paths.join(', ')}; if you know them, add ${options}`,
    { param: 'allow-path' },
  )
}

/** Removes files that a killed run has put in place, while there was no database yet. */
function takeBack(stateDir: string, staging: string): void {
  if (!existsSync(join(stateDir, databaseFile))) {
    for (const name of (readTextOrNull(join(staging, placingFile)) ?? '').split('\n')) {
      // Written by us; still, nothing but a plain name of this directory is removed.
      if (/^[a-z][a-z.-]*$/.test(name)) removeTree(join(stateDir, name))
    }
    syncDirectory(stateDir)
  }
  removeTree(staging)
}

/** Directories of the state directory that hold what was in the way of a restore. */
const asideName = /^set-aside-[1-9]\d*(\.partial)?$/

function othersIn(stateDir: string): string[] {
  return readdirSync(stateDir).filter(name => !MAY_BE_THERE.has(name) && !asideName.test(name))
}

function refuseOthers(stateDir: string): void {
  const others = othersIn(stateDir).toSorted()
  if (others.length === 0) return
  const shown = others.slice(0, 5).join(', ')
  throw new Fault(
    'conflict',
    `${stateDir} is not empty (${shown}${others.length > 5 ? ', …' : ''}); a backup is restored into an empty one: --set-aside moves all of it into a directory there, but images and models`,
  )
}

/**
 * Moves all that is in the way into one directory beside it. The database goes first: from then on the daemon refuses
 * to start, since keys stand without records. Killed in between, the next run goes on in the same directory.
 */
function setStateAside(stateDir: string): string[] {
  const isDatabase = (name: string) => name === databaseFile
  const others = othersIn(stateDir).toSorted((a, b) => Number(isDatabase(b)) - Number(isDatabase(a)))
  const before = readdirSync(stateDir).filter(name => asideName.test(name))
  const begun = before.find(name => name.endsWith('.partial'))
  if (others.length === 0 && begun === undefined) return []
  const number = Math.max(0, ...before.map(name => Number.parseInt(name.slice('set-aside-'.length), 10))) + 1
  const partial = join(stateDir, begun ?? `set-aside-${number}.partial`)
  ensureDir(partial, { mode: 0o700 })
  for (const name of others) renameSync(join(stateDir, name), join(partial, name))
  const whole = partial.slice(0, -'.partial'.length)
  renameSync(partial, whole)
  syncDirectory(stateDir)
  return [whole]
}

/** Returns the new path, the first of its kind that is free. */
function setFileAside({ path }: ManifestEntry): string {
  let number = 1
  while (existsSync(`${path}.set-aside-${number}`)) number++
  const aside = `${path}.set-aside-${number}`
  renameSync(path, aside)
  syncDirectory(dirname(path))
  return aside
}

/** Files of the backup below `directory`, each by its number. */
async function unpack(
  file: string,
  { key, operatorKey }: Pick<RestoreOptions, 'key' | 'operatorKey'>,
  directory: string,
): Promise<ReadBackup> {
  if (!existsSync(file)) throw new Fault('not_found', `there is no file ${file}`)
  try {
    const reader = new TarReader(await unseal(Bun.file(file).stream(), key))
    const text = await namedEntry(reader, manifestName, manifestBytesMax)
    const manifest = readManifest(text)
    const signature = manifest.format === 1 ? null : await namedEntry(reader, signatureName, signatureBytesMax)
    const signer = await checkSignature(text, signature, operatorKey)
    checkRoom(directory, manifest)
    mkdirSync(join(directory, 'files'), { mode: 0o700 })
    for (const [index, entry] of manifest.entries.entries()) await unpackEntry(reader, entry, { directory, index })
    if ((await reader.next()) !== null)
      throw new Fault('invalid_request', 'the backup has more files than its manifest')
    await reader.end()
    return { manifest, signer }
  } catch (error) {
    if (error instanceof Fault) throw error
    throw new Fault('invalid_request', `the backup cannot be read: ${messageOf(error)}`, { cause: error })
  }
}

async function namedEntry(reader: TarReader, name: string, bytesMax: number): Promise<Uint8Array> {
  const next = await reader.next()
  if (next?.name !== name || next.bytes > bytesMax)
    throw new Fault('invalid_request', `this is no backup: it does not begin with ${name} of at most ${bytesMax} bytes`)
  return new Uint8Array(Buffer.concat(await Array.fromAsync(reader.content(next.bytes))))
}

const roomBeside = 16_777_216

function checkRoom(directory: string, { entries }: Manifest): void {
  const database = entries.filter(({ kind, path }) => kind === 'state' && path === databaseFile)
  const large = entries.filter(entry => !database.includes(entry) && entry.bytes > smallFileBytesMax)
  if (database.length !== 1 || large.length > 0)
    throw new Fault(
      'invalid_request',
      'the backup is not as one is made: no database, or another file that is too large',
    )
  const neededBytes = entries.reduce((sum, { bytes }) => sum + bytes, roomBeside)
  const { freeBytes } = diskSpace(directory)
  if (freeBytes >= neededBytes) return
  const [free, needed] = [freeBytes, neededBytes].map(bytes => Math.ceil(bytes / 1_048_576))
  throw new Fault('host.disk_full', `${directory} has room for ${free} MiB, and the backup takes ${needed}`)
}

async function unpackEntry(
  reader: TarReader,
  { kind, path, bytes, sha256 }: ManifestEntry,
  { directory, index }: { readonly directory: string; readonly index: number },
): Promise<void> {
  const next = await reader.next()
  const what = `${kind === 'state' ? 'state: ' : ''}${path}`
  if (next?.name !== entryName(index) || next.bytes !== bytes)
    throw new Fault('invalid_request', `the backup does not contain ${what} as its manifest lists it`)
  const hash = createHash('sha256')
  const fd = openSync(join(directory, entryName(index)), 'wx', 0o600)
  try {
    for await (const piece of reader.content(bytes)) {
      hash.update(piece)
      for (let at = 0; at < piece.length; ) at += writeSync(fd, piece, at)
    }
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
  if (hash.digest('hex') !== sha256)
    throw new Fault('invalid_request', `the digest of ${what} is not that of the manifest`)
}

function checkDatabase(path: string, { schema: promised }: Manifest): void {
  const { problem, schema } = inspectDatabase(path)
  if (problem !== null) throw new Fault('store.corrupt', `the database of the backup is damaged: ${problem}`)
  const [newest, oldest] = [schemaVersionOf(MIGRATIONS), MIGRATIONS.upgrades[0].to - 1]
  if (schema !== promised)
    throw new Fault('invalid_request', `the database has schema ${schema}, but its manifest has ${promised}`)
  if (schema > newest)
    throw new Fault(
      'store.newer',
      `the backup has schema ${schema}, this executable supports up to ${newest}; nothing was changed`,
    )
  if (schema < oldest)
    throw new Fault(
      'store.older',
      `the backup has schema ${schema}, this executable upgrades from ${oldest}; nothing was changed`,
    )
}

/** Files outside of the state directory that are there with other content; an equal one stays. */
function differentOf(entries: readonly ManifestEntry[], manifest: Manifest, staging: string): ManifestEntry[] {
  return entries.filter(entry => {
    const there = readOrNull(entry.path)
    return there !== null && Buffer.compare(there, readFileSync(stagedEntry(staging, manifest, entry))) !== 0
  })
}

function refuseDifferent(different: readonly ManifestEntry[]): void {
  if (different.length === 0) return
  const paths = different.map(({ path }) => path).join(', ')
  throw new Fault(
    'conflict',
    `${paths}: there, and not as in the backup; --set-aside moves it aside, --no-configuration leaves what is outside of the state directory as it is`,
  )
}

function placeOutside(entries: readonly ManifestEntry[], manifest: Manifest, staging: string): string[] {
  return entries.flatMap(entry => {
    if (readOrNull(entry.path) !== null) return []
    const { path, mode } = entry
    mkdirSync(dirname(path), { recursive: true, mode: 0o755 })
    writeFileAtomic(path, readFileSync(stagedEntry(staging, manifest, entry)), { mode })
    return [path]
  })
}

/** The database last: with it the state directory is whole. */
function place(stateDir: string, staging: string, manifest: Manifest): void {
  const state = manifest.entries.filter(({ kind, path }) => kind === 'state' && path !== databaseFile)
  const ready = join(staging, 'ready')
  mkdirSync(ready, { mode: 0o700 })
  for (const entry of state) {
    const target = join(ready, entry.path)
    mkdirSync(dirname(target), { recursive: true, mode: 0o700 })
    writeFileAtomic(target, readFileSync(stagedEntry(staging, manifest, entry)), { mode: entry.mode })
  }
  const names = [...new Set(state.map(({ path }) => path.split('/')[0] ?? ''))]
  writeFileAtomic(join(staging, placingFile), utf8(`${names.join('\n')}\n`), { mode: 0o600 })
  for (const name of names) renameSync(join(ready, name), join(stateDir, name))
  syncDirectory(stateDir)
  syncFile(staged(staging, manifest, databaseFile))
  renameSync(staged(staging, manifest, databaseFile), join(stateDir, databaseFile))
  syncDirectory(stateDir)
  removeTree(staging)
}

function staged(staging: string, manifest: Manifest, path: string): string {
  const index = manifest.entries.findIndex(entry => entry.kind === 'state' && entry.path === path)
  return join(staging, entryName(index))
}

function stagedEntry(staging: string, manifest: Manifest, entry: ManifestEntry): string {
  return join(staging, entryName(manifest.entries.indexOf(entry)))
}

function readOrNull(path: string): Uint8Array | null {
  try {
    return statSync(path).size > smallFileBytesMax ? new Uint8Array(0) : new Uint8Array(readFileSync(path))
  } catch (error) {
    if (Reflect.get(Object(error), 'code') === 'ENOENT') return null
    throw wrapFault(error, `read ${path}`)
  }
}
