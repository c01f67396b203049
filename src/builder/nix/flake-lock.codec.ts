// Reads the external inputs in flake.lock (nix.dev/manual/nix/2.26, "nix flake", lock files). Pure.

import type { LockedPackage } from '../../attest/provenance/record.ts'
import { fromBase64, toHex, utf8 } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import { isRecord, parseJson } from '../../base/json.ts'
import { BuildFailure } from '../failure.ts'

export type FlakeInput = Extract<LockedPackage, { kind: 'flake-input' }>

const nodesMax = 1_000
const depthMax = 16
/** The versions that Nix 2.26 supports. */
const VERSIONS: readonly unknown[] = [5, 6, 7]

/**
 * Returns the inputs, sorted by name. Failures: `source_invalid`; `checksum_mismatch` for an input without a narHash.
 */
export function readFlakeLock(text: string): readonly FlakeInput[] {
  let lock: unknown
  try {
    lock = parseJson(utf8(text), { depthMax })
  } catch (error) {
    if (/^(?:<{7} |>{7} )/m.test(text)) throw invalid('it contains merge conflict markers; run `nix flake lock`')
    throw invalid(messageOf(error))
  }
  if (!isRecord(lock) || !VERSIONS.includes(lock.version) || !isRecord(lock.nodes))
    throw invalid('not of version 5, 6 or 7; delete it and run `nix flake lock` with Nix 2.26')
  const nodes = Object.entries(lock.nodes)
  if (nodes.length > nodesMax) throw invalid(`more than ${nodesMax} inputs`)
  const inputs: FlakeInput[] = []
  const addresses = new Map<string, { readonly name: string; readonly address: string }>()
  const reached = reachedFrom(lock.root, lock.nodes)
  for (const [name, node] of nodes.sort(([a], [b]) => (a < b ? -1 : 1))) {
    // Nix fetches the nodes that the root reaches, and ignores the others.
    if (name === lock.root || !reached.has(name)) continue
    if (!isRecord(node) || !isRecord(node.locked))
      throw invalid(`input ${shown(name)} is not locked; run \`nix flake lock\``)
    const locked = { ...node.locked, ...infoOf(name, node.info, lock.version) }
    if (locked.type === 'path') {
      checkPath(name, locked.path, node.parent)
      continue
    }
    const narSha256 = narSha256Of(name, locked.narHash)
    const address = fetchedAddress(locked)
    const first = addresses.get(narSha256) ?? { name, address }
    if (first.address !== address) throw sharedHash(first.name, name)
    addresses.set(narSha256, first)
    inputs.push({ kind: 'flake-input', name, uri: uriOf(locked), narSha256 })
  }
  return inputs
}

/**
 * Nix uses these attributes instead of those in `locked`, in every version. Locks of version 5 have the hash in `info`;
 * in others `info` would make `locked` differ from what Nix fetches.
 */
function infoOf(name: string, info: unknown, version: unknown): Record<string, unknown> {
  if (info === undefined) return {}
  if (version === 5 && isRecord(info)) return info
  throw invalid(
    `input ${shown(name)} has "info", which Nix would use instead of "locked"; delete it and run \`nix flake lock\``,
  )
}

/** Returns the names of a flake's input nodes, and of their inputs. `follows` is a path of names that leads to one. */
function reachedFrom(root: unknown, nodes: Record<string, unknown>): ReadonlySet<unknown> {
  const reached = new Set<unknown>([root])
  for (const name of reached) {
    const node = typeof name === 'string' && Object.hasOwn(nodes, name) ? nodes[name] : null
    if (!isRecord(node)) throw invalid(`node ${shown(String(name))} is missing; run \`nix flake lock\``)
    const inputs = isRecord(node.inputs) ? Object.values(node.inputs) : []
    for (const input of inputs) if (!Array.isArray(input)) reached.add(input)
  }
  return reached
}

/**
 * Checks a relative path. It is in the flake that names it: in the source, whose tree id covers it, or in another input
 * (`parent`), whose narHash covers it.
 */
function checkPath(name: string, path: unknown, parent: unknown): void {
  const isOfInput = Array.isArray(parent) && parent.length > 0
  const isInside = typeof path === 'string' && !path.startsWith('/') && (isOfInput || !leadsOut(path))
  if (isInside) return
  throw invalid(
    `input ${shown(name)} is the path ${shown(String(path))}, which is not in the directory of flake.nix; ` +
      'move its files there and refer to them as `path:./DIR`, or to a Git repository, and run `nix flake lock`',
  )
}

function leadsOut(path: string): boolean {
  let depth = 0
  for (const component of path.split('/')) {
    if (component === '..') depth -= 1
    else if (component !== '' && component !== '.') depth += 1
    if (depth < 0) return true
  }
  return false
}

function narSha256Of(name: string, narHash: unknown): string {
  const base64 = typeof narHash === 'string' ? /^sha256-(.{44})$/.exec(narHash)?.[1] : undefined
  const bytes = base64 === undefined ? null : fromBase64(base64)
  if (bytes?.length !== 32) {
    throw new BuildFailure(
      'checksum_mismatch',
      `flake.lock: input ${shown(name)} has no narHash, as Nix with lazy trees writes it; ` +
        'delete flake.lock and run `nix flake lock --option lazy-trees false`',
    )
  }
  return toHex(bytes)
}

/**
 * Nix fetches only one of the two and uses it for both. The evidence would list the other address for bytes that did
 * not come from there, and that it may never have served.
 */
function sharedHash(first: string, other: string): BuildFailure {
  return invalid(
    `the inputs ${shown(first)} and ${shown(other)} have one narHash and different addresses, of which Nix fetches only ` +
      `one; let one follow the other in flake.nix (\`inputs.NAME.follows = "OTHER"\`), and run \`nix flake lock\``,
  )
}

/** Returns the same address for two inputs from one place: in any of its directories, and ignoring case on GitHub. */
function fetchedAddress(locked: Record<string, unknown>): string {
  const address = uriOf({ ...locked, dir: '' })
  return locked.type === 'github' && locked.host === undefined ? address.toLowerCase() : address
}

/** Returns the reference in Nix's form for the common types, otherwise the URL or the type alone. */
function uriOf(locked: Record<string, unknown>): string {
  const text = (key: string) => (typeof locked[key] === 'string' ? locked[key] : '')
  // A server other than the public one, and the directory of the flake in the repository.
  const query = ['host', 'dir'].flatMap(key => (text(key) === '' ? [] : [`${key}=${text(key)}`]))
  if (['github', 'gitlab', 'sourcehut'].includes(text('type'))) {
    const reference = `${text('type')}:${text('owner')}/${text('repo')}/${text('rev')}`
    return query.length === 0 ? reference : `${reference}?${query.join('&')}`
  }
  if (text('type') === 'git') return `git+${text('url')}?rev=${text('rev')}`
  return text('url') === '' ? `flake:${text('type')}` : text('url')
}

function shown(text: string): string {
  return JSON.stringify(text.slice(0, 100))
}

function invalid(problem: string): BuildFailure {
  return new BuildFailure('source_invalid', `flake.lock: ${problem}`)
}
