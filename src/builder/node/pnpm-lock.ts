// Reads pnpm-lock.yaml of versions 6 and 9 (github.com/pnpm/spec, lockfile), with Bun's YAML parser.
//
// Converts version 6 to version 9, because pnpm 10 reads no other. Hooks and settings of the project influenced the
// lock when it was created, but are not used in the install.

import { isRecord } from '../../base/json.ts'
import {
  integrityOf,
  invalidLock,
  isForBuilder,
  isPackageName,
  isRegistryAddress,
  isVersion,
  type NpmLock,
  type NpmPackage,
  packagesMax,
  pick,
  sha512Of,
  shown,
} from './lock.ts'

type Fields = Readonly<Record<string, unknown>>

const lockName = 'pnpm-lock.yaml'
const relock = 'run `pnpm install --lockfile-only` with pnpm 9 or 10, and send pnpm-lock.yaml with the source'
const groups = ['dependencies', 'devDependencies', 'optionalDependencies'] as const
/** Members of a package in version 6 that are in the list of packages in version 9. */
const packageMembers = [
  'engines',
  'os',
  'cpu',
  'libc',
  'deprecated',
  'hasBin',
  'peerDependencies',
  'peerDependenciesMeta',
]
const snapshotMembers = ['dependencies', 'optionalDependencies', 'transitivePeerDependencies', 'optional']

