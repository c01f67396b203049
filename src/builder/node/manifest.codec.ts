// Reads the parts of package.json that a build needs (docs.npmjs.com/cli/configuring-npm/package-json). Pure.

import { isRecord } from '../../base/json.ts'
import { pick } from './lock.ts'

/** Parses a JSON object; null for anything else. */
export function parsedRecord(text: string): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(text.replace(/^\uFEFF/, ''))
    return isRecord(value) ? value : null
  } catch {
    return null
  }
}

export function describePackageJson(text: string): { readonly name: string; readonly version: string | null } | null {
  const { name, version } = parsedRecord(text) ?? {}
  if (typeof name !== 'string') return null
  // A plain name does not include the scope.
  return { name: name.slice(name.lastIndexOf('/') + 1), version: typeof version === 'string' ? version : null }
}

/** Members that determine what is installed. The others are settings and commands of the project. */
const installMembers = [
  'name',
  'version',
  'dependencies',
  'devDependencies',
  'optionalDependencies',
  'peerDependencies',
  'peerDependenciesMeta',
  'overrides',
  'bundleDependencies',
  'bundledDependencies',
] as const

/** Returns the manifest that the install reads, without scripts and settings. */
export function installManifest(
  manifest: Readonly<Record<string, unknown>>,
  overrides: unknown,
): Readonly<Record<string, unknown>> {
  return { ...pick(manifest, installMembers), ...(overrides === undefined ? {} : { pnpm: { overrides } }) }
}

export function scriptsOf(manifest: Readonly<Record<string, unknown>>): Readonly<Record<string, string>> {
  const scripts = Object.entries(Object(manifest.scripts))
  return Object.fromEntries(scripts.filter((script): script is [string, string] => typeof script[1] === 'string'))
}

/** Reports whether a line of .npmrc enables this setting. */
export function isSetIn(npmrc: string, setting: string): boolean {
  return new RegExp(`^[ \\t]*${setting}[ \\t]*=[ \\t]*"?true"?[ \\t]*$`, 'm').test(npmrc)
}
