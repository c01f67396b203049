// Restores a snapshot into a new instance, for `strongroom up --from`. Effects: the network, files, processes.
//
// All that can be checked is checked before the instance is created. The VM fetches the ciphertext from its host, or
// reads it from the verified SSH connection, over which the key of that file goes, wrapped for this one use.

import { sha256 } from '../../attest/hash.ts'
import { toBase64, toHex } from '../../base/bytes.ts'
import { iso, systemClock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { systemRandom } from '../../base/ids.ts'
import type { SnapshotHeader } from '../../contract/snapshot.ts'
import type { Command, Run } from '../../terminal/command.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import { oneLine } from '../../terminal/render.ts'
import { ageHeaderIn, oneTimeHeader } from '../snapshots/age-header.ts'
import { judgeSnapshot } from '../snapshots/judge.ts'
import type { SnapshotMemory } from '../snapshots/memory.ts'
import { type KeyFiles, openHeader } from '../snapshots/open-header.ts'
import { digestOf, headOf, readSigned, streamOf } from '../snapshots/signed-file.ts'
import type { InstanceExpectation } from '../verify/instance.ts'
import { identitiesOf } from '../verify/keys/own-keys.ts'
import type { LocalInstance } from './names.ts'
import { identityOf, type Login, optionsOf, runSsh } from './openssh.ts'
import type { SnapshotName, SnapshotService } from './snapshot-service.ts'
import { findSnapshot, knownInstance, type SnapshotWord, snapshotWord, type WordLookup } from './snapshot-word.ts'

/** `file`: a ciphertext on this machine. */
type RestoreSource = SnapshotWord | { readonly file: string }
export type RestoreOptions = { from?: RestoreSource; identity?: string; acceptOlder?: boolean }

export function addRestoreOptions(command: Command): Command {
  return command
    .option(
      '--from <snapshot>',
      'restore it into the new instance: NAME or NAME:NUMBER of `strongroom snapshot ls`, or a file of `snapshot get`, named with a slash or by FILE.age',
      text => (/\/|\.age$/.test(text) ? { file: text } : snapshotWord(text)),
    )
    .option('--identity <file>', 'private key that opens the snapshot, of SSH or of age; default: yours below ~/.ssh')
    .option('--accept-older', 'restore a snapshot although this machine has seen a newer one')
}

/** A snapshot that was verified and opened. */
export type Prepared = {
  readonly snapshot: SnapshotName
  /** The ciphertext on this machine; null if the service has it. */
  readonly file: string | null
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
  const again = `before you work in it, repeat \`strongroom up ${name} --from ${restoring}\`, or with its file`
  await run.hint(`the restore of ${restoring} into ${name} is not complete: ${again}`)
}

/** Finds, verifies and opens a snapshot. Faults invalid_request, not_found, conflict, internal. */
export async function prepareRestore(
  run: Run,
  from: RestoreSource,
  { keys, acceptOlder, ...deps }: RestoreDeps & { readonly keys: KeyFiles; readonly acceptOlder: boolean },
): Promise<Prepared> {
  const { memory } = deps
  const { seen, signed, snapshot, file, source } = await ('file' in from ? inFile(from.file, deps) : kept(from, deps))
  const stated = judgeSnapshot(signed, seen, { isOlderAccepted: acceptOlder })
  const head = file === null ? await deps.snapshots.head(snapshot) : await headOf(file)
  const header = head === null ? null : ageHeaderIn(head)
  // The whole of a file that the service has is checked by its key, in the VM alone.
  const isSame = file === null || (await digestOf(file)) === stated.sha256
  if (header === null || !isSame || toHex(sha256(header)) !== stated.ageHeader) {
    throw new AdvisedFault('internal', `${source}: its ciphertext is not the one that ${seen.hostname} signed`, {
      remedy: file === null ? 'do not restore it, and ask the operator of the service' : 'get or copy the file again',
    })
  }
  const fileKey = await openHeader(run, header, keys)
  memory.saw(seen, { number: stated.number, sha256: stated.sha256 })
  return { snapshot, file, stated, fileKey, headerBytes: header.length }
}

async function kept(from: SnapshotWord, deps: RestoreDeps) {
  const { snapshots } = deps
  const seen = await knownInstance(from.word, deps)
  const snapshot = await findSnapshot(seen, from.number, snapshots)
  return { seen, signed: snapshot, snapshot, file: null, source: snapshots.host }
}

async function inFile(file: string, deps: RestoreDeps) {
  const { hostname, number, ...signed } = readSigned(file)
  const seen = await knownInstance(hostname, deps)
  return { seen, signed, snapshot: { instance: hostname.split('.')[0] ?? '', number }, file, source: file }
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
  { snapshot, file, stated, fileKey, headerBytes }: Prepared,
  { into, snapshots, login, args }: Restoring,
): Promise<void> {
  const { instance, number } = snapshot
  const pipe = file === null ? (await snapshots.restore(into, { instance, number })).pipe : 'stdin'
  const { identity, header } = oneTimeHeader(fileKey, systemRandom)
  // A file is sent without its header.
  const skipBytes = file === null ? headerBytes : 0
  const lines = [pipe, identity, toBase64(header), String(skipBytes), stated.rootHash ?? 'none']
  const text = lines.map(line => `${line}\n`).join('')
  let isOther = false
  const onOther = () => {
    isOther = true
  }
  const { sha256 } = stated
  const input = file === null ? text : streamOf(text, file, { startBytes: headerBytes, sha256, onOther })
  await run.hint(`restoring snapshot ${stated.number} of ${stated.hostname}`)
  const remote = { ...login, args: [...optionsOf(args), '-T', 'strongroom-restore'], input }
  const code = await runSsh(run, remote)
  if (isOther) {
    throw new AdvisedFault('internal', `${file}: the file changed while it was sent, and was not restored whole`, {
      remedy: 'leave the file as it is, and repeat the command',
    })
  }
  if (code === 0) return
  throw new Fault('internal', `the snapshot was not restored whole: ssh ended with exit code ${code}`)
}
