// Whether an entry is in a transparency log that the relying party knows, and how much that is worth. Pure.
//
// A log that only its owner signs is the owner's word: it may show each client another tree. Witnesses sign that the
// tree only grew, and when they saw it; a client that remembers its last checkpoint sees a fork by itself.

import { type Checkpoint, decodeCheckpoint, type Signed, verifiedSigners } from '../attest/log/checkpoint.ts'
import { isConsistent, isIncluded, type LogHash, leafHash } from '../attest/log/merkle.ts'
import type { NoteKey } from '../attest/log/note.ts'
import type { LogProof } from '../attest/log/proof.ts'
import { parsed } from '../attest/malformed.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../attest/verdict.ts'
import { equalConstantTime } from '../base/bytes.ts'

export type KnownLog = {
  readonly key: NoteKey
  /** Outside of the log's owner's reach; empty: there is none. */
  readonly witnesses: readonly NoteKey[]
  /** How many of them have to have signed; 0 with no witness. */
  readonly quorum: number
  /** Age of the checkpoint by the witnesses' time: an older one could hide what came since. */
  readonly ageMsMax: number
}

/** The caller's last checkpoint, and the proof that the tree has only grown since. */
export type Remembered = {
  readonly checkpoint: Pick<Checkpoint, 'origin' | 'size' | 'root'>
  readonly consistency: readonly LogHash[]
}

export type LoggedQuestion = {
  readonly entry: Uint8Array
  readonly proof: LogProof
  readonly log: KnownLog
  /** Null: the first visit. */
  readonly remembered: Remembered | null
  /** Milliseconds since the epoch. */
  readonly asOf: number
}

/** `checkpoint`: for the caller to remember; null unless the verdict is good. */
export type LoggedVerdict = Verdict & { readonly checkpoint: Checkpoint | null }

/** Checks `log-checkpoint`, `log-included`, `log-consistent`, `log-witnessed` and `log-age`. Never throws. */
export async function verifyLogged(question: LoggedQuestion): Promise<LoggedVerdict> {
  const { proof, log, remembered, entry, asOf } = question
  const read = parsed(() => decodeCheckpoint(proof.note.text))
  if (!read.ok) return { ...verdict([fail('log-checkpoint', read.reason)]), checkpoint: null }
  const checkpoint = read.value
  const signers = await verifiedSigners(proof.note, [log.key, ...log.witnesses])
  const witnesses = signers.filter(({ key }) => log.witnesses.includes(key))
  const judged = verdict([
    signedCheck(checkpoint, { signers, key: log.key }),
    check(
      'log-included',
      isIncluded({ index: proof.index, leaf: leafHash(entry), proof: proof.hashes }, checkpoint),
      'the proof does not lead from this entry to the root of the checkpoint',
      `entry ${proof.index} of ${checkpoint.size} in ${checkpoint.origin}`,
    ),
    consistentCheck(checkpoint, remembered),
    witnessedCheck(witnesses, log),
    ageCheck(witnesses, log, asOf),
  ])
  return { ...judged, checkpoint: judged.ok ? checkpoint : null }
}

function signedCheck(
  { origin }: Checkpoint,
  { signers, key }: { readonly signers: readonly Signed[]; readonly key: NoteKey },
): Check {
  const name = 'log-checkpoint'
  if (origin !== key.name) return fail(name, `the checkpoint is of the log ${origin}, not of ${key.name}`)
  const isSigned = signers.some(signer => signer.key === key)
  return check(name, isSigned, `${key.name} has not signed the checkpoint`, `signed by ${key.name}`)
}

function consistentCheck(checkpoint: Checkpoint, remembered: Remembered | null): Check {
  const name = 'log-consistent'
  if (remembered === null) return notChecked(name, 'no checkpoint of an earlier visit is known', false)
  const { checkpoint: older, consistency } = remembered
  if (older.origin !== checkpoint.origin) return fail(name, `the earlier checkpoint is of the log ${older.origin}`)
  const sizes = `${older.size} entries then, ${checkpoint.size} now`
  if (older.size > checkpoint.size) {
    return fail(name, `the log has shrunk (${sizes}): it shows you another tree than before`)
  }
  const isSame = older.size === checkpoint.size && equalConstantTime(older.root, checkpoint.root)
  const holds = isSame || isConsistent(older, checkpoint, consistency)
  return check(name, holds, `the log is not that of before (${sizes}): it shows you another tree`, sizes)
}

function witnessedCheck(witnesses: readonly Signed[], { quorum, witnesses: known }: KnownLog): Check {
  const name = 'log-witnessed'
  const names = witnesses.map(({ key }) => key.name).join(', ')
  if (known.length === 0) {
    return notChecked(name, "no witness is named: what the log shows is its owner's word, to you alone", false)
  }
  const enough = witnesses.length >= Math.max(1, quorum)
  return check(name, enough, `${witnesses.length} of ${quorum} witnesses have signed the checkpoint`, names)
}

function ageCheck(witnesses: readonly Signed[], { ageMsMax, witnesses: known }: KnownLog, asOf: number): Check {
  const name = 'log-age'
  if (known.length === 0) return notChecked(name, 'without a witness nobody says when the checkpoint was made', false)
  const latestMs = Math.max(...witnesses.map(({ atMs }) => atMs ?? 0))
  if (!Number.isFinite(latestMs)) return notChecked(name, 'no witness has signed', true)
  const seen = new Date(latestMs).toISOString()
  return asOf - latestMs <= ageMsMax
    ? pass(name, `witnessed ${seen}`)
    : fail(name, `last witnessed ${seen}, more than ${Math.round(ageMsMax / 86_400_000)} days ago`)
}
