// The first entry of a backup: what is in it, from which appliance, and when it was made. Pure.
//
// A backup is a tar (ustar) sealed with age (age-encryption.org/v1): `age --decrypt` and `tar --extract` open it, too.

import { type Static, Type } from '@sinclair/typebox'
import { Fault } from '../base/fault.ts'
import { checkedJson } from '../contract/check.ts'
import { databaseFile, STATE_FILES } from '../host/state-files.ts'

export const manifestName = 'manifest.json'
export const manifestBytesMax = 262_144
/**
 * Files of a backup: those of the state directory, the configuration, and the files that it names.
 * No share: the files are the operator's.
 */
export const entriesMax = 512
/** All but the database. */
export const smallFileBytesMax = 1_048_576

const closed = { additionalProperties: false }

/**
 * `state`: below the state directory. `configuration`: the configuration file. `named`: a file that it names; the path
 * is absolute in both.
 */
export const ManifestEntry = Type.Object(
  {
    kind: Type.Union([Type.Literal('state'), Type.Literal('configuration'), Type.Literal('named')]),
    path: Type.String({ minLength: 1, maxLength: 4_096 }),
    bytes: Type.Integer({ minimum: 0 }),
    sha256: Type.String({ pattern: '^[0-9a-f]{64}$' }),
    /** No file of a backup is a program. */
    mode: Type.Integer({ minimum: 0, maximum: 0o666 }),
  },
  closed,
)
export type ManifestEntry = Static<typeof ManifestEntry>

export const Manifest = Type.Object(
  {
    /** 2: `manifest.sig` follows, by the operator key. 1: unsigned, as every backup of former releases is. */
    format: Type.Union([Type.Literal(1), Type.Literal(2)]),
    /** The executable's that made it. */
    version: Type.String({ maxLength: 200 }),
    schema: Type.Integer({ minimum: 1 }),
    /** Every row that was acknowledged before this time is in it. */
    made_at: Type.String({ maxLength: 40 }),
    host_id: Type.String({ maxLength: 100 }),
    entries: Type.Array(ManifestEntry, { minItems: 1, maxItems: entriesMax }),
  },
  closed,
)
export type Manifest = Static<typeof Manifest>

/**
 * Parses a manifest. Throws Fault invalid_request if it is not a manifest of this format, or its paths lead elsewhere.
 */
export function readManifest(bytes: Uint8Array): Manifest {
  const refuse = (why: string) =>
    new Fault('invalid_request', `this is not a backup that this executable supports: ${why}`)
  const manifest = checkedJson(Manifest, bytes, { what: manifestName, code: 'invalid_request' })
  const { entries } = manifest
  for (const { kind, path } of entries) {
    const isPlain = kind === 'state' ? isStatePath(path) : path.startsWith('/') && isNormal(path.slice(1))
    if (!isPlain) throw refuse(`${path} is no place for a file of a backup`)
  }
  if (entries.filter(({ kind }) => kind === 'configuration').length > 1) throw refuse('it has two configuration files')
  // A path below the state directory is relative, any other is absolute: they never meet.
  const paths = new Set(entries.map(({ path }) => path))
  if (paths.size !== entries.length) throw refuse('a path is in it twice')
  for (const path of paths) {
    const parent = parentsOf(path).find(directory => paths.has(directory))
    if (parent !== undefined) throw refuse(`${parent} is both a file and a directory in it`)
  }
  return manifest
}

/** The name of an entry in the tar: the place in the list, since paths may be longer than a header holds. */
export function entryName(index: number): string {
  return `files/${index}`
}

/** Files that a backup takes, and no other: a log beside the database would be read as part of it. */
function isStatePath(path: string): boolean {
  const [first = '', ...rest] = path.split('/')
  if (path === databaseFile) return true
  return STATE_FILES.some(name => name === first) && isNormal(path) && rest.length <= 2
}

function parentsOf(path: string): string[] {
  const parts = path.split('/')
  return parts.slice(1).map((_, at) => parts.slice(0, at + 1).join('/'))
}

function isNormal(path: string): boolean {
  return path.split('/').every(part => part !== '' && part !== '.' && part !== '..') && !path.includes('\0')
}
