// Checks whether a fact is in the transparency log that the caller pins, as checks of a verdict. Effects: the network,
// or a file; the memory of earlier visits; the clock.

import { decodeCheckpoint } from '../../attest/log/checkpoint.ts'
import { leafHash } from '../../attest/log/merkle.ts'
import type { Note } from '../../attest/log/note.ts'
import { decodeLogProof, encodeLogProof, type LogProof, logProofBytesMax } from '../../attest/log/proof.ts'
import { Malformed } from '../../attest/malformed.ts'
import { type Check, fail, notChecked } from '../../attest/verdict.ts'
import { systemClock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { encodeLogEntry, type LogFact } from '../../contract/http/log-entry.ts'
import { readInput, readingInput } from '../../terminal/input-file.ts'
import { type KnownLog, type RememberedCheckpoint, verifyLogged } from '../../verifier/log.ts'
import type { LogMemory } from './memory.ts'
import { LogUnreachable, type ReadNote, RemoteLog, type RemoteLogOptions } from './remote.ts'

export type AskedLog = {
  readonly source: RemoteLogOptions | { readonly file: string }
  readonly known: KnownLog
  /** Null if visits are not stored. */
  readonly memory: LogMemory | null
  readonly asOf: number
}

export type LogJudgement = {
  readonly checks: readonly Check[]
  readonly ok: boolean
  /** Position of the entry; null unless it is in the log. */
  readonly place: { readonly index: number; readonly size: number } | null
  /** The proof, to store for an offline check; null if there is none. */
  readonly proof: string | null
  /** The file with both signed checkpoints of a fork; null if there was no fork. */
  readonly forkFile: string | null
  /** The log responds, and its tree does not contain the entry (yet). */
  readonly isAbsent: boolean
}

/**
 * Judges a fact. Never throws for a response of the log. Throws Fault invalid_request if a file of the caller is
 * unreadable.
 */
export async function judgeLogged(fact: LogFact | null, asked: AskedLog): Promise<LogJudgement> {
  if (fact === null) return failed(notChecked('log-included', 'without a receipt there is nothing to look for', true))
  const entry = encodeLogEntry(fact)
  try {
    return await judge(fact, entry, asked)
  } catch (error) {
    if (error instanceof LogUnreachable) return failed(fail('log-connection', messageOf(error)))
    if (error instanceof Malformed) return failed(fail('log-format', error.message))
    throw error
  }
}

function failed(check: Check): LogJudgement {
  return { checks: [check], ok: false, place: null, proof: null, forkFile: null, isAbsent: false }
}

async function judge(fact: LogFact, entry: Uint8Array, asked: AskedLog): Promise<LogJudgement> {
  const { source, known, memory, asOf } = asked
  const remote = 'url' in source ? new RemoteLog(source) : null
  const found = 'file' in source ? await proofFile(source.file) : await proofOf(entry, remote)
  const proof = found.isThere ? found.proof : { ...found.proof, index: Number.MAX_SAFE_INTEGER }
  const last = memory?.last(known.key) ?? null
  const remembered = last === null ? null : await rememberedFor(last, found.proof, remote)
  const verdict = await verifyLogged({ entry, proof, log: known, remembered, asOf, nowMs: systemClock.nowMs() })
  const isUnseen = last !== null && remembered === null
  const checks = verdict.checks.map(item => {
    if (item.name === 'log-included' && !found.isThere)
      return fail(
        item.name,
        `the log does not have this ${fact.kind}: it was served and not logged, or not cosigned yet`,
      )
    return item.name === 'log-consistent' && isUnseen ? notChecked(item.name, noTiles, false) : item
  })
  const isFork = checks.some(({ name, outcome }) => name === 'log-consistent' && outcome === 'fail')
  const isSigned = checks.some(({ name, outcome }) => name === 'log-checkpoint' && outcome === 'pass')
  const forkFile =
    isFork && isSigned && memory !== null && last !== null
      ? memory.keepFork(known.key, { earlier: last.note, later: proof.note })
      : null
  if (verdict.checkpoint !== null && !isUnseen) memory?.keep(known.key, proof.note)
  const place = verdict.checkpoint === null ? null : { index: proof.index, size: verdict.checkpoint.size }
  const kept = found.isThere ? encodeLogProof(found.proof) : null
  return { checks, ok: verdict.ok, place, proof: kept, forkFile, isAbsent: !found.isThere }
}

const noTiles = 'a proof file cannot show that the log only grew since your last visit; name the log by its address'

type FoundProof = { readonly proof: LogProof; readonly isThere: boolean }

async function proofFile(path: string): Promise<FoundProof> {
  const bytes = readInput({ path, param: 'log', bytesMax: logProofBytesMax })
  return { proof: await readingInput(`--log ${path}`, () => decodeLogProof(bytes)), isThere: true }
}

async function proofOf(entry: Uint8Array, remote: RemoteLog | null): Promise<FoundProof> {
  const found = (await remote?.proof(leafHash(entry))) ?? null
  if (found !== null) return { proof: found.proof, isThere: true }
  const note: Note = (await remote?.checkpoint())?.note ?? { text: '', signatures: [] }
  return { proof: { index: 0, hashes: [], note }, isThere: false }
}

/** Returns the stored checkpoint; null if a file without its log cannot prove it. */
async function rememberedFor(
  last: ReadNote,
  { note }: LogProof,
  remote: RemoteLog | null,
): Promise<RememberedCheckpoint | null> {
  const { checkpoint } = last
  const { size } = decodeCheckpoint(note.text)
  const isSame = size === checkpoint.size
  if (remote === null && !isSame) return null
  const grew = size > checkpoint.size
  return { checkpoint, consistency: grew ? ((await remote?.consistency(checkpoint.size, size)) ?? []) : [] }
}
