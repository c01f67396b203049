// The content of a backup, gathered beside a running daemon. Effects: reads the state directory, the configuration and
// the files that it names; writes a copy of the database.

import { createHash } from 'node:crypto'
import { closeSync, existsSync, lstatSync, openSync, readdirSync, readFileSync, readSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { utf8 } from '../base/bytes.ts'
import { iso } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { version } from '../base/version.ts'
import type { LoadedConfig } from '../config/load.ts'
import { databaseFile, STATE_FILES } from '../host/state-files.ts'
import { diskSpace } from '../linux/files/disk-space.ts'
import { MIGRATIONS, schemaVersionOf } from '../store/db.ts'
import { databaseBytes, snapshotDatabase } from '../store/snapshot.ts'
import {
  entriesMax,
  entryName,
  type Manifest,
  type ManifestEntry,
  manifestName,
  smallFileBytesMax,
} from './manifest.ts'
import { namedFiles } from './outside.ts'
import { type BackupSigner, signatureName, signerOf, signManifest, unsignedRemedy } from './signature.ts'
import type { TarFile } from './tar.ts'

export type BackupContent = {
  readonly manifest: Manifest
  /** SHA-384 of the ID key that signed the manifest; null if unsigned. */
  readonly signer: Uint8Array | null
  readonly files: readonly TarFile[]
}

type Small = Omit<ManifestEntry, 'bytes' | 'sha256'> & { readonly content: Uint8Array }

/** No share: attempts of one command. */
const readsMax = 5

/**
 * `scratchDir` is empty and holds the copy of the database until the files are read. Faults: store.*, internal (a file
 * that cannot be read), not_found (no operator key to sign with), host.disk_full.
 */
export async function collect({
  stateDir,
  loaded,
  scratchDir,
  isSigned,
  nowMs,
  readJournal,
}: {
  readonly stateDir: string
  readonly loaded: LoadedConfig
  readonly scratchDir: string
  readonly isSigned: boolean
  readonly nowMs: number
  readonly readJournal: (stateDir: string) => (copy: string) => void
}): Promise<BackupContent> {
  const database = join(stateDir, databaseFile)
  if (!existsSync(database)) throw new Fault('store.missing', `there is no database ${database}`)
  checkRoom(scratchDir, databaseBytes(database))
  const copy = join(scratchDir, databaseFile)
  // Before the copy is made: a row that leaves the journal meanwhile is in the copy.
  const addJournal = readJournal(stateDir)
  const { schema, hostId } = snapshotDatabase(database, copy)
  // A database of an earlier release stays as it is; its daemon is yet to read the journal.
  if (schema === schemaVersionOf(MIGRATIONS)) addJournal(copy)
  const small = smallFiles(stateDir, loaded)
  const signer = isSigned ? await operatorSigner(stateDir, small) : null
  const entries: ManifestEntry[] = [
    ...small.map(({ content, ...rest }) => ({ ...rest, bytes: content.length, sha256: sha256(content) })),
    { kind: 'state', path: databaseFile, mode: 0o600, bytes: statSync(copy).size, sha256: sha256File(copy) },
  ]
  if (entries.length > entriesMax)
    throw new Fault('internal', `${entries.length} files, at most ${entriesMax} fit into a backup`)
  const format = signer === null ? 1 : 2
  const manifest: Manifest = { format, version, schema, made_at: iso(nowMs), host_id: hostId, entries }
  const text = utf8(`${JSON.stringify(manifest, null, 2)}\n`)
  const files: TarFile[] = [
    { name: manifestName, bytes: text.length, content: text },
    ...(signer === null ? [] : [await signatureFile(text, signer)]),
    ...entries.map(({ bytes }, index) => {
      const content = small[index]?.content ?? { file: copy }
      return { name: entryName(index), bytes, content }
    }),
  ]
  return { manifest, signer: signer?.digest ?? null, files }
}

/** The key that is in the backup signs it. */
async function operatorSigner(stateDir: string, small: readonly Small[]): Promise<BackupSigner> {
  const name = 'operator-key.pem'
  const file = join(stateDir, name)
  const entry = small.find(({ kind, path }) => kind === 'state' && path === name)
  if (entry !== undefined) return await signerOf(entry.content, file)
  throw new Fault('not_found', `Cannot sign the backup: ${file} is missing; ${unsignedRemedy}`)
}

async function signatureFile(manifest: Uint8Array, signer: BackupSigner): Promise<TarFile> {
  const content = await signManifest(manifest, signer)
  return { name: signatureName, bytes: content.length, content }
}

const roomBeside = 16_777_216

function checkRoom(directory: string, neededBytes: number): void {
  const { freeBytes } = diskSpace(directory)
  if (freeBytes >= neededBytes + roomBeside) return
  const [free, needed] = [freeBytes, neededBytes + roomBeside].map(bytes => Math.ceil(bytes / 1_048_576))
  throw new Fault(
    'host.disk_full',
    `${directory} has room for ${free} MiB, and a copy of the database may take ${needed}`,
  )
}

/** Read until two readings are equal: an authority may be replaced meanwhile, which is two files. */
function smallFiles(stateDir: string, loaded: LoadedConfig): Small[] {
  let before = readAll(stateDir, loaded)
  for (let read = 1; read < readsMax; read += 1) {
    const again = readAll(stateDir, loaded)
    if (isSame(before, again)) return again
    before = again
  }
  throw new Fault('internal', `the files of ${stateDir} changed at each of ${readsMax} readings`)
}

function readAll(stateDir: string, { config, file }: LoadedConfig): Small[] {
  const state = STATE_FILES.flatMap(name => pathsOf(stateDir, name)).map(path => smallFile('state', path, stateDir))
  const named = namedFiles(config).filter(path => existsSync(path) && !path.startsWith(`${stateDir}/`))
  return [
    ...state,
    ...(file === null ? [] : [smallFile('configuration', file)]),
    ...[...new Set(named)].map(path => smallFile('named', path)),
  ]
}

/** Paths of plain files below the state directory, sorted; temporary ones are left out. */
function pathsOf(stateDir: string, path: string): string[] {
  const found = lstatSync(join(stateDir, path), { throwIfNoEntry: false })
  if (found?.isDirectory() !== true) return found?.isFile() === true && !path.endsWith('.tmp') ? [path] : []
  return readdirSync(join(stateDir, path))
    .toSorted()
    .flatMap(name => pathsOf(stateDir, `${path}/${name}`))
}

function smallFile(kind: ManifestEntry['kind'], path: string, below?: string): Small {
  const where = below === undefined ? path : join(below, path)
  try {
    const { size, mode } = statSync(where)
    if (size > smallFileBytesMax) throw new Error(`${size} bytes, at most ${smallFileBytesMax} are expected`)
    return { kind, path, mode: mode & 0o666, content: new Uint8Array(readFileSync(where)) }
  } catch (error) {
    throw new Fault('internal', `${where}: ${messageOf(error)}`, { cause: error })
  }
}

function isSame(a: readonly Small[], b: readonly Small[]): boolean {
  return (
    a.length === b.length &&
    a.every(({ path, mode, content }, at) => {
      const other = b[at]
      return other?.path === path && other.mode === mode && Buffer.compare(other.content, content) === 0
    })
  )
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}

const pieceBytes = 1_048_576

export function sha256File(path: string): string {
  const hash = createHash('sha256')
  const piece = new Uint8Array(pieceBytes)
  const fd = openSync(path, 'r')
  try {
    for (let count = readSync(fd, piece); count > 0; count = readSync(fd, piece)) hash.update(piece.subarray(0, count))
    return hash.digest('hex')
  } finally {
    closeSync(fd)
  }
}
