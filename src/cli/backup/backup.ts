// strongroom backup, backup-key, restore: one sealed file of all that a new machine needs, and its way back. Effects:
// those of src/backup.

import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { keepBackups, type MadeBackup, makeBackup, pipeBackup } from '../../backup/backup.ts'
import { noteFailed, noteMade } from '../../backup/last.ts'
import type { Manifest } from '../../backup/manifest.ts'
import type { OutsideRules } from '../../backup/outside.ts'
import { checkBackup, restoreBackup } from '../../backup/restore.ts'
import { newIdentity } from '../../backup/seal.ts'
import type { ExpectedSigner } from '../../backup/signature.ts'
import { toHex } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import { operatorKeyDigest } from '../../client/trust/operator-key-digest.ts'
import { configFileDefault } from '../../config/load.ts'
import { noteHostCommand } from '../../host/host-commands.ts'
import { readJournalFor } from '../../inference/metering/journal/copy.ts'
import { removeTree } from '../../linux/files/removal.ts'
import { writeFileAtomic } from '../../linux/files.ts'
import { InputFault } from '../../terminal/exit.ts'
import { refuseExisting } from '../../terminal/output-file.ts'
import { bytesText, fields, table } from '../../terminal/render.ts'
import type { Command, Run } from '../operator-run.ts'
import { type KeyOptions, keyOf, type SealOptions, sealOf } from './seal-options.ts'

export function addBackup(program: Command): void {
  program
    .command('backup')
    .description(
      'write one sealed file with everything that a new machine needs, while the daemon runs: records, keys, authorities, configuration; without images, models, build results or VMs',
    )
    .argument('[target]', 'the file; with --keep the directory; none with --to-command')
    .option('--recipient <age1…>', 'seal for this age recipient; repeatable', collected, [])
    .option('--recipients-file <file>', 'seal for the age recipients in the file, one a line')
    .option('--passphrase-file <file>', 'seal with the first line of the file instead')
    .option('--keep <count>', 'name the file by the time, and keep only this many backups in the directory')
    .option(
      '--to-command <command>',
      'write to the standard input of this command of the shell instead, for any object store; STRONGROOM_BACKUP_NAME has a name by the time. The backup fails if the command stops reading, or exits with another code than 0',
    )
    .option('--unsigned', 'do not sign the backup with the operator key: `restore` needs --unsigned, too')
    .examples(
      'strongroom backup --recipient age1… /mnt/backup/strongroom.age',
      'strongroom backup --keep 14 --recipients-file /etc/strongroom/backup-recipients.txt /var/backups/strongroom',
      'strongroom backup --recipient age1… --to-command \'rclone rcat "store:strongroom/$STRONGROOM_BACKUP_NAME"\'',
    )
    .runs((run, target: string | undefined, options: BackupOptions) => backUp(run, target, options))
}

export function addBackupKey(program: Command): void {
  program
    .command('backup-key')
    .description('make an age identity for backups: the file opens them, the printed recipient seals them')
    .argument('<file>', 'file to write; keep it on another machine')
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
      'restore a backup on a machine without records, all or nothing; the service must be stopped. If interrupted, run it again. `strongroom help backup` has the steps',
    )
    .argument('<file>', 'the backup')
    .option('--identity-file <file>', 'open with the age identities in the file')
    .option('--passphrase-file <file>', 'open with the first line of the file')
    .option(
      '--operator-key <key>',
      'file of `strongroom operator-key`, or its digest, from your own record: the expected signer of the backup',
    )
    .option('--unsigned', 'do not check the signature: only for a backup that you are sure you made yourself')
    .option(
      '--keys <decision>',
      'keep: keys that were revoked after the backup work again; revoke: no key of the backup works',
    )
    .option(
      '--revoke <prefix>',
      'with --keys keep: revoke this key, by the 8 characters after ca_ or gw_; repeatable',
      collected,
      [],
    )
    .option('--no-configuration', 'write nothing outside of the state directory')
    .option(
      '--allow-path <file>',
      'also write this file outside of /etc/strongroom that the configuration in the backup names; repeatable',
      collected,
      [],
    )
    .option(
      '--set-aside',
      'after the backup is verified, move existing files aside: the state of a new installation, another configuration; images and models stay',
    )
    .option('--dry-run', 'read and check the whole backup, list its content, change nothing')
    .examples(
      'strongroom restore strongroom.age --identity-file backup-identity.txt --operator-key HEX --dry-run',
      'strongroom restore strongroom.age --identity-file backup-identity.txt --operator-key HEX --keys keep --revoke 1a2b3c4d',
      'strongroom restore strongroom.age --identity-file backup-identity.txt --operator-key operator-key.pub.pem --keys keep --set-aside',
    )
    .runs(async (run, file: string, options: RestoreOptions) => {
      if (options.dryRun === true) await dryRun(run, resolve(file), options)
      else await putBack(run, resolve(file), options)
    })
}