/** Parses a lock. Failure `source_invalid` if it lists code without a hash, or from outside of a registry. */
export function readPnpmLock(text: string): NpmLock {
  const lock = parsedYaml(text)
  if (lock === null) throw invalidLock(lockName, `cannot be read; ${relock}`)
  const version = String(lock.lockfileVersion)
  const isOld = /^6\.[01]$/.test(version)
  if (!isOld && version !== '9.0' && version !== '9')
    throw invalidLock(lockName, `lockfileVersion ${shown(version)} is neither 6.0 nor 9.0; ${relock}`)
  if (Object.keys(Object(lock.patchedDependencies)).length > 0)
    throw invalidLock(
      lockName,
      'patchedDependencies change packages after they are compared with the lock; publish the patched package under a name of its own',
    )
  const importers = isRecord(lock.importers) ? lock.importers : { '.': pick(lock, groups) }
  const { '.': importer, ...members } = importers
  const [member] = Object.keys(members)
  if (member !== undefined)
    throw invalidLock(
      lockName,
      `${shown(member)} is a member of a workspace, which this service does not install; create a lock for the project alone (\`pnpm install --ignore-workspace --lockfile-only\`), and select it with project_dir`,
    )
  if (!isRecord(importer)) throw invalidLock(lockName, `without the importer "."; ${relock}`)
  const listed = recordsOf(lock.packages)
  const snapshots = isOld ? listed : recordsOf(lock.snapshots)
  if (listed.length > packagesMax || snapshots.length > packagesMax)
    throw invalidLock(lockName, `more than ${packagesMax} packages`)
  const found = packagesOf(listed, snapshots)
  const direct = groups.flatMap(group => recordsOf(importer[group])).map(([name, entry]) => keyOf(name, entry.version))
  return {
    packages: [...found.values()],
    direct: [...new Set(direct)],
    installLock: {
      lockfileVersion: '9.0',
      settings: pick(Object(lock.settings), ['autoInstallPeers', 'excludeLinksFromLockfile']),
      ...pick(lock, ['overrides']),
      importers: { '.': Object.fromEntries(groups.map(group => [group, directOf(importer[group])])) },
      packages: Object.fromEntries(
        listed.map(([path, entry]) => {
          const key = keyOfPath(path)
          const pkg = found.get(key)
          return [key, { ...pick(entry, packageMembers), resolution: pkg && { integrity: integrityOf(pkg) } }]
        }),
      ),
      snapshots: Object.fromEntries(
        snapshots.map(([path, entry]) => [
          path.replace(/^\//, ''),
          {
            ...pick(entry, snapshotMembers),
            ...Object.fromEntries(snapshotGroups.map(group => [group, plainReferences(entry[group])])),
          },
        ]),
      ),
    },
    overrides: lock.overrides,
  }
}

const snapshotGroups = ['dependencies', 'optionalDependencies'] as const

function packagesOf(listed: [string, Fields][], snapshots: [string, Fields][]): Map<string, NpmPackage> {
  const needs = new Map<string, Set<string>>()
  const required = new Set<string>()
  for (const [path, entry] of snapshots) {
    const key = keyOfPath(path)
    if (entry.optional !== true) required.add(key)
    const named = snapshotGroups.flatMap(group => Object.entries(Object(entry[group])))
    needs.set(key, new Set([...(needs.get(key) ?? []), ...named.map(([name, version]) => keyOf(name, version))]))
  }
  return new Map(
    listed.map(([path, entry]) => {
      const key = keyOfPath(path)
      const at = key.indexOf('@', 1)
      const [name, version] = [key.slice(0, at), key.slice(at + 1)]
      const { integrity, tarball, type, directory, repo } = Object(entry.resolution)
      if (!isPackageName(name) || !isVersion(version) || (type ?? directory ?? repo) !== undefined)
        throw invalidLock(
          lockName,
          `${shown(path)} does not come from a registry; publish it to one, or move its files into the project`,
        )
      const sha512 = sha512Of(lockName, key, integrity)
      if (tarball !== undefined && !isRegistryAddress(String(tarball), { name, version }))
        throw invalidLock(
          lockName,
          `${shown(key)} comes from ${shown(String(tarball))}, which is not where a registry has it; take it from a registry, and lock again`,
        )
      const isOptional = !required.has(key)
      const dependsOn = [...(needs.get(key) ?? [])]
      return [key, { key, name, version, sha512, isOptional, isForBuilder: isForBuilder(entry), dependsOn }]
    }),
  )
}

/** Returns `name@1.0.0` for `name@1.0.0(peer@2.0.0)`, with or without the leading `/` of version 6. */
function keyOfPath(path: string): string {
  return path.replace(/^\//, '').replace(/\(.*$/s, '')
}

/**
 * Returns the key of the package to which a dependency with this name refers. An alias has the other name in its
 * version.
 */
function keyOf(name: string, reference: unknown): string {
  const plain = keyOfPath(String(reference))
  if (/^(?:link|file|workspace|git|https?):/.test(plain))
    throw invalidLock(
      lockName,
      `${shown(name)} comes from ${shown(plain)}, but this service installs only packages from a registry; publish it to one, or move its files into the project`,
    )
  return /^\d/.test(plain) ? `${name}@${plain}` : plain
}

function plainReferences(group: unknown): Fields | undefined {
  if (!isRecord(group)) return undefined
  return Object.fromEntries(Object.entries(group).map(([name, text]) => [name, String(text).replace(/^\//, '')]))
}

function directOf(group: unknown): Fields | undefined {
  if (!isRecord(group)) return undefined
  const entries = recordsOf(group).map(([name, { specifier, version }]) => {
    return [name, { specifier, version: String(version).replace(/^\//, '') }] as const
  })
  return Object.fromEntries(entries)
}

function recordsOf(value: unknown): [string, Fields][] {
  return Object.entries(Object(value)).filter((entry): entry is [string, Fields] => isRecord(entry[1]))
}

/**
 * Parses a single mapping; null for anything else, or for aliases, with which a small text could represent a large
 * value.
 */
function parsedYaml(text: string): Fields | null {
  let value: unknown
  try {
    value = Bun.YAML.parse(text)
  } catch {
    return null
  }
  const seen = new Set<object>()
  const left: unknown[] = [value]
  while (left.length > 0) {
    const item = left.pop()
    if (typeof item !== 'object' || item === null) continue
    if (seen.has(item)) return null
    seen.add(item)
    for (const inner of Object.values(item)) left.push(inner)
  }
  return isRecord(value) ? value : null
}
