// Selects packages of a workspace for a request. Fails if the workspace or the builder lacks something. Pure.

import type { CargoOptions } from '../../contract/http/build-options.ts'
import { BuildFailure } from '../failure.ts'
import { ownTarget } from './cargo.plan.ts'
import type { Resolve } from './metadata.codec.ts'

const namedMax = 20

/**
 * Returns the resolve with the selected packages as its members. Failure `source_invalid` if the workspace lacks a
 * package or program. Cargo would also accept a dependency as the package, but its programs are not the project's.
 */
export function selectMembers(resolve: Resolve, options: CargoOptions | null): Resolve {
  if (options === null) return resolve
  const { package: pkg, bin } = options
  const byId = new Map(resolve.packages.map(found => [found.id, found]))
  const packagesOf = (ids: readonly string[]) => ids.flatMap(id => byId.get(id) ?? [])
  const workspace = packagesOf(resolve.workspace)
  const selected = pkg === null ? packagesOf(resolve.members) : workspace.filter(({ name }) => name === pkg)
  if (selected.length === 0 && pkg !== null)
    throw lacking(
      'package',
      pkg,
      'not a package of the workspace',
      workspace.map(({ name }) => name),
    )
  const bins = selected.flatMap(found => found.bins)
  if (bin !== null && !bins.includes(bin)) {
    const where = pkg === null ? 'the default members of the workspace have' : `the package ${pkg} has`
    throw lacking('bin', bin, `${where} no such program`, bins)
  }
  return { ...resolve, members: selected.map(({ id }) => id) }
}

/**
 * Checks that the builder supports a target. `listing`: directories of the compiler's standard libraries, one per line.
 * Failure `source_invalid`.
 */
export function checkTarget(target: string, listing: string): void {
  const found = listing.split('\n').flatMap(line => /\/rustlib\/([^/]+)\/lib\/?$/.exec(line)?.[1] ?? [])
  const available = [...new Set([ownTarget, ...found])]
  if (!available.includes(target))
    throw lacking('target', target, "this builder's compiler has no standard library for it", available)
}

function lacking(field: string, value: string, problem: string, known: readonly string[]): BuildFailure {
  const names = [...new Set(known)].sort()
  const shown = names.slice(0, namedMax).join(', ')
  const rest = names.length > namedMax ? `, and ${names.length - namedMax} more` : ''
  return new BuildFailure(
    'source_invalid',
    `${field} ${JSON.stringify(value)}: ${problem}; available: ${shown === '' ? 'none' : shown}${rest}`,
  )
}
