// Follows a transparency log: fetches and hashes every entry, and so verifies that the tree matches the log's signature
// and begins with everything that this user has seen of it. Effects: the network, files of the memory.

import { verifiedSigners } from '../../attest/log/checkpoint.ts'
import { emptyRoot, type LogHash, leafHash, logHashBytes, nodeHash } from '../../attest/log/merkle.ts'
import { tileHashes } from '../../attest/log/tiles.ts'
import { Malformed, wellFormed } from '../../attest/malformed.ts'
import { equalConstantTime, fromBase64, toBase64 } from '../../base/bytes.ts'
import { iso } from '../../base/clock.ts'
import { resultOr } from '../../base/result-or.ts'
import { type LogEntry, readLogEntry } from '../../contract/http/log-entry.ts'
import { readTextOrNull, writeFileAtomic } from '../../linux/files.ts'
import { type KnownLog, witnessChecks } from '../../verifier/log.ts'
import type { LogMemory } from './memory.ts'
import type { RemoteLog } from './remote.ts'

/** Limit on new entries per visit. A log that claims more is not ours, or lies. */
const entriesMax = 1_048_576

export type Visit = {
  readonly origin: string
  readonly size: number
  readonly entries: readonly { readonly index: number; readonly entry: LogEntry }[]
  readonly witnesses: readonly { readonly name: string; readonly at: string }[]
  /** Faults of the log; empty if there are none. */
  readonly problems: readonly string[]
  /** Remarks that are not failures, for example that no external witness has cosigned. */
  readonly remarks: readonly string[]
  /** Null if there was no fork. */
  readonly forkFile: string | null
}

export type MonitorDeps = {
  readonly remote: RemoteLog
  readonly known: KnownLog
  readonly memory: LogMemory | null
  /** Reads from the first entry, even if an earlier visit has read it. */
  readonly all: boolean
  readonly nowMs: number
}

/** Visits the log once. Throws LogUnreachable if it does not respond, and Malformed if its response is not a log's. */
export async function visitLog({ remote, known, memory, all, nowMs }: MonitorDeps): Promise<Visit> {
  const { key } = known
  const { note, checkpoint } = await remote.checkpoint()
  const { origin, size } = checkpoint
  const nothing = { origin, size, entries: [], witnesses: [], remarks: [], forkFile: null }
  if (origin !== key.name) return { ...nothing, problems: [`it is the log ${origin}, not ${key.name}`] }
  const signers = await verifiedSigners(note, [key, ...known.witnesses])
  if (!signers.some(signer => signer.key === key))
    return { ...nothing, problems: ['its key has not signed the checkpoint'] }
  const witnesses = signers.flatMap(({ key: { name }, atMs }) => (atMs === null ? [] : [{ name, at: iso(atMs) }]))
  const last = memory?.last(key) ?? null
  const tree = all || memory === null ? new GrowingTree() : readTree(memory.fileOf(key, 'tree'))
  const before = tree.size
  const forked = (why: string): Visit => {
    const forkFile = memory === null || last === null ? null : memory.keepFork(key, { earlier: last.note, later: note })
    const words = last === null ? why : `${why}: it shows you another tree than before`
    return { ...nothing, witnesses, forkFile, problems: [words] }
  }
  if (size < Math.max(before, last?.checkpoint.size ?? 0)) return forked(`the log has shrunk to ${size} entries`)
  wellFormed(size - before <= entriesMax, `the log claims ${size - before} new entries, at most ${entriesMax} are read`)
  const entries: Visit['entries'][number][] = []
  const problems: string[] = []
  let isSeen = last === null || last.checkpoint.size < before || tree.has(last.checkpoint)
  for await (const { index, bytes } of newEntries(remote, before, size)) {
    tree.add(leafHash(bytes))
    if (last?.checkpoint.size === index + 1) isSeen = tree.has(last.checkpoint)
    const entry = readLogEntry(bytes)
    if (entry === null) problems.push(`entry ${index} has an unsupported format, or more than digests in it`)
    else entries.push({ index, entry })
  }
  if (!tree.has(checkpoint) || !isSeen) return forked('the entries are not those of the checkpoint')
  if (memory !== null) {
    memory.keep(key, note)
    writeFileAtomic(memory.fileOf(key, 'tree'), tree.text(), { mode: 0o600 })
  }
  // A monitor reads every entry itself, so it needs no witness.
  const judged = witnessChecks(signers, { ...known, unwitnessed: true }, { asOf: nowMs, nowMs })
  const bad = judged.filter(({ outcome }) => outcome === 'fail').map(({ reason }) => reason)
  const remarks = known.witnesses.length === 0 ? judged.slice(0, 1).map(({ reason }) => reason) : []
  return { ...nothing, entries, witnesses, problems: [...problems, ...bad], remarks }
}

async function* newEntries(remote: RemoteLog, from: number, size: number) {
  for (let at = from; at < size; ) {
    const index = Math.floor(at / tileHashes)
    const bundle = await remote.bundle(index, size)
    for (const bytes of bundle.slice(at - index * tileHashes)) {
      yield { index: at, bytes }
      at += 1
    }
  }
}

/** Roots of the complete subtrees of a growing tree, largest first. They suffice to compute its root. */
class GrowingTree {
  size: number
  readonly #peaks: { readonly level: number; readonly hash: LogHash }[]

  constructor(size = 0, peaks: readonly { readonly level: number; readonly hash: LogHash }[] = []) {
    this.size = size
    this.#peaks = [...peaks]
  }

  add(leaf: LogHash): void {
    this.size += 1
    let [level, hash] = [0, leaf]
    for (let last = this.#peaks.at(-1); last?.level === level; last = this.#peaks.at(-1)) {
      this.#peaks.pop()
      hash = nodeHash(last.hash, hash)
      level += 1
    }
    this.#peaks.push({ level, hash })
  }

  /** Reports whether the tree has this size and root. */
  has({ size, root }: { readonly size: number; readonly root: LogHash }): boolean {
    if (size !== this.size) return false
    const last = this.#peaks.at(-1)
    if (last === undefined) return equalConstantTime(emptyRoot(), root)
    const own = this.#peaks.slice(0, -1).reduceRight((right, { hash }) => nodeHash(hash, right), last.hash)
    return equalConstantTime(own, root)
  }

  text(): string {
    return `${[this.size, ...this.#peaks.map(({ hash }) => toBase64(hash))].join('\n')}\n`
  }
}

/** Reads the stored tree. Returns an empty one if the file is missing or damaged; all entries are then read again. */
function readTree(path: string): GrowingTree {
  const [first = '', ...lines] = (readTextOrNull(path) ?? '').trim().split('\n')
  return resultOr(() => {
    const size = Number(first)
    if (!/^[1-9][0-9]{0,15}$/.test(first) || !Number.isSafeInteger(size)) throw new Malformed('tree: size')
    const bits = [...size.toString(2)].reverse()
    const levels = bits.flatMap((bit, level) => (bit === '1' ? [level] : [])).reverse()
    wellFormed(levels.length === lines.length, 'tree: hashes')
    const peaks = lines.map((line, at) => {
      const hash = fromBase64(line)
      wellFormed(hash?.length === logHashBytes, 'tree: a hash')
      return { level: levels[at] ?? 0, hash: hash ?? new Uint8Array(0) }
    })
    return new GrowingTree(size, peaks)
  }, new GrowingTree())
}
