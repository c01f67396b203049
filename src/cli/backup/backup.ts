// strongroom backup, backup-key, restore: one sealed file of all that a new machine needs, and its way back. Effects:
// those of src/backup.

import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { keepBackups, type MadeBackup, makeBackup } from '../../backup/backup.ts'
import { noteFailed, noteMade } from '../../backup/last.ts'
import type { Manifest } from '../../backup/manifest.ts'
import { checkBackup, restoreBackup } from '../../backup/restore.ts'
import { newIdentity } from '../../backup/seal.ts'
import { Fault } from '../../base/fault.ts'
import { removeTree, writeFileAtomic } from '../../linux/files.ts'
import type { Command, Run } from '../cli.ts'
import { InputFault } from '../exit.ts'
import { refuseExisting } from '../output-file.ts'
import { bytesText, fields, table } from '../render.ts'
import { type KeyOptions, keyOf, type SealOptions, sealOf } from './seal-options.ts'

export function addBackup(program: Command): void {
  program
    .command('backup')
    .description(
      'write one sealed file of all that a new machine needs, beside a running daemon: records, keys, authorities, configuration; no images, models, results of builds or VMs',
    )
    .argument('<target>', 'the file; with --keep the directory')
    .option('--recipient <age1…>', 'seal for this age recipient; may be repeated', collected, [])
    .option('--recipients-file <file>', 'seal for the age recipients in the file, one a line')
    .option('--passphrase-file <file>', 'seal with the first line of the file instead')
    .option(
      '--keep <count>',
      'name the file by the time, and remove the oldest of the directory until so many are left',
    )
    .examples(
      'strongroom backup --recipient age1… /mnt/backup/strongroom.age',
      'strongroom backup --keep 14 --recipients-file /etc/strongroom/backup-recipients.txt /var/backups/strongroom',
    )
    .runs((run, target: string, options: SealOptions & { keep?: string }) => backUp(run, resolve(target), options))
}

export function addBackupKey(program: Command): void {
  program
    .command('backup-key')
    .description('make an age identity for backups: the file opens them, the printed recipient seals them')
    .argument('<file>', 'where the identity goes; keep it on another machine')
    .examples('strongroom backup-key backup-identity.txt')
    .runs(async (run, file: string) => {
      const { identity, recipient } = await newIdentity()
      refuseExisting(file)
      writeFileAtomic(resolve(file), `# public key: ${recipient}\n${identity}\n`, { mode: 0o600 })
      await run.result({ recipient, identity_file: file }, `${recipient}\n`)
      await run.hint(`${file} opens what is sealed for this recipient: keep it away from this host`)
    })
}

export function addRestore(program: Command): void {
  program
    .command('restore')
    .description(
      'put a backup in place on a machine without records; the service must be stopped. Whole or not at all: killed, run it again',
    )
    .argument('<file>', 'the backup')
    .option('--identity-file <file>', 'open with the age identities in the file')
    .option('--passphrase-file <file>', 'open with the first line of the file')
    .option(
      '--keys <decision>',
      'keep: keys that were revoked after the backup work again; revoke: no key of the backup works',
    )
    .option('--revoke <prefix>', 'with --keys keep: but not this key; may be repeated', collected, [])
    .option('--no-configuration', 'write nothing outside of the state directory')
    .option(
      '--set-aside',
      'move what is in the way aside, once the backup is known to be good: the state of a new installation, another configuration; images and models stay',
    )
    .option('--dry-run', 'read and check all of it, list what is in it, change nothing')
    .examples(
      'strongroom restore strongroom.age --identity-file backup-identity.txt --dry-run',
      'strongroom restore strongroom.age --identity-file backup-identity.txt --keys keep --revoke sk_1a2b3c4d',
      'strongroom restore strongroom.age --identity-file backup-identity.txt --keys keep --set-aside',
    )
    .runs(async (run, file: string, options: RestoreOptions) => {
      if (options.dryRun === true) await dryRun(run, resolve(file), options)
      else await putBack(run, resolve(file), options)
    })
}

type RestoreOptions = KeyOptions & {
  keys?: string
  revoke: string[]
  configuration: boolean
  setAside?: boolean
  dryRun?: boolean
}

const keepCountMax = 1_000

async function backUp(run: Run, target: string, { keep, ...options }: SealOptions & { keep?: string }): Promise<void> {
  const count = keep === undefined ? null : keepCount(keep)
  const nowMs = Date.now()
  const { removed, ...made } = await noted(run, nowMs, async () => {
    const wanted = { seal: sealOf(options), stateDir: run.stateDir, loaded: await run.config(), nowMs }
    return count === null
      ? { ...(await makeBackup(target, wanted)), removed: [] }
      : await keepBackups(target, count, wanted)
  })
  await tellMade(run, made, removed)
}

