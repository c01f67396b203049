// Checks whether an entry is in a transparency log that the relying party trusts, and how strong the proof is. Pure.
//
// A log that only its owner signs proves little: the owner may show each client another tree. Witnesses attest that the
// tree only grew, and when they saw it. A client that stores its last checkpoint detects a fork by itself.

import { type Checkpoint, decodeCheckpoint, type Signed, verifiedSigners } from '../attest/log/checkpoint.ts'
import { isConsistent, isIncluded, type LogHash, leafHash } from '../attest/log/merkle.ts'
import type { NoteKey } from '../attest/log/note.ts'
import type { LogProof } from '../attest/log/proof.ts'
import { parsed } from '../attest/malformed.ts'
import { type Check, check, fail, notChecked, type Verdict, verdict } from '../attest/verdict.ts'
import { equalConstantTime } from '../base/bytes.ts'

export type KnownLog = {
  readonly key: NoteKey
  /** Keys of witnesses outside of the log owner's control; empty if there are none. */
  readonly witnesses: readonly NoteKey[]
  /** How many of them must have signed; 0 without witnesses. */
  readonly quorum: number
  /** Maximum age of the checkpoint by the witnesses' time: an older one could hide later entries. */
  readonly ageMsMax: number
  /**
   * Accepts a log without witnesses. Default: false. Without witnesses the verdict is not good, because the log's owner
   * can create a private tree for one client.
   */
  readonly unwitnessed?: boolean
}

/** The caller's last checkpoint, and the proof that the tree has only grown since. */
export type RememberedCheckpoint = {
  readonly checkpoint: Pick<Checkpoint, 'origin' | 'size' | 'root'>
  readonly consistency: readonly LogHash[]
}

export type LoggedQuestion = {
  readonly entry: Uint8Array
  readonly proof: LogProof
  readonly log: KnownLog
  /** Null at the first visit. */
  readonly remembered: RememberedCheckpoint | null
} & WitnessTimes

/** Times in milliseconds since 1970. */
export type WitnessTimes = {
  readonly asOf: number
  /** The caller's clock, which may be later than `asOf`. */
  readonly nowMs: number
}

/** `checkpoint` is for the caller to store; null unless the verdict is good. */
export type LoggedVerdict = Verdict & { readonly checkpoint: Checkpoint | null }

/**
 * Returns the checks `log-checkpoint`, `log-included`, `log-consistent`, `log-witnessed` and `log-age`. Never throws.
 */
export async function verifyLogged(question: LoggedQuestion): Promise<LoggedVerdict> {
  const { proof, log, remembered, entry } = question
  const read = parsed(() => decodeCheckpoint(proof.note.text))
  if (!read.ok) return { ...verdict([fail('log-checkpoint', read.reason)]), checkpoint: null }
  const checkpoint = read.value
  const signers = await verifiedSigners(proof.note, [log.key, ...log.witnesses])
  const judged = verdict([
    signedCheck(checkpoint, { signers, key: log.key }),
    check(
      'log-included',
      isIncluded({ index: proof.index, leaf: leafHash(entry), proof: proof.hashes }, checkpoint),
      'the proof does not lead from this entry to the root of the checkpoint',
      `entry ${proof.index} of ${checkpoint.size} in ${checkpoint.origin}`,
    ),
    consistentCheck(checkpoint, remembered),
    ...witnessChecks(signers, log, question),
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

function consistentCheck(checkpoint: Checkpoint, remembered: RememberedCheckpoint | null): Check {
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

/** How far clocks of witnesses may be ahead of the caller's. */
const aheadMsMax = 300_000

/**
 * Checks `log-witnessed` and `log-age`: a quorum of witnesses has cosigned, and a quorum has cosigned recently, because
 * a single one could keep an old tree fresh. A time in the future does not show when the tree was seen.
 */
export function witnessChecks(signers: readonly Signed[], log: KnownLog, times: WitnessTimes): readonly Check[] {
  const [witnessedName, ageName] = ['log-witnessed', 'log-age'] as const
  if (log.witnesses.length === 0) {
    const isAccepted = log.unwitnessed === true
    const alone = "no witness is named: what the log shows is its owner's word, to you alone"
    return [
      isAccepted ? notChecked(witnessedName, alone, false) : fail(witnessedName, alone),
      notChecked(ageName, 'without a witness the age of the checkpoint is unknown', !isAccepted),
    ]
  }
  const witnesses = distinct(signers.filter(({ key }) => log.witnesses.includes(key)))
  const quorum = Math.max(1, log.quorum)
  const names = witnesses.map(({ key }) => key.name).join(', ')
  const few = `${witnesses.length} of ${quorum} witnesses have cosigned the checkpoint`
  const isEnough = witnesses.length >= quorum
  return [
    check(witnessedName, isEnough, few, names),
    isEnough ? ageCheck(ageName, witnesses, { ...log, quorum }, times) : notChecked(ageName, few, true),
  ]
}

/** Returns the newest signature of each key, whatever its names, newest first. */
function distinct(signers: readonly Signed[]): readonly Signed[] {
  const newest = signers.toSorted((a, b) => timeOf(b) - timeOf(a))
  const isFirst = ({ key }: Signed, at: number) =>
    newest.findIndex(other => equalConstantTime(other.key.publicKey, key.publicKey)) === at
  return newest.filter(isFirst)
}

function ageCheck(
  name: string,
  witnesses: readonly Signed[],
  { quorum, ageMsMax }: KnownLog,
  { asOf, nowMs }: WitnessTimes,
): Check {
  const untilMs = Math.max(asOf, nowMs) + aheadMsMax
  const past = witnesses.filter(witness => timeOf(witness) <= untilMs)
  const last = past[quorum - 1]
  const [ahead] = witnesses
  if (last === undefined) {
    const seen = ahead === undefined ? '' : `${ahead.key.name} signed ${iso(timeOf(ahead))}`
    return fail(name, `${seen}, which is still to come: its clock or yours is wrong`)
  }
  const latestMs = timeOf(last)
  const days = Math.round(ageMsMax / 86_400_000)
  return check(
    name,
    asOf - latestMs <= ageMsMax,
    `last witnessed ${iso(latestMs)}, more than ${days} days ago`,
    `witnessed ${iso(latestMs)}`,
  )
}

function timeOf({ atMs }: Signed): number {
  return atMs ?? 0
}

function iso(ms: number): string {
  return new Date(ms).toISOString()
}
