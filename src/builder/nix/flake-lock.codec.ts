// Reads flake.lock (nix.dev/manual/nix/2.26, "nix flake", lock files, version 7): what it takes from outside. Pure.

import type { LockedPackage } from '../../attest/provenance/record.ts'
import { fromBase64, toHex, utf8 } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import { isRecord, parseJson } from '../../base/json.ts'
import { BuildFailure } from '../failure.ts'

export type FlakeInput = Extract<LockedPackage, { kind: 'flake-input' }>

const nodesMax = 1_000
const depthMax = 16

/** Sorted by name. Failures: `source_invalid`; `checksum_mismatch` for an input without a narHash. */
export function readFlakeLock(text: string): readonly FlakeInput[] {
  let lock: unknown
  try {
    lock = parseJson(utf8(text), { depthMax })
  } catch (error) {
    throw invalid(messageOf(error))
  }
  if (!isRecord(lock) || lock.version !== 7 || !isRecord(lock.nodes))
    throw invalid('not of version 7; run `nix flake lock`')
  const nodes = Object.entries(lock.nodes)
  if (nodes.length > nodesMax) throw invalid(`more than ${nodesMax} inputs`)
  const inputs: FlakeInput[] = []
  for (const [name, node] of nodes.sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (name === lock.root) continue
    if (!isRecord(node) || !isRecord(node.locked))
      throw invalid(`input ${JSON.stringify(name.slice(0, 100))} is not locked`)
    // Inside the source, whose tree id covers it.
    if (node.locked.type === 'path') continue
    inputs.push({
      kind: 'flake-input',
      name,
      uri: uriOf(node.locked),
      narSha256: narSha256Of(name, node.locked.narHash),
    })
  }
  return inputs
}

function narSha256Of(name: string, narHash: unknown): string {
  const base64 = typeof narHash === 'string' ? /^sha256-(.{44})$/.exec(narHash)?.[1] : undefined
  const bytes = base64 === undefined ? null : fromBase64(base64)
  if (bytes?.length !== 32) {
    throw new BuildFailure(
      'checksum_mismatch',
      `flake.lock: input ${JSON.stringify(name.slice(0, 100))} has no narHash; run \`nix flake lock\``,
    )
  }
  return toHex(bytes)
}

/** A reference in Nix's form for the common kinds; else the type alone. */
function uriOf(locked: Record<string, unknown>): string {
  const text = (key: string) => (typeof locked[key] === 'string' ? locked[key] : '')
  if (['github', 'gitlab', 'sourcehut'].includes(text('type')))
    return `${text('type')}:${text('owner')}/${text('repo')}/${text('rev')}`
  if (text('type') === 'git') return `git+${text('url')}?rev=${text('rev')}`
  return text('url') === '' ? `flake:${text('type')}` : text('url')
}

function invalid(problem: string): BuildFailure {
  return new BuildFailure('source_invalid', `flake.lock: ${problem}`)
}