type BackupOptions = SealOptions & { keep?: string; toCommand?: string; unsigned?: boolean }

type RestoreOptions = KeyOptions & {
  operatorKey?: string
  unsigned?: boolean
  allowPath: string[]
  keys?: string
  revoke: string[]
  configuration: boolean
  setAside?: boolean
  dryRun?: boolean
}

const keepCountMax = 1_000
/** The same hour as TimeoutStartSec= of the nightly unit. */
const commandTimeoutMs = 3_600_000

async function backUp(
  run: Run,
  target: string | undefined,
  { keep, toCommand, unsigned, ...options }: BackupOptions,
): Promise<void> {
  const destination = targetOf({ target, keep, toCommand })
  const nowMs = Date.now()
  const { removed, ...made } = await noted(run, nowMs, async () => {
    const { stateDir } = run
    const isSigned = unsigned !== true
    // Wrong options are named before a configuration that cannot be read.
    const seal = sealOf(options)
    const loaded = await run.config()
    const wanted = { seal, stateDir, loaded, isSigned, nowMs, readJournal: readJournalFor }
    if (destination.kind === 'kept') return await keepBackups(destination.directory, destination.count, wanted)
    const made =
      destination.kind === 'file'
        ? await makeBackup(destination.file, wanted)
        : await pipeBackup({ command: destination.command, timeoutMs: commandTimeoutMs }, wanted)
    return { ...made, removed: [] }
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
    noteHostCommand(run.stateDir, { operation: 'backup', arguments: { file, bytes }, result: 'ok' }, nowMs)
    return made
  } catch (error) {
    // Another backup in progress reports its own result.
    if (!(error instanceof Fault && error.code === 'conflict')) {
      noteFailed(run.stateDir, { error, nowMs })
      const result = error instanceof Fault ? error.code : 'internal'
      noteHostCommand(run.stateDir, { operation: 'backup', arguments: {}, result }, nowMs)
    }
    throw error
  }
}

type BackupTarget =
  | { readonly kind: 'file'; readonly file: string }
  | { readonly kind: 'kept'; readonly directory: string; readonly count: number }
  | { readonly kind: 'command'; readonly command: string }

function targetOf({
  target,
  keep,
  toCommand,
}: Record<'target' | 'keep' | 'toCommand', string | undefined>): BackupTarget {
  if (toCommand !== undefined) {
    if (target === undefined && keep === undefined && toCommand.trim() !== '')
      return { kind: 'command', command: toCommand }
    throw new InputFault('--to-command takes a command, and neither a target nor --keep', {
      param: 'to-command',
      remedy: 'give the command alone; the store removes old backups by its own rules',
    })
  }
  if (target === undefined) {
    throw new InputFault('say where the backup goes', {
      param: 'target',
      remedy: 'give a file, a directory with --keep, or --to-command',
    })
  }
  const count = keep === undefined ? null : keepCount(keep)
  const path = resolve(target)
  return count === null ? { kind: 'file', file: path } : { kind: 'kept', directory: path, count }
}

function keepCount(text: string): number {
  const count = /^[1-9]\d{0,3}$/.test(text) ? Number(text) : 0
  if (count >= 1 && count <= keepCountMax) return count
  throw new InputFault(`--keep ${text}: not a number from 1 to ${keepCountMax}`, {
    param: 'keep',
    remedy: 'say how many backups the directory shall keep',
  })
}

async function tellMade(run: Run, made: MadeBackup, removed: readonly string[]): Promise<void> {
  const { file, bytes, manifest, signer } = made
  const { made_at, schema, entries } = manifest
  const text = fields(run.paint, [
    ['backup', file],
    ['size', bytesText(bytes)],
    ['made at', made_at],
    ['schema', String(schema)],
    ['files', String(entries.length)],
    ['signed by', signerHex(signer) ?? 'unsigned'],
    ...(removed.length === 0 ? [] : [['removed', removed.join(', ')] satisfies [string, string]]),
  ])
  await run.result({ file, bytes, removed, manifest, signed_by: signerHex(signer) }, text)
}

async function dryRun(run: Run, file: string, options: RestoreOptions): Promise<void> {
  const trusted = await trustedBy(run, options)
  const scratchDir = mkdtempSync(join(tmpdir(), 'strongroom-restore-'))
  try {
    const { manifest, signer, unlisted } = await checkBackup(file, trusted, scratchDir)
    const rows = manifest.entries.map(({ kind, path, bytes }) => [kind, path, String(bytes)])
    const head = headOf(run, manifest, signer)
    const document = { ok: true, manifest, signed_by: signerHex(signer), paths_to_allow: unlisted }
    await run.result(document, `${head}\n${table(run.paint, ['KIND', 'PATH', 'BYTES'], rows)}`)
    await run.hint('the backup is whole; nothing was changed')
    if (unlisted.length > 0) {
      const words = unlisted.map(path => `--allow-path ${path}`).join(' ')
      await run.hint(`a restore needs ${words}: the configuration in the backup names these files`)
    }
  } finally {
    removeTree(scratchDir)
  }
}

async function putBack(run: Run, file: string, options: RestoreOptions): Promise<void> {
  const { manifest, signer, written, setAside, ...restored } = await restoreBackup(file, {
    ...(await trustedBy(run, options)),
    keys: decisionOf(options),
    setAside: options.setAside === true,
    nowMs: Date.now(),
  })
  const { keysLive, keysRevoked, vmsLost } = restored
  const facts = { made_at: manifest.made_at, keys_live: keysLive, keys_revoked: keysRevoked, vms_lost: vmsLost }
  noteHostCommand(run.stateDir, { operation: 'restore', arguments: facts, result: 'ok' }, Date.now())
  const text = fields(run.paint, [
    ['written', written.join(', ')],
    ...(setAside.length === 0 ? [] : [['set aside', setAside.join(', ')] satisfies [string, string]]),
    ['keys', `${keysLive} work, ${keysRevoked} were revoked by this restore`],
    ['VMs', `${vmsLost} ran on the old machine: they end as failed, host_restored, at the first start`],
    ['lost', `what happened after ${manifest.made_at}: strongroom help backup has the details`],
  ])
  const document = {
    manifest,
    signed_by: signerHex(signer),
    written,
    set_aside: setAside,
    keys_live: keysLive,
    keys_revoked: keysRevoked,
    vms_lost: vmsLost,
  }
  await run.result(document, `${headOf(run, manifest, signer)}${text}`)
  await run.hint(
    `next: make sure that the old machine never serves again, then: systemctl start strongroom (images lie in ${dirname(run.stateDir) === '/' ? run.stateDir : `${run.stateDir}/images`}; strongroom doctor lists what is missing)`,
  )
}

/** The part of the options that a dry run needs, too. Faults: InputFault. */
async function trustedBy(run: Run, options: RestoreOptions) {
  const outside: OutsideRules = {
    configurationFile: await run.configFile(),
    directories: [dirname(configFileDefault)],
    paths: options.allowPath.map(path => resolve(path)),
  }
  return {
    stateDir: run.stateDir,
    key: keyOf(options),
    operatorKey: await expectedSigner(options),
    outside: options.configuration ? outside : null,
  }
}

/** A backup cannot vouch for itself, so there is no default. */
async function expectedSigner({ operatorKey, unsigned }: RestoreOptions): Promise<ExpectedSigner> {
  if (operatorKey !== undefined && unsigned === undefined) return await operatorKeyDigest(operatorKey)
  if (operatorKey === undefined && unsigned === true) return 'any'
  const message =
    operatorKey === undefined
      ? 'anyone who has the age recipient can make a backup: --operator-key names the key that must have signed it'
      : '--operator-key and --unsigned exclude each other'
  throw new InputFault(message, {
    param: 'operator-key',
    remedy:
      'give --operator-key with the digest that you noted, or that your clients pin; --unsigned for a backup of a former release that you made yourself',
  })
}

function signerHex(signer: Uint8Array | null): string | null {
  return signer === null ? null : toHex(signer)
}

function headOf(run: Run, { made_at, version, schema, host_id }: Manifest, signer: Uint8Array | null): string {
  return fields(run.paint, [
    ['made at', made_at],
    ['by version', version],
    ['schema', String(schema)],
    ['host', host_id],
    ['signed by', signerHex(signer) ?? 'not checked (--unsigned)'],
  ])
}

/** There is no default: either answer would silently be wrong for some users. */
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
