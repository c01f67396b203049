// Nix's command lines and output for a fetch of everything that a flake's output needs, except the output itself. Pure.
//
// No program of the source runs while the network is up: evaluation has no network, `max-jobs = 0` forbids every
// builder, and fixed outputs are fetched by URL and hash instead of by their own builder.

import type { LockedPackage } from '../../attest/provenance/record.ts'
import { fromBase64, toHex, utf8 } from '../../base/bytes.ts'
import { isRecord } from '../../base/json.ts'
import type { NixOptions } from '../../contract/http/build-options.ts'
import { jsonOf, lockedArgv, type NixFetch, nixProgram, storePathPattern } from './nix.plan.ts'

type Caches = NixOptions['caches']
export type NixPath = Extract<LockedPackage, { kind: 'nix-path' }>

const NO_BUILDS = { 'max-jobs': '0', 'allow-import-from-derivation': 'false' } as const

function fetchOptions(caches: Caches): Record<string, string> {
  return {
    ...NO_BUILDS,
    substitute: caches.length === 0 ? 'false' : 'true',
    substituters: caches.map(({ url }) => url).join(' '),
    'trusted-public-keys': [...new Set(caches.map(({ publicKey }) => publicKey))].join(' '),
    fallback: 'false',
  }
}

/** Returns the derivation of the output by evaluation only: nothing is built, and there is no network. */
export function nixEvaluateArgv(reference: string, name: 'new' | 'old'): string[] {
  const command = name === 'new' ? ['derivation', 'show'] : ['show-derivation']
  return nixProgram('nix', NO_BUILDS, ['--offline', ...command, ...lockedArgv, reference])
}

/** Lists what would be built and fetched for these inputs, without doing it. */
export function nixMissingArgv(inputs: readonly string[], caches: Caches): string[] {
  return nixProgram('nix-store', fetchOptions(caches), ['--realise', '--dry-run', ...inputs])
}

export function nixSubstituteArgv(paths: readonly string[], caches: Caches): string[] {
  return nixProgram('nix-store', fetchOptions(caches), ['--realise', ...paths])
}

/** Returns the inputs of these derivations for nix-store, `/nix/store/….drv!out`; null if the output is malformed. */
export function readInputs(text: string): readonly string[] | null {
  const answer = jsonOf(text)
  if (!isRecord(answer)) return null
  const inputs = new Set<string>()
  for (const derivation of Object.values(answer)) {
    if (!isRecord(derivation) || !isRecord(derivation.inputDrvs)) return null
    for (const [drvPath, wanted] of Object.entries(derivation.inputDrvs)) {
      // Since 2.19 the names are in an object.
      const names = isRecord(wanted) ? wanted.outputs : wanted
      if (!storePathPattern.test(drvPath) || !Array.isArray(names)) return null
      for (const name of names) inputs.add(`${drvPath}!${String(name)}`)
    }
  }
  return [...inputs].sort()
}

export type Missing = {
  readonly build: readonly string[]
  readonly fetch: readonly string[]
  readonly unknown: readonly string[]
}

