// Compares a fetched module cache with go.sum, file by file. Effects: reads files that no other process writes.

import * as fs from 'node:fs'
import { sha256Of } from '../digest.ts'
import { BuildFailure, refuseUnless } from '../failure.ts'
import { cachedPlace } from './go.plan.ts'
import type { ListedPackage } from './list.codec.ts'
import { hash1, unescaped } from './sum.codec.ts'

type Sums = ReadonlyMap<string, ReadonlySet<string>>

const filesMax = 500_000

/**
 * Returns the hash of each module by its directory below the cache, after removing everything that no hash of go.sum
 * covers. Failure `checksum_mismatch`, also if a sum is missing.
 */
export async function checkModules(cache: string, sums: Sums): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>()
  for (const place of moduleDirs(cache, '')) {
    const name = place.split('@').map(part => unescaped(part))
    const [path, version] = name
    const files = new Map<string, string>()
    for (const file of filesBelow(`${cache}/${place}`, '')) {
      refuseUnless(files.size < filesMax, 'limit_exceeded', () => `fetched ${place}: more than ${filesMax} files`)
      files.set(`${path}@${version}/${file}`, await sha256Of(`${cache}/${place}/${file}`))
    }
    const h1 = hash1(files)
    refuseUnsummed(sums, name.includes(null) ? null : `${path} ${version}`, h1)
    found.set(place, h1)
  }
  await checkDownloads(`${cache}/cache`, sums, found)
  return found
}

/** Empties the directories of modules without packages: go requires the directory, but no evidence lists the module. */
export function emptyUnused(
  cache: string,
  fetched: ReadonlyMap<string, string>,
  packages: readonly ListedPackage[],
): void {
  const used = new Set(packages.map(({ dir }) => cachedPlace(dir)))
  for (const place of fetched.keys()) {
    if (used.has(place)) continue
    for (const name of fs.readdirSync(`${cache}/${place}`)) fs.rmSync(`${cache}/${place}/${name}`, { recursive: true })
  }
}

/** Keeps go.mod files, which determine the versions of all modules, and the hashes that mark a module as complete. */
async function checkDownloads(dir: string, sums: Sums, found: ReadonlyMap<string, string>): Promise<void> {
  if (!fs.existsSync(dir)) return
  for (const file of [...filesBelow(dir, '')]) {
    const [, place = '', version = '', kind = ''] = /^download\/(.+)\/@v\/([^/]+)\.(mod|ziphash)$/.exec(file) ?? []
    const module = found.get(`${place}@${version}`)
    if (kind === 'ziphash' && module !== undefined) fs.writeFileSync(`${dir}/${file}`, `h1:${base64Of(module)}`)
    else if (kind !== 'mod') fs.rmSync(`${dir}/${file}`)
    if (kind !== 'mod') continue
    const [path, plain] = [unescaped(place), unescaped(version)]
    const h1 = hash1(new Map([['go.mod', await sha256Of(`${dir}/${file}`)]]))
    refuseUnsummed(sums, path === null || plain === null ? null : `${path} ${plain}/go.mod`, h1)
  }
}

function refuseUnsummed(sums: Sums, name: string | null, h1: string): void {
  const sum = name === null ? undefined : sums.get(name)
  if (sum?.has(h1) === true) return
  const problem = sum === undefined ? 'not in go.sum' : `its hash h1:${base64Of(h1)} differs from the one in go.sum`
  throw new BuildFailure('checksum_mismatch', `fetched ${name ?? 'module'}: ${problem}`)
}

function base64Of(hex: string): string {
  return Buffer.from(hex, 'hex').toString('base64')
}

/** Module paths contain no `@`, so the first one precedes the version. */
function moduleDirs(cache: string, below: string): string[] {
  return fs.readdirSync(below === '' ? cache : `${cache}/${below}`, { withFileTypes: true }).flatMap(entry => {
    const path = below === '' ? entry.name : `${below}/${entry.name}`
    if (path === 'cache' || !entry.isDirectory()) return []
    return entry.name.includes('@') ? [path] : moduleDirs(cache, path)
  })
}

/** Yields paths relative to the directory. Failure `checksum_mismatch` for entries that a module cannot contain. */
function* filesBelow(root: string, below: string): Generator<string> {
  for (const entry of fs.readdirSync(below === '' ? root : `${root}/${below}`, { withFileTypes: true })) {
    const path = below === '' ? entry.name : `${below}/${entry.name}`
    if (entry.isDirectory()) yield* filesBelow(root, path)
    else {
      refuseUnless(entry.isFile(), 'checksum_mismatch', () => `fetched ${path}: not a regular file`)
      yield path
    }
  }
}
