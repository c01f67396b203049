// The package lock: the exact Debian packages of an image. Addresses are relative to a mirror; the mirror is this
// machine's own.

import { type Static, Type } from '@sinclair/typebox'
import { readChecked } from './checked-json.ts'
import { ImageFault } from './image-fault.ts'
import { LockedRelease } from './release.ts'

const closed = { additionalProperties: false } as const

export const LockedPackage = Type.Object(
  {
    name: Type.String({ pattern: '^[a-z0-9][a-z0-9+.-]+$' }),
    version: Type.String({ pattern: '^[A-Za-z0-9.+:~-]+$', maxLength: 128 }),
    /**
     * `root` is installed, or unpacked for the root; `initrd` is unpacked for the initrd alone; of `kernel` only the
     * kernel and the listed modules are taken, of `firmware` the one file that the recipe names.
     */
    role: Type.Union([Type.Literal('root'), Type.Literal('initrd'), Type.Literal('kernel'), Type.Literal('firmware')]),
    archive: Type.Union([Type.Literal('debian'), Type.Literal('debian-security')]),
    /** Path below the archive's root. */
    file: Type.String({ pattern: '^pool/[A-Za-z0-9/.+~_%-]+\\.deb$', maxLength: 512 }),
    sizeBytes: Type.Integer({ minimum: 1 }),
    sha256: Type.String({ pattern: '^[0-9a-f]{64}$' }),
  },
  closed,
)
export type LockedPackage = Static<typeof LockedPackage>

export const PackagesLock = Type.Object(
  {
    schemaVersion: Type.Literal(1),
    suite: Type.String(),
    architecture: Type.Literal('amd64'),
    /** The state of the archive that the versions were chosen from. A later relock takes no older one. */
    releases: Type.Array(LockedRelease, { minItems: 1, maxItems: 16 }),
    packages: Type.Array(LockedPackage, { minItems: 2, maxItems: 2048 }),
  },
  closed,
)
export type PackagesLock = Static<typeof PackagesLock>

/** Throws recipe_invalid: not of the schema, unsorted, a name twice, or not exactly one kernel and one firmware. */
export async function readPackagesLock(path: string): Promise<PackagesLock> {
  const lock = await readChecked(PackagesLock, path)
  const wrong = lockProblem(lock)
  if (wrong !== null) throw new ImageFault('recipe_invalid', `${path}: ${wrong}`)
  return lock
}

/** A fault that the schema cannot express, or null. */
export function lockProblem(lock: PackagesLock): string | null {
  const names = lock.packages.map(entry => entry.name)
  if (new Set(names).size !== names.length) return 'a package is listed twice'
  if (names.some((name, index) => index > 0 && name < (names[index - 1] ?? ''))) return 'packages are not sorted'
  if (lock.packages.some(entry => entry.file.includes('..'))) return 'a file leaves the archive'
  for (const role of ['kernel', 'firmware'] as const) {
    if (lock.packages.filter(entry => entry.role === role).length !== 1) return `there must be exactly one ${role}`
  }
  return null
}

/** The one package of a role. */
export function packageOf(lock: PackagesLock, role: 'kernel' | 'firmware'): LockedPackage {
  const found = lock.packages.find(entry => entry.role === role)
  if (found === undefined) throw new ImageFault('recipe_invalid', `the lock has no ${role}`)
  return found
}
