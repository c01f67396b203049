// strongroom snapshot: takes, lists, downloads and removes encrypted copies of an instance's files. Effects: the
// network, files, processes.

import { renameSync, rmSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { parsed } from '../attest/malformed.ts'
import { onAbort, systemClock } from '../base/clock.ts'
import { newUuid } from '../base/ids.ts'
import type { Snapshot, SnapshotAttempt, SnapshotList } from '../contract/http/snapshot.ts'
import { type Command, helpText, type Run } from '../terminal/command.ts'
import { AdvisedFault, InputFault } from '../terminal/exit.ts'
import { KIB, readTextInput } from '../terminal/input-file.ts'
import { countOption } from '../terminal/options.ts'
import { refuseExisting } from '../terminal/output-file.ts'
import { createProgress } from '../terminal/progress.ts'
import { oneLine, paintFor, table, timeText, wantsColour } from '../terminal/render.ts'
import { stopSignal } from '../terminal/stop-signal.ts'
import { readSshKey } from '../verifier/ssh-key.ts'
import { clientConfigHelp, clientDirectory, loadClientDefaults } from './client-config.ts'
import { localNames } from './instances/names.ts'
import { createService } from './instances/service.ts'
import { createSnapshotService, type SnapshotService } from './instances/snapshot-service.ts'
import { findSnapshot, knownInstance, type SnapshotWord, snapshotWord } from './instances/snapshot-word.ts'
import { targetArgument, targetWord, type UserAt } from './instances/target.ts'
import { type InstanceRequest, verifiedInstance } from './instances/verified.ts'
import { everyTime, orderTimes } from './orders/idle.ts'
import { carriedOut, sendOrder } from './orders/send.ts'
import { judgeSnapshot } from './snapshots/judge.ts'
import { SnapshotMemory } from './snapshots/memory.ts'
import { signedPath, writeSigned } from './snapshots/signed-file.ts'
import { addInstanceOptions, type InstanceOptions } from './verify/instance.ts'
import { addServiceOptions, readService, type ServiceOptions } from './verify/service-options.ts'

type TakeOptions = InstanceOptions & { waitMinutes: number; recipient?: string[]; every?: ReturnType<typeof everyTime> }

const waitMinutesDefault = 120
const pollMs = 2_000

const about = `
A snapshot has your home directory and what private-root installed; programs that run are not in it. The instance encrypts it
to the SSH keys that may log in, ssh-ed25519 or ssh-rsa, and hands the host nothing but the ciphertext. Its host key signs it, and
this machine remembers number and digest of the newest, so that neither another snapshot nor an older one is taken for it.
\`strongroom up NEW --from NAME\` restores it into a new instance. --every has the instance want one each time that this time is
over and files have changed; an order that your key signs sets it, and \`snapshot ls\` has the last one that was skipped. The service keeps a few of each instance, as long as its record.
`

export function addSnapshot(program: Command): void {
  const command = program
    .command('snapshot')
    .description(
      'take an encrypted copy of the files of an instance; with ls, get and rm: list, download and remove such copies',
    )
    // Options behind ls, get and rm are theirs.
    .enablePositionalOptions()
    .argument('<target>', '[USER@]NAME, of `strongroom ls`, or a whole host name', targetArgument)
    .argument('[ssh-arguments...]', 'after --: options of ssh, for --recipient and --every')
    .option(
      '--recipient <recipient>',
      'encrypt this snapshot and later ones also to this one: age1…, or the file of an SSH public key; repeat it for more; none: to the keys that log in alone',
      appended,
    )
    .option(
      '--every <time>',
      'have snapshots taken by themselves instead, like 90m, 6h or 7d, at least 15m, at most 30d; `off` for none. The first follows within minutes',
      everyTime,
    )
    .option('--wait-minutes <count>', 'longest wait until it is kept', countOption(1, 150), waitMinutesDefault)
  addInstanceOptions(command)
    .addHelpText(
      'after',
      `${about}${clientConfigHelp}${helpText('strongroom snapshot work', 'strongroom snapshot work --every 6h', 'strongroom up again --from work')}`,
    )
    .runs(take)
  const ls = command
    .command('ls')
    .description('list snapshots, also those of instances that have ended')
    .argument(
      '[name]',
      'a name of `strongroom ls`, or a whole host name; default: all on the host that answers',
      targetWord,
    )
  addServiceOptions(ls).examples('strongroom snapshot ls', 'strongroom snapshot ls work --json').runs(list)
  const get = command
    .command('get')
    .description('download the ciphertext of a snapshot, and check it against what the instance signed')
    .argument('<snapshot>', 'NAME, or NAME:NUMBER of `strongroom snapshot ls`', snapshotWord)
    .argument('<file>', 'a file that does not exist yet')
  addServiceOptions(get)
    .addHelpText(
      'after',
      `
What the instance signed goes into FILE.json. With both, \`strongroom up NEW --from ./FILE\` restores it without the host.
The file opens with age, with the SSH key or identity that it is for, and holds a tar archive:
  age --decrypt --identity ~/.ssh/id_ed25519 FILE | zstd --decompress | tar --list
${helpText('strongroom snapshot get work work.age')}`,
    )
    .runs(download)
  const rm = command
    .command('rm')
    .description('remove a snapshot')
    .argument('<snapshot>', 'NAME:NUMBER of `strongroom snapshot ls`', snapshotWord)
    .option('--yes', 'do not ask')
  addServiceOptions(rm).examples('strongroom snapshot rm work:3').runs(remove)
}

async function contextOf(run: Run, options: ServiceOptions) {
  const { env } = run.io
  const source = readService(env, options, await loadClientDefaults(env))
  const names = localNames(env)
  const memory = new SnapshotMemory(clientDirectory(env) ?? '')
  return { names, memory, service: createService(source), snapshots: createSnapshotService(source) }
}

async function take(run: Run, target: UserAt, args: readonly string[], given: TakeOptions): Promise<void> {
  const { waitMinutes, recipient, every, ...options } = given
  const { word } = target
  const request = { target, args, options }
  if (args.length > 0 && recipient === undefined && every === undefined) {
    throw new InputFault('ssh takes no part in a snapshot', {
      param: 'ssh-arguments',
      remedy: 'leave them out, or add --recipient or --every',
    })
  }
  if (recipient !== undefined && !(await ordered(run, request, recipient))) return
  if (every !== undefined) {
    await orderTimes(run, request, 'snapshot_every', { minutes: every === 'off' ? null : every })
    return
  }
  const context = await contextOf(run, options)
  const { memory, snapshots } = context
  const seen = await knownInstance(word, context)
  const instance = seen.hostname.split('.')[0] ?? ''
  const before = newestIn(await snapshots.list(instance))
  const begun = await snapshots.take(instance)
  const paint = paintFor(wantsColour({ isTerminal: run.io.stderrIsTerminal, env: run.io.env }))
  const progress = createProgress({ io: run.io, paint, isQuiet: run.json, monotonicMs: systemClock.monotonicMs })
  let number: number | null = null
  try {
    const onBytes = (bytes: number) => progress.phase('snapshot', `${seen.hostname}, ${sizeText(bytes)}`)
    number = await kept(begun, { snapshots, before, waitMinutes, onBytes })
  } finally {
    await progress.stop(number === null)
  }
  const snapshot = await findSnapshot(seen, number, snapshots)
  const { sha256 } = judgeSnapshot(snapshot, seen, { isOlderAccepted: false })
  memory.saw(seen, { number: snapshot.number, sha256 })
  const text = `${seen.hostname}: snapshot ${snapshot.number}, ${sizeText(snapshot.bytes)}, encrypted to your SSH key
Restore:  strongroom up NEW --from ${word}:${snapshot.number}
`
  await run.result(shown(snapshot), text)
}

/** Has the instance encrypt to these recipients from now on. False if it did not pass; then nothing is taken. */
async function ordered(run: Run, request: InstanceRequest, given: readonly string[]): Promise<boolean> {
  const recipients = given.length === 1 && given[0] === 'none' ? [] : given.map(recipientOf)
  const instance = await verifiedInstance(run, request)
  if (instance === null) return false
  carriedOut(await sendOrder(run, instance, 'snapshot_recipients', { recipients }))
  return true
}

function recipientOf(text: string): string {
  if (text.startsWith('age1')) return text
  const line = readTextInput({ path: text, param: 'recipient', bytesMax: 16 * KIB }).trim()
  const key = parsed(() => readSshKey(line))
  if (key.ok && (key.value.type === 'ssh-ed25519' || key.value.type === 'ssh-rsa'))
    return line.split(/\s+/, 2).join(' ')
  throw new InputFault(`${text}: ${key.ok ? `age encrypts to no key of the type ${key.value.type}` : key.reason}`, {
    param: 'recipient',
    remedy: 'name a recipient age1…, or the .pub file of a key ssh-ed25519 or ssh-rsa',
  })
}

function appended(text: string, before: string[] = []): string[] {
  return [...before, text]
}

/** Returns the newest number; 0 without a snapshot. */
function newestIn(list: SnapshotList | null): number {
  return Math.max(0, ...(list?.snapshots.map(({ number }) => number) ?? []))
}

type Keeping = {
  readonly snapshots: SnapshotService
  /** The newest number before the attempt. */
  readonly before: number
  readonly waitMinutes: number
  readonly onBytes: (bytes: number) => Promise<void>
}

/** Waits until it is kept, and returns its number. Faults conflict, internal. */
async function kept(begun: SnapshotAttempt, { snapshots, before, waitMinutes, onBytes }: Keeping): Promise<number> {
  const endMs = systemClock.monotonicMs() + waitMinutes * 60_000
  for (;;) {
    const list = await snapshots.list(begun.instance)
    const attempt = list?.attempts.find(({ id }) => id === begun.id)
    if (attempt === undefined) {
      // The service lists the last attempt alone: another one may have followed while this machine slept.
      const newest = newestIn(list)
      if (newest > before) return newest
      throw new AdvisedFault(
        'conflict',
        `${snapshots.host} does not list this attempt any more, nor a snapshot of it`,
        {
          remedy: 'the service restarted, or another attempt followed: see `strongroom snapshot ls`, and take it again',
        },
      )
    }
    if (attempt.state === 'kept' && attempt.number !== null) return attempt.number
    if (attempt.state === 'failed') {
      throw new AdvisedFault(
        'conflict',
        `${snapshots.host}: no snapshot: ${oneLine(attempt.message ?? 'no reason given')}`,
        {
          remedy: 'correct what the message names, and take it again; earlier snapshots are as they were',
        },
      )
    }
    if (systemClock.monotonicMs() >= endMs) {
      throw new AdvisedFault('conflict', `the snapshot is not finished after ${waitMinutes} minutes`, {
        remedy: 'it goes on; `strongroom snapshot ls` shows it once it is kept',
      })
    }
    await onBytes(attempt.bytes)
    await systemClock.sleep(pollMs)
  }
}

async function list(run: Run, word: string | undefined, options: ServiceOptions): Promise<void> {
  const context = await contextOf(run, options)
  const seen = word === undefined ? null : await knownInstance(word, context)
  const found = await context.snapshots.list(seen === null ? null : (seen.hostname.split('.')[0] ?? ''))
  const snapshots = found?.snapshots ?? []
  const attempts = (found?.attempts ?? []).filter(({ state }) => state !== 'kept')
  await run.result({ snapshots: snapshots.map(shown), attempts }, () => {
    const last = attempts.map(attemptText).join('')
    if (snapshots.length === 0) return `no snapshots; \`strongroom snapshot NAME\` takes one\n${last}`
    const rows = snapshots.map(snapshot => [
      `${snapshot.instance}:${snapshot.number}`,
      sizeText(snapshot.bytes),
      timeText(snapshot.created_at),
    ])
    return `${table(run.paint, ['SNAPSHOT', 'SIZE', 'CREATED'], rows)}${last}`
  })
}

function attemptText({ instance, state, bytes, message, started_at }: SnapshotAttempt): string {
  const outcome = state === 'writing' ? `under way, ${sizeText(bytes)}` : `${state}: ${oneLine(message ?? 'no reason')}`
  return `${instance}, attempt of ${timeText(started_at)}: ${outcome}\n`
}

async function download(
  run: Run,
  { word, number }: SnapshotWord,
  file: string,
  options: ServiceOptions,
): Promise<void> {
  for (const path of [file, signedPath(file)]) refuseExisting(path)
  const context = await contextOf(run, options)
  const { memory, snapshots } = context
  const seen = await knownInstance(word, context)
  const snapshot = await findSnapshot(seen, number, snapshots)
  const stated = judgeSnapshot(snapshot, seen, { isOlderAccepted: number !== null })
  // A command that was killed leaves its own file, and hinders no other.
  const partial = `${file}.${newUuid()}.partial`
  const digest = new Bun.CryptoHasher('sha256')
  const out = await open(partial, 'wx', 0o600)
  using stopping = stopSignal(run.io)
  const { promise: stopped, reject } = Promise.withResolvers<never>()
  const stop = new AdvisedFault('conflict', `stopped; ${file} was not written`, { remedy: 'run the command again' })
  using _ = { [Symbol.dispose]: onAbort(stopping.signal, () => reject(stop)) }
  try {
    const receiving = snapshots.download(snapshot, async chunk => {
      stopping.signal.throwIfAborted()
      digest.update(chunk)
      await out.writeFile(chunk)
    })
    await Promise.race([receiving, stopped])
    if (digest.digest('hex') !== stated.sha256) {
      throw new AdvisedFault(
        'internal',
        `${snapshots.host}: its ciphertext is not the one that ${seen.hostname} signed`,
        {
          remedy: 'repeat the command; if it fails again, ask the operator of the service',
        },
      )
    }
    await out.sync()
    writeSigned(file, snapshot)
    try {
      renameSync(partial, file)
    } catch (error) {
      rmSync(signedPath(file), { force: true })
      throw error
    }
  } finally {
    await out.close()
    rmSync(partial, { force: true })
  }
  memory.saw(seen, { number: stated.number, sha256: stated.sha256 })
  await run.result(
    { ...shown(snapshot), file },
    `${file}: snapshot ${snapshot.number} of ${seen.hostname}; keep ${signedPath(file)} with it, its signature\n`,
  )
}

type RmOptions = ServiceOptions & { yes?: boolean }

async function remove(run: Run, { word, number }: SnapshotWord, { yes = false, ...options }: RmOptions): Promise<void> {
  if (number === null) {
    throw new InputFault('the snapshot to remove has no number', { param: 'snapshot', remedy: 'write NAME:NUMBER' })
  }
  const context = await contextOf(run, options)
  const { snapshots } = context
  const { hostname } = await knownInstance(word, context)
  const answer = yes ? 'y' : await run.io.ask?.(`Remove snapshot ${number} of ${hostname}? [y/N] `)
  if (!/^\s*y(?:es)?\s*$/i.test(answer ?? ''))
    throw new InputFault('nothing was removed', { param: 'yes', remedy: 'answer y, or add --yes' })
  const removed = await snapshots.remove({ instance: hostname.split('.')[0] ?? '', number })
  if (removed === null) {
    throw new AdvisedFault('not_found', `${snapshots.host} has no snapshot ${number} of ${hostname}`, {
      remedy: '`strongroom snapshot ls` lists those that it has',
    })
  }
  await run.result(shown(removed), `snapshot ${number} of ${hostname} is removed\n`)
}

/** Returns the known fields. Leaves out those of later versions, whose form is unknown. */
function shown({ instance, number, bytes, created_at, header, signature }: Snapshot) {
  return { instance, number, bytes, created_at, header, signature }
}

function sizeText(bytes: number): string {
  return bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`
}
