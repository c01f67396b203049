// Reads package-lock.json of lockfileVersion 2 and 3 (docs.npmjs.com/cli/configuring-npm/package-lock-json). Pure.

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
import { parsedRecord } from './manifest.codec.ts'

const lockName = 'package-lock.json'
const relock = 'run `npm install --package-lock-only --lockfile-version 3`, and send package-lock.json with the source'

/** Members of a package that an install needs. Others could let a package's file change what is installed. */
const entryMembers = [
  ...['name', 'version', 'resolved', 'dev', 'optional', 'devOptional', 'peer', 'inBundle', 'bundleDependencies'],
  ...['bin', 'engines', 'os', 'cpu', 'libc', 'dependencies', 'devDependencies', 'optionalDependencies'],
  ...['peerDependencies', 'peerDependenciesMeta'],
]
const keyCharsMax = 4096

/** Parses a lock. Failure `source_invalid` if it lists code without a hash, or from outside of a registry. */
export function readPackageLock(text: string): NpmLock {
  const lock = parsedRecord(text)
  if (lock === null) throw invalidLock(lockName, `not a JSON object; ${relock}`)
  const { lockfileVersion, packages } = lock
  if (lockfileVersion !== 2 && lockfileVersion !== 3)
    throw invalidLock(lockName, `lockfileVersion ${shown(String(lockfileVersion))} is neither 2 nor 3; ${relock}`)
  const root = isRecord(packages) ? packages[''] : null
  if (!isRecord(packages) || !isRecord(root)) throw invalidLock(lockName, `without \`packages\`; ${relock}`)
  const entries = Object.entries(packages).filter(([key]) => key !== '')
  if (entries.length > packagesMax) throw invalidLock(lockName, `more than ${packagesMax} packages`)
  const found: NpmPackage[] = []
  const kept: Record<string, object> = { '': pick(root, entryMembers) }
  for (const [key, entry] of entries) {
    const pkg = packageOf(key, entry)
    if (pkg !== null) found.push(pkg)
    kept[key] = { ...pick(Object(entry), entryMembers), ...(pkg === null ? {} : { integrity: integrityOf(pkg) }) }
  }
  const keys = new Set(found.map(({ key }) => key))
  return {
    packages: found.map(pkg => ({ ...pkg, dependsOn: neededBy(pkg.key, kept[pkg.key] ?? {}, keys) })),
    direct: neededBy('', root, keys),
    installLock: { lockfileVersion: 3, requires: true, packages: kept },
    overrides: undefined,
  }
}

/** Returns a package; null if it is part of the enclosing package's file. */
function packageOf(key: string, entry: unknown): NpmPackage | null {
  if (!isRecord(entry)) throw invalidLock(lockName, `${shown(key)} is no package; ${relock}`)
  const { version, resolved, integrity } = entry
  if (entry.link === true || !key.startsWith('node_modules/'))
    throw invalidLock(
      lockName,
      `${shown(key)} is a workspace or a directory (\`file:\`), which this service does not install; move its files into the project, or publish it to a registry`,
    )
  const steps = key.slice('node_modules/'.length).split('/node_modules/')
  const name = entry.name ?? steps.at(-1)
  if (key.length > keyCharsMax || !steps.every(isPackageName) || !isPackageName(name))
    throw invalidLock(lockName, `${shown(key)} is not the path of a package`)
  const from = typeof resolved === 'string' ? resolved : ''
  if (/^(?:git|file|github|ssh)\b/.test(from))
    throw invalidLock(
      lockName,
      `${shown(key)} comes from ${shown(from)}, but this service installs only packages from a registry; publish it to one, or move its files into the project`,
    )
  if (!isVersion(version)) throw invalidLock(lockName, `${shown(key)} has no version such as 1.2.3; ${relock}`)
  if (entry.inBundle === true && steps.length > 1) return null
  const sha512 = sha512Of(lockName, key, integrity)
  if (!isRegistryAddress(from, { name, version }))
    throw invalidLock(
      lockName,
      `${shown(key)} comes from ${shown(from)}, which is not where a registry has ${name} ${version}; take it from a registry, and lock again without omit-lockfile-registry-resolved`,
    )
  return {
    ...{ key, name, version, sha512, dependsOn: [] },
    isOptional: entry.optional === true || entry.devOptional === true,
    isForBuilder: isForBuilder(entry),
  }
}

/** Returns the keys that Node.js finds for the dependencies of an entry, searching upwards from its own place. */
function neededBy(key: string, entry: object, keys: ReadonlySet<string>): string[] {
  const fields = [
    'dependencies',
    'optionalDependencies',
    'peerDependencies',
    ...(key === '' ? ['devDependencies'] : []),
  ]
  const names = new Set(fields.flatMap(field => Object.keys(Object(Reflect.get(entry, field)))))
  return [...names].flatMap(name => {
    for (let at = key; ; at = at.slice(0, Math.max(at.lastIndexOf('/node_modules/'), 0))) {
      const place = at === '' ? `node_modules/${name}` : `${at}/node_modules/${name}`
      if (keys.has(place)) return [place]
      if (at === '') return []
    }
  })
}