/** Parses the three lists that Nix prints before realising paths (`printMissing` in its shared.cc). */
export function readMissing(text: string): Missing {
  const lists = { build: [] as string[], fetch: [] as string[], unknown: [] as string[] }
  let list: string[] | null = null
  for (const line of text.split('\n')) {
    const path = /^ {2}(\/\S+)$/.exec(line)?.[1]
    if (path !== undefined) list?.push(path)
    else if (/ will be built:$/.test(line)) list = lists.build
    else if (/ will be fetched .*:$/.test(line)) list = lists.fetch
    else if (/^don't know how to build these paths.*:$/.test(line)) list = lists.unknown
    else list = null
  }
  return lists
}

const ARCHIVE = /\.(?:tar\.(?:gz|bz2|xz|zst)|tgz|tbz2|txz|tar|zip)$/
const urlsMax = 4

/**
 * Fetches each fixed output by URL and hash, one by one, in one run of a shell; null if none of them has an https URL.
 * The store path follows from name and hash, so it is the derivation's. Only Nix's own downloader and unpacker run.
 */
export function nixPrefetchArgv(fetches: readonly NixFetch[]): string[] | null {
  const words = fetches.flatMap(({ name, hash, outputHashMode, urls }) =>
    urls
      .filter(url => /^https:\/\/[\x21-\x7e]+$/.test(url))
      .filter(url => outputHashMode === 'flat' || (outputHashMode === 'recursive' && isArchive(url)))
      .slice(0, urlsMax)
      .flatMap(url => [hash.algorithm, name, outputHashMode === 'flat' ? '' : '--unpack', url, hash.hex]),
  )
  if (words.length === 0) return null
  const program = nixProgram('nix-prefetch-url', {}, [])
    .map(word => `'${word}'`)
    .join(' ')
  const script = `while [ $# -gt 0 ]; do ${program} --type "$1" --name "$2" $3 "$4" "$5"; shift 5; done`
  return ['/bin/sh', '-c', script, 'fetch', ...words]
}

function isArchive(url: string): boolean {
  return URL.canParse(url) && ARCHIVE.test(new URL(url).pathname)
}

export type PathInfo = {
  readonly path: string
  readonly narSha256: string
  readonly narBytes: number
  readonly references: readonly string[]
  readonly signatures: readonly string[]
  readonly contentAddress: string | null
}

/** Parses the output of `nix path-info --json`: a list, or since 2.19 an object by path. Null if it is malformed. */
export function readPathInfos(text: string): readonly PathInfo[] | null {
  const answer = jsonOf(text)
  const entries: [unknown, unknown][] | null = Array.isArray(answer)
    ? answer.map(info => [isRecord(info) ? info.path : null, info])
    : isRecord(answer)
      ? Object.entries(answer)
      : null
  const infos = entries?.map(([path, info]) => pathInfoOf(path, info)) ?? null
  return infos === null || infos.includes(null) ? null : infos.filter(info => info !== null)
}

function pathInfoOf(path: unknown, info: unknown): PathInfo | null {
  if (typeof path !== 'string' || !storePathPattern.test(path) || !isRecord(info)) return null
  const { narHash, narSize, references, signatures = [], ca = null } = info
  const digest = typeof narHash === 'string' ? fromBase64(/^sha256-(.{44})$/.exec(narHash)?.[1] ?? '') : null
  const isText = (list: unknown): list is readonly string[] =>
    Array.isArray(list) && list.every(item => typeof item === 'string')
  if (digest?.length !== 32 || typeof narSize !== 'number' || !isText(references) || !isText(signatures)) return null
  const contentAddress = typeof ca === 'string' && ca !== '' ? ca : null
  return { path, narSha256: toHex(digest), narBytes: narSize, references, signatures, contentAddress }
}

/** Returns the text that a cache signs (`ValidPathInfo::fingerprint` in Nix). */
export function fingerprintOf({ path, narSha256, narBytes, references }: PathInfo): Uint8Array {
  const hash = base32(Uint8Array.fromHex(narSha256))
  return utf8(`1;${path};sha256:${hash};${narBytes};${[...references].sort().join(',')}`)
}

const DIGITS = '0123456789abcdfghijklmnpqrsvwxyz'

/** Encodes Nix's base 32: the digest as one number, least significant byte first, most significant digit first. */
function base32(bytes: Uint8Array): string {
  const bitAt = (at: number) => ((bytes[at >> 3] ?? 0) >> (at & 7)) & 1
  const digitAt = (index: number) => [4, 3, 2, 1, 0].reduce((sum, bit) => sum * 2 + bitAt(index * 5 + bit), 0)
  const count = Math.ceil((bytes.length * 8) / 5)
  return Array.from({ length: count }, (_, at) => DIGITS[digitAt(count - 1 - at)]).join('')
}
