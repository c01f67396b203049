// Whether an entry is in a transparency log that the relying party knows, and how much that is worth. Pure.
//
// A log that only its owner signs is the owner's word: it may show each client another tree. Witnesses sign that the
// tree only grew, and when they saw it; a client that remembers its last checkpoint sees a fork by itself.

import { type Checkpoint, decodeCheckpoint, type Signed, verifiedSigners } from '../attest/log/checkpoint.ts'
import { isConsistent, isIncluded, type LogHash, leafHash } from '../attest/log/merkle.ts'
import type { NoteKey } from '../attest/log/note.ts'
import type { LogProof } from '../attest/log/proof.ts'
import { parsed } from '../attest/malformed.ts'
import { type Check, check, fail, notChecked, type Verdict, verdict } from '../attest/verdict.ts'
import { equalConstantTime } from '../base/bytes.ts'

export type KnownLog = {
  readonly key: NoteKey
  /** Outside of the log's owner's reach; empty: there is none. */
  readonly witnesses: readonly NoteKey[]
  /** How many of them have to have signed; 0 with no witness. */
  readonly quorum: number
  /** Age of the checkpoint by the witnesses' time: an older one could hide what came since. */
  readonly ageMsMax: number
  /**
   * Accepts a log that no witness vouches for. Default false: without witnesses the verdict is not good, because the
   * log's owner can make a private tree for one client.
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

/** Milliseconds since the epoch. */
export type WitnessTimes = {
  readonly asOf: number
  /** The caller's clock, which may be later than `asOf`. */
  readonly nowMs: number
}

/** `checkpoint`: for the caller to remember; null unless the verdict is good. */
export type LoggedVerdict = Verdict & { readonly checkpoint: Checkpoint | null }

/** Checks `log-checkpoint`, `log-included`, `log-consistent`, `log-witnessed` and `log-age`. Never throws. */
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

/** Clocks of witnesses may be this much ahead of the caller's. */
const aheadMsMax = 300_000

/**
 * Checks `log-witnessed` and `log-age`: as many as the quorum have cosigned, and as many lately, for one of them alone
 * could keep an old tree young. A time that is still to come says nothing of when the tree was seen.
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

/** The newest first; one key counts once, under however many names. */
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