/** The daemon and its operators learn of it by the record. */
async function noted<T extends MadeBackup>(run: Run, nowMs: number, make: () => Promise<T>): Promise<T> {
  try {
    const made = await make()
    const { file, bytes, manifest } = made
    if (!noteMade(run.stateDir, { at: manifest.made_at, file, bytes })) {
      await run.hint('the backup is whole, but `strongroom status` does not learn of it: its record cannot be written')
    }
    return made
  } catch (error) {
    // Another one that is being made says itself what becomes of it.
    if (!(error instanceof Fault && error.code === 'conflict')) noteFailed(run.stateDir, { error, nowMs })
    throw error
  }
}

function keepCount(text: string): number {
  const count = /^[1-9]\d{0,3}$/.test(text) ? Number(text) : 0
  if (count >= 1 && count <= keepCountMax) return count
  throw new InputFault(`--keep ${text}: not a number from 1 to ${keepCountMax}`, {
    param: 'keep',
    remedy: 'say how many backups the directory shall keep',
  })
}

async function tellMade(run: Run, { file, bytes, manifest }: MadeBackup, removed: readonly string[]): Promise<void> {
  const { made_at, schema, entries } = manifest
  const text = fields(run.paint, [
    ['backup', file],
    ['size', bytesText(bytes)],
    ['made at', made_at],
    ['schema', String(schema)],
    ['files', String(entries.length)],
    ...(removed.length === 0 ? [] : [['removed', removed.join(', ')] satisfies [string, string]]),
  ])
  await run.result({ file, bytes, removed, manifest }, text)
}

async function dryRun(run: Run, file: string, options: RestoreOptions): Promise<void> {
  const key = keyOf(options)
  const scratchDir = mkdtempSync(join(tmpdir(), 'strongroom-restore-'))
  try {
    const manifest = await checkBackup(file, key, scratchDir)
    const rows = manifest.entries.map(({ kind, path, bytes }) => [kind, path, String(bytes)])
    const head = headOf(run, manifest)
    await run.result({ ok: true, manifest }, `${head}\n${table(run.paint, ['KIND', 'PATH', 'BYTES'], rows)}`)
    await run.hint('the backup is whole; nothing was changed')
  } finally {
    removeTree(scratchDir)
  }
}

async function putBack(run: Run, file: string, options: RestoreOptions): Promise<void> {
  const { manifest, written, setAside, ...restored } = await restoreBackup(file, {
    stateDir: run.stateDir,
    key: keyOf(options),
    keys: decisionOf(options),
    withConfiguration: options.configuration,
    setAside: options.setAside === true,
    nowMs: Date.now(),
  })
  const { keysLive, keysRevoked, vmsLost } = restored
  const text = fields(run.paint, [
    ['written', written.join(', ')],
    ...(setAside.length === 0 ? [] : [['set aside', setAside.join(', ')] satisfies [string, string]]),
    ['keys', `${keysLive} work, ${keysRevoked} were revoked by this restore`],
    ['VMs', `${vmsLost} ran on the old machine: they end as failed, host_restored, at the first start`],
    ['lost', `what happened after ${manifest.made_at}: strongroom help backup says what that means`],
  ])
  const document = {
    manifest,
    written,
    set_aside: setAside,
    keys_live: keysLive,
    keys_revoked: keysRevoked,
    vms_lost: vmsLost,
  }
  await run.result(document, `${headOf(run, manifest)}${text}`)
  await run.hint(
    `next: make sure that the old machine never serves again, then: systemctl start strongroom (images lie in ${dirname(run.stateDir) === '/' ? run.stateDir : `${run.stateDir}/images`}; doctor says what is missing)`,
  )
}

function headOf(run: Run, { made_at, version, schema, host_id }: Manifest): string {
  return fields(run.paint, [
    ['made at', made_at],
    ['by version', version],
    ['schema', String(schema)],
    ['host', host_id],
  ])
}

/** There is no default: either answer would be wrong for somebody in silence. */
function decisionOf({ keys, revoke }: RestoreOptions) {
  const remedy =
    '--keys keep, with --revoke PREFIX for each key that you know was revoked since; or --keys revoke, and make new keys'
  if (keys === 'keep') return { kind: 'keep', revoke } as const
  if (keys === 'revoke' && revoke.length === 0) return { kind: 'revoke' } as const
  const message =
    keys === undefined
      ? 'keys that were revoked after the backup would work again: decide with --keys'
      : `--keys ${keys}${revoke.length > 0 ? ' with --revoke' : ''}: choose one of keep, revoke`
  throw new InputFault(message, { param: 'keys', remedy })
}

function collected(value: string, before: string[]): string[] {
  return [...before, value]
}
