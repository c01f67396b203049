// strongroom up: an instance by a name of this machine: created if need be, awaited, verified, logged in to. Effects:
// the network, files, a process.

import { parsed } from '../../attest/malformed.ts'
import { isBroken } from '../../attest/verdict.ts'
import { systemClock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { shellWord } from '../../base/shell-word.ts'
import type { EgressRule } from '../../contract/http/egress-policy.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { EXIT, InputFault } from '../../terminal/exit.ts'
import { countOption } from '../../terminal/options.ts'
import { createProgress, type Progress } from '../../terminal/progress.ts'
import { paintFor, wantsColour } from '../../terminal/render.ts'
import { exitCodeOfVerdict } from '../../terminal/verdict-exit.ts'
import { readInstanceHostname } from '../../verifier/instance.ts'
import { pinChecks } from '../../verifier/pins.ts'
import { type KnownHost, readSshKey } from '../../verifier/ssh-key.ts'
import { clientConfigHelp, clientDirectory, loadClientDefaults } from '../client-config.ts'
import { forgetKnownHost, writeKnownHost } from '../known-hosts.ts'
import { SnapshotMemory } from '../snapshots/memory.ts'
import { policyOf, reachOption } from '../trust/reach-options.ts'
import {
  addInstanceOptions,
  hostKeyOf,
  type InstanceExpectation,
  type InstanceOptions,
  instanceDocument,
  instanceSummary,
  type JudgedInstance,
  judgeExpected,
  readExpectation,
} from '../verify/instance.ts'
import { identitiesOf } from '../verify/keys/own-keys.ts'
import { readService } from '../verify/service-options.ts'
import { failureWords } from './failure-remedies.ts'
import { openInstance } from './local-instance.ts'
import { type LocalInstance, type LocalNames, localNamePattern, localNames } from './names.ts'
import { refuseUnacceptable, requestedEgress } from './new-instance.plan.ts'
import { addressFor, defaultUser, identityOf, refuseSharing, runSsh } from './openssh.ts'
import type { SeenInstance } from './records.ts'
import {
  addRestoreOptions,
  confirmLate,
  hintOfPending,
  keyFilesOf,
  prepareRestore,
  type RestoreOptions,
  refuseOther,
  restore,
  restoringText,
} from './restore.ts'
import { createService, type Service } from './service.ts'
import { createSnapshotService } from './snapshot-service.ts'
import { type UserAt, withUser } from './target.ts'
import { earlierWords, readEarlierExpectation, withVerifiedImages } from './verified-images.ts'
import { waitForInstance } from './wait.ts'

type UpOptions = InstanceOptions &
  RestoreOptions & { login: boolean; model?: string; reach?: readonly EgressRule[]; waitMinutes: number }

const defaultName = 'default'
const waitMinutesDefault = 15

export function addUp(program: Command): void {
  const command = program
    .command('up')
    .description('create an instance, or find it by its name; wait, verify, write its host key, log in')
    .argument('[name]', `[USER@]NAME, your name for it on this machine; without one it is called ${defaultName}`)
    .argument('[ssh-arguments...]', 'after --: options of ssh and the command to run')
    .option('--no-login', 'print the commands that log in and copy, instead of logging in')
    .option('--model <id>', 'model of the gateway for a new instance; default: the operator chooses')
    .option(
      '--reach <host[:port]>',
      'let the programs of a new instance reach this destination and no others but the gateway; repeatable. It must state exactly these; default: those of --policy or --egress-policy',
      reachOption,
    )
    .option('--wait-minutes <count>', 'longest wait until it is ready', countOption(1, 120), waitMinutesDefault)
  addRestoreOptions(command)
  addInstanceOptions(command, 'api of client.toml')
    .addHelpText(
      'after',
      `${clientConfigHelp}
A second \`up\` with the name finds the same instance, also one that was interrupted. An instance that has failed or ended
is replaced by a new one. The name of \`strongroom ls\` works too.
--from restores a snapshot into a new instance; see \`strongroom help instances\`.
Without a terminal it logs in only if there is a command to run. It never logs in unless the verdict is PASS.
Exit code: that of ssh; on FAIL, where ssh is not run, that of \`verify instance\`; 1 if the instance failed, 5 if it is
not ready in time. Needs OpenSSH 8.5.
${helpText('strongroom up', 'strongroom up work --no-login', 'strongroom up work -- uname --all')}`,
    )
    .runs(async (run, first: string | undefined, more: readonly string[], options: UpOptions) => {
      // Words after `--` are for ssh, also if no name stands before it.
      const dashes = run.argv.indexOf('--')
      const isNamed = first !== undefined && (dashes === -1 || run.argv.length - dashes - 1 <= more.length)
      const args = first === undefined || isNamed ? more : [first, ...more]
      await up(run, nameOf(isNamed ? first : defaultName), args, options)
    })
}

function nameOf(text: string): UserAt {
  return withUser(text, name => {
    if (localNamePattern.test(name)) return name
    throw new InputFault(`${JSON.stringify(name)} is no name for an instance`, {
      param: 'name',
      remedy: 'take 1 to 32 of a to z, 0 to 9 and -, without - at the beginning',
    })
  })
}

async function up(run: Run, target: UserAt, args: readonly string[], options: UpOptions): Promise<void> {
  const { word: name, user } = target
  const { env } = run.io
  refuseSharing(args)
  const defaults = await loadClientDefaults(env)
  const source = readService(env, options, defaults)
  // All files before the first request: what could not be verified is not created.
  const asked = options.reach === undefined ? null : policyOf('refuse', options.reach)
  const read = await readExpectation(run, options, identitiesOf(args))
  const egress = requestedEgress(asked, read, options)
  const reach = asked === null ? {} : { egressPolicy: asked }
  const expectation = { ...read, ...reach }
  refuseUnpinned(expectation)
  const names = localNames(env)
  const service = createService(source)
  const snapshots = createSnapshotService(source)
  const memory = new SnapshotMemory(clientDirectory(env) ?? '')
  const { from, acceptOlder = false } = options
  const refuseNew = () => refuseUnacceptable(expectation, options, { name, publicKey: keyFor(expectation) })
  if (from !== undefined && (names.find(name)?.hostname ?? null) === null) refuseNew()
  const keys = keyFilesOf(options, expectation, args)
  const lookup = { names, memory, service, snapshots }
  const wanted = from === undefined ? null : await prepareRestore(run, from, { ...lookup, keys, acceptOlder })
  if (wanted !== null) await confirmLate(run, name, names.find(name), wanted)
  const progress = progressOf(run)
  let isDone = false
  try {
    await progress.phase('create', `${name} at ${service.host}`)
    const { local, record, isCreated } = await openInstance(
      { service, names, clock: systemClock, hint: progress.note },
      {
        name,
        api: source.api.origin,
        publicKey: keyFor(expectation),
        model: options.model ?? null,
        egress,
        refuseNew,
        ...(wanted === null ? {} : { restoring: restoringText(wanted) }),
      },
    )
    if (wanted !== null) refuseOther(name, local, wanted)
    const ready = await awaited(run, { name, record, service, progress, options })
    if (ready === null) return
    await progress.phase('verify', record.hostname)
    const instance = readInstanceHostname(record.hostname)
    if (instance === null) return
    const readEarlier = async () => {
      const earlier = await readEarlierExpectation(run, local, options, identitiesOf(args))
      if (earlier === null) return null
      return { ...earlier, expectation: narrowed({ ...earlier.expectation, ...reach }, local) }
    }
    const judged = await judgedAtLast(() =>
      judgeExpected(run, instance, options, narrowed(expectation, local), readEarlier),
    )
    isDone = judged.shown.ok
    await progress.stop(!isDone)
    const knownHost = await concluded(run, { name, names, judged, options, hostname: record.hostname })
    if (knownHost === null) return
    const address = addressOf(judged)
    const hostKey = hostKeyOf(knownHost)
    memory.verified({ hostname: record.hostname, localName: name, hostKey, atMs: systemClock.nowMs() })
    const verified = await withVerifiedImages(run, { local, judged, options, expectation })
    const entry = { ...verified, address }
    await names.replace(name, local, entry)
    if (judged.isEarlier) await run.hint(earlierWords(name))
    if (wanted !== null) {
      const identity = identityOf(options.publicKey ?? expectation.defaults.public_key)
      const login = { user, knownHost, identity, address: await addressFor(knownHost.hostname, address, args) }
      await restore(run, wanted, { into: record.name, snapshots, login, args })
      const { restoring: _, ...done } = entry
      await names.replace(name, entry, done)
    } else await hintOfPending(run, name, entry)
    await entered(run, {
      name,
      user,
      names,
      knownHost,
      address,
      args,
      options,
      expectation,
      judged,
      record: ready,
      isCreated,
    })
  } finally {
    await progress.stop(!isDone)
  }
}

function progressOf(run: Run): Progress {
  const { io, json } = run
  const paint = paintFor(wantsColour({ isTerminal: io.stderrIsTerminal, env: io.env }))
  return createProgress({ io, paint, isQuiet: json, monotonicMs: systemClock.monotonicMs })
}

/** Refuses missing pins, without which each verdict fails. Fault invalid_request. */
function refuseUnpinned({ pins, policy, image }: InstanceExpectation): void {
  const source = image === 'any' ? undefined : `the manifest of the image ${image.name}`
  const missing = pinChecks(['measurement', 'operator-key'], pins, { policy, allowlist: 'any', source }).filter(
    isBroken,
  )
  if (missing.length === 0) return
  const fields = missing.map(({ name }) => (name === 'pin-measurement' ? 'image' : 'operator_key'))
  throw new InputFault(`client.toml has no ${fields.join(' and no ')}, so the instance could not be verified`, {
    param: fields[0] ?? 'policy',
    remedy: `name ${fields.join(' and ')} in client.toml (\`strongroom client init\` writes it), or a --policy with them`,
  })
}

/** Returns the key of client.toml or an option; otherwise the first that ssh would offer, preferably Ed25519. */
function keyFor({ ownKeys }: InstanceExpectation): string {
  const key = ownKeys.lines.find(line => line.startsWith('ssh-ed25519 ')) ?? ownKeys.lines[0]
  if (key !== undefined) return key
  throw new InputFault('no SSH key was found in ~/.ssh/*.pub and ssh-agent', {
    param: 'public-key',
    remedy: 'make one with `ssh-keygen -t ed25519`, or name yours by --public-key or public_key in client.toml',
  })
}

/** Narrows the accepted keys to that of the create, if it is one of the caller's. */
function narrowed(expectation: InstanceExpectation, { publicKey }: LocalInstance): InstanceExpectation {
  const created = parsed(() => readSshKey(publicKey))
  const isCreated = (line: string) => created.ok && readSshKey(line).fingerprint === created.value.fingerprint
  const own = expectation.ownKeys.lines.filter(isCreated)
  return own.length === 0 ? expectation : { ...expectation, publicKey: own }
}

type Awaiting = {
  readonly name: string
  readonly record: SeenInstance
  readonly service: Service
  readonly progress: Progress
  readonly options: UpOptions
}

/** Waits until it is ready. Returns null otherwise, with exit code and message. */
async function awaited(run: Run, { name, record, service, progress, options }: Awaiting): Promise<SeenInstance | null> {
  if (record.status === 'ready') return record
  const again = `\`strongroom up ${name}\``
  const rm = `\`strongroom rm ${name}\``
  let last = ''
  const onStatus = async (words: string) => {
    if (words !== last) await progress.phase('boot', words)
    last = words
  }
  await onStatus(`${record.name} is ${record.status}`)
  const timeoutMs = options.waitMinutes * 60_000
  const found = await waitForInstance({ service, name: record.name, clock: systemClock, timeoutMs, onStatus })
  if (found?.status === 'ready') return found
  await progress.stop(true)
  const seen = found ?? record
  if (found?.status === 'failed') {
    const { reason, remedy } = failureWords(found)
    const advice = `${remedy === 'create again' ? '' : `${remedy}; `}${again} creates another one`
    await failed(run, { record: seen, code: EXIT.failed, reason: `failed: ${reason}`, remedy: advice })
  } else if (found?.status === 'provisioning') {
    const reason = `is still provisioning after ${options.waitMinutes} minutes`
    await failed(run, { record: seen, code: EXIT.conflict, reason, remedy: `run ${again} to wait on, or ${rm}` })
  } else {
    const reason = found === null ? 'no longer exists' : `is ${found.status}`
    await failed(run, { record: seen, code: EXIT.conflict, reason, remedy: `${again} creates another one` })
  }
  return null
}

type Failing = {
  readonly record: SeenInstance
  readonly code: number
  readonly reason: string
  readonly remedy: string
}

async function failed(run: Run, { record, code, reason, remedy }: Failing): Promise<void> {
  const text = `strongroom: ${record.hostname} ${reason}\nremedy: ${remedy}\n`
  if (run.json) await run.result({ ok: false, instance: record, reason, remedy }, '')
  else await run.io.stderr(text)
  run.exitWith(code)
}

/** Verifies, and repeats it after 409 and 503, which the service may answer right after the claim. */
async function judgedAtLast(judge: () => Promise<JudgedInstance>): Promise<JudgedInstance> {
  for (let attempts = 1; ; attempts += 1) {
    try {
      return await judge()
    } catch (error) {
      const isEarly = error instanceof Fault && (error.code === 'conflict' || error.code === 'attestation_unavailable')
      if (!isEarly || attempts >= judgeAttemptsMax) throw error
    }
    await systemClock.sleep(judgeRetryMs)
  }
}

/** No share: requests of one command, one after another. */
const judgeAttemptsMax = 4
const judgeRetryMs = 2_000

type Concluding = {
  readonly name: string
  readonly names: LocalNames
  readonly judged: JudgedInstance
  readonly options: UpOptions
  readonly hostname: string
}

/** Writes the verified host key to the known_hosts file. After FAIL removes an earlier key and returns null. */
async function concluded(run: Run, { name, names, judged, options, hostname }: Concluding): Promise<KnownHost | null> {
  const { io } = run
  const { found, shown, asOf } = judged
  const paint = paintFor(wantsColour({ isTerminal: io.stderrIsTerminal, env: io.env }))
  if (!run.json) await io.stderr(instanceSummary(judged, paint, options.verbose === true))
  if (shown.ok && found.knownHost !== null) {
    const { knownHost } = found
    await names.alone(() => writeKnownHost(names.knownHosts, knownHost))
    return knownHost
  }
  await names.alone(() => forgetKnownHost(names.knownHosts, hostname))
  if (run.json) await run.result(instanceDocument(found, shown, asOf), '')
  await run.hint(
    `not logged in; \`strongroom up ${name}\` verifies again, \`strongroom rm ${name}\` deletes the instance`,
  )
  const code = exitCodeOfVerdict(shown, { details: found.receipt?.checks })
  run.exitWith(code === EXIT.ok ? EXIT.failed : code)
  return null
}

function addressOf({ found }: JudgedInstance): string | null {
  const network = found.claim?.network
  return network?.address ?? network?.v6?.address ?? null
}

type Entering = {
  readonly name: string
  readonly user: string
  readonly names: LocalNames
  readonly knownHost: KnownHost
  readonly address: string | null
  readonly args: readonly string[]
  readonly options: UpOptions
  readonly expectation: InstanceExpectation
  readonly judged: JudgedInstance
  readonly record: SeenInstance
  readonly isCreated: boolean
}

async function entered(run: Run, entering: Entering): Promise<void> {
  const { name, user, names, knownHost, args, options, expectation, judged, record, isCreated } = entering
  const address = await addressFor(knownHost.hostname, entering.address, args)
  const isAnswered = args.length > 0 || run.io.ask !== undefined
  if (options.login && isAnswered && !run.json) {
    const identity = identityOf(options.publicKey ?? expectation.defaults.public_key)
    run.exitWith(await runSsh(run, { user, knownHost, args, identity, address }))
    return
  }
  const { found, shown, asOf } = judged
  const document = {
    name,
    created: isCreated,
    instance: record,
    known_hosts: names.knownHosts,
    verdict: instanceDocument(found, shown, asOf),
  }
  await run.result(document, () => nextText({ name, knownHost, knownHostsFile: names.knownHosts, address }))
}

type Next = {
  readonly name: string
  readonly knownHost: KnownHost
  readonly knownHostsFile: string
  readonly address: string | null
}

function nextText({ name, knownHost, knownHostsFile, address }: Next): string {
  const { hostname, key } = knownHost
  // ssh splits the value at blanks, and replaces its own tokens.
  const file = /[\s%]/.test(knownHostsFile) ? `"${knownHostsFile.replaceAll('%', '%%')}"` : knownHostsFile
  // The one file with host keys, and no open connection, also if the user's configuration names others.
  const only = ['GlobalKnownHostsFile=/dev/null', 'KnownHostsCommand=none', 'ControlPath=none']
  const options = [`UserKnownHostsFile=${file}`, 'StrictHostKeyChecking=yes', ...only]
  const more = address === null ? [] : [`HostName=${address}`, `HostKeyAlias=${hostname}`]
  const plain = [...options, ...more].map(option => `-o ${shellWord(option)}`).join(' ')
  return `${name} is ready and verified: ${hostname} ${key.fingerprint}
Log in:         strongroom ssh ${name}
Copy:           strongroom cp FILE ${name}:
Other programs: ssh ${plain} ${defaultUser}@${hostname}
`
}
