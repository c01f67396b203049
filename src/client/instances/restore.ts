// Restores a snapshot into a new instance, for `strongroom up --from`. Effects: the network, key files, processes.
//
// All that can be checked is checked before the instance is created. The VM fetches the ciphertext from its host; over
// the verified SSH connection goes only the key of that file, wrapped for this one use.

import { sha256 } from '../../attest/hash.ts'
import { toBase64, toHex } from '../../base/bytes.ts'
import { iso, systemClock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { systemRandom } from '../../base/ids.ts'
import type { Snapshot } from '../../contract/http/snapshot.ts'
import type { SnapshotHeader } from '../../contract/snapshot.ts'
import type { Command, Run } from '../../terminal/command.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import { oneLine } from '../../terminal/render.ts'
import { ageHeaderIn, oneTimeHeader } from '../snapshots/age-header.ts'
import { judgeSnapshot } from '../snapshots/judge.ts'
import type { SnapshotMemory } from '../snapshots/memory.ts'
import { type KeyFiles, openHeader } from '../snapshots/open-header.ts'
import type { InstanceExpectation } from '../verify/instance.ts'
import { identitiesOf } from '../verify/keys/own-keys.ts'
import type { LocalInstance } from './names.ts'
import { identityOf, type Login, optionsOf, runSsh } from './openssh.ts'
import type { SnapshotService } from './snapshot-service.ts'
import { findSnapshot, knownInstance, type SnapshotWord, snapshotWord, type WordLookup } from './snapshot-word.ts'

export type RestoreOptions = { from?: SnapshotWord; identity?: string; acceptOlder?: boolean }

export function addRestoreOptions(command: Command): Command {
  return command
    .option(
      '--from <snapshot>',
      'NAME or NAME:NUMBER of `strongroom snapshot ls`: restore it into the new instance',
      snapshotWord,
    )
    .option('--identity <file>', 'private key that opens the snapshot, of SSH or of age; default: yours below ~/.ssh')
    .option('--accept-older', 'restore a snapshot although this machine has seen a newer one')
}

/** A snapshot that was verified and opened. */
export type Prepared = {
  readonly snapshot: Snapshot
  readonly stated: SnapshotHeader
  readonly fileKey: Uint8Array
  /** Bytes of the header that is replaced. */
  readonly headerBytes: number
}

export type RestoreDeps = WordLookup & { readonly snapshots: SnapshotService; readonly memory: SnapshotMemory }

/** The private keys that the caller's options name, and those of ~/.ssh. */
export function keyFilesOf(
  { identity, publicKey }: { readonly identity?: string; readonly publicKey?: string },
  { ownKeys, defaults }: Pick<InstanceExpectation, 'ownKeys' | 'defaults'>,
  args: readonly string[],
): KeyFiles {
  const named = identityOf(publicKey ?? defaults.public_key)
  const own = [...ownKeys.sources.values()].flatMap(path =>
    path.endsWith('.pub') ? [path.slice(0, -'.pub'.length)] : [],
  )
  return { identity, files: [...identitiesOf(args), ...(named === null ? [] : [named]), ...own], ownKeys }
}

/** Returns the name of the snapshot in the record of a local name whose restore is pending. */
export function restoringText({ snapshot }: Prepared): string {
  return `${snapshot.instance}:${snapshot.number}`
}

/** Refuses an instance that was not begun for this snapshot: a restore would replace its files. */
export function refuseOther(name: string, { restoring }: LocalInstance, prepared: Prepared): void {
  if (restoring === restoringText(prepared)) return
  throw new AdvisedFault('conflict', `${name} exists, and --from restores into a new instance alone`, {
    remedy: 'take another name for the new instance, or delete this one first by `strongroom rm`',
  })
}

/** A later repetition of an interrupted restore may replace files that were made since. */
const repeatMs = 60 * 60 * 1_000

/**
 * Has a person confirm a restore into an instance that was requested over an hour ago. Fault conflict without a yes, or
 * without a terminal.
 */
export async function confirmLate(
  { io }: Run,
  name: string,
  local: LocalInstance | null,
  wanted: Prepared,
): Promise<void> {
  if (local === null || local.hostname === null || local.restoring !== restoringText(wanted)) return
  if (Math.abs(systemClock.nowMs() - local.requestedAtMs) <= repeatMs) return
  const since = iso(local.requestedAtMs)
  const words = `${name} was requested at ${since}, and files that were made there since then are replaced`
  const answer = await io.ask?.(`${oneLine(words)}. Restore ${restoringText(wanted)} into it? [y/N] `)
  if (/^\s*y(?:es)?\s*$/i.test(answer ?? '')) return
  throw new AdvisedFault('conflict', `nothing was restored: ${words}`, {
    remedy: `answer y in a terminal, or restore into a new instance by another name`,
  })
}

/** Prints a remark if the restore into an instance was interrupted. */
export async function hintOfPending(run: Run, name: string, { restoring }: LocalInstance): Promise<void> {
  if (restoring === undefined) return
  const again = `before you work in it, repeat \`strongroom up ${name} --from ${restoring}\``
  await run.hint(`the restore of ${restoring} into ${name} is not complete: ${again}`)
}

/** Finds, verifies and opens a snapshot. Faults invalid_request, not_found, conflict, internal. */
export async function prepareRestore(
  run: Run,
  from: SnapshotWord,
  { keys, acceptOlder, ...deps }: RestoreDeps & { readonly keys: KeyFiles; readonly acceptOlder: boolean },
): Promise<Prepared> {
  const { snapshots, memory } = deps
  const seen = await knownInstance(from.word, deps)
  const snapshot = await findSnapshot(seen, from.number, snapshots)
  const stated = judgeSnapshot(snapshot, seen, { isOlderAccepted: acceptOlder })
  const head = await snapshots.head(snapshot)
  const header = head === null ? null : ageHeaderIn(head)
  if (header === null || toHex(sha256(header)) !== stated.ageHeader) {
    throw new AdvisedFault(
      'internal',
      `${snapshots.host}: its ciphertext is not the one that ${seen.hostname} signed`,
      {
        remedy: 'do not restore it, and ask the operator of the service',
      },
    )
  }
  const fileKey = await openHeader(run, header, keys)
  memory.saw(seen, { number: stated.number, sha256: stated.sha256 })
  return { snapshot, stated, fileKey, headerBytes: header.length }
}

type Restoring = {
  /** Name of the instance. */
  readonly into: string
  readonly snapshots: Pick<SnapshotService, 'restore'>
  readonly login: Omit<Login, 'args'>
  /** Arguments for ssh, of which options count. */
  readonly args: readonly string[]
}

/** Has a verified instance restore it. Faults internal, and those of the service. */
export async function restore(
  run: Run,
  { snapshot, stated, fileKey, headerBytes }: Prepared,
  { into, snapshots, login, args }: Restoring,
): Promise<void> {
  const { pipe } = await snapshots.restore(into, { instance: snapshot.instance, number: snapshot.number })
  const { identity, header } = oneTimeHeader(fileKey, systemRandom)
  const lines = [pipe, identity, toBase64(header), String(headerBytes), stated.rootHash ?? 'none']
  const input = lines.map(line => `${line}\n`).join('')
  await run.hint(`restoring snapshot ${stated.number} of ${stated.hostname}`)
  const remote = { ...login, args: [...optionsOf(args), '-T', 'strongroom-restore'], input }
  const code = await runSsh(run, remote)
  if (code === 0) return
  throw new Fault('internal', `the snapshot was not restored whole: ssh ended with exit code ${code}`)
}
