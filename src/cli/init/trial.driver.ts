// The end of `strongroom init`: an instance as a client sees it, created, verified, logged into and deleted. Effects:
// requests to the daemon and to service A, a temporary directory, ssh-keygen and ssh.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { present } from '../../base/assert.ts'
import { type Clock, systemClock } from '../../base/clock.ts'
import { sshArguments } from '../../client/instances/openssh.ts'
import { instanceArgument, instanceSummary, judgeInstance } from '../../client/verify/instance.ts'
import { policyFor } from '../../client/verify/policy-example.ts'
import type { Config } from '../../config/schema.ts'
import {
  AdminInstance,
  AdminKey,
  AdminKeyCreated,
  AdminOrganization,
  AdminOrganizationList,
  type AdminStatus,
} from '../../contract/admin/admin.ts'
import { exposureNames } from '../../contract/vm/exposure.ts'
import { run as runCommand } from '../../linux/command.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import { json } from '../../terminal/render.ts'
import type { KnownHost } from '../../verifier/ssh-key.ts'
import { path, type Run } from '../operator-run.ts'
import { allowedEntry } from '../upstream/entry.ts'
import { promptCommand, promptedModel, promptVerdict } from './prompt.plan.ts'
import { clientOf, type TrialClient } from './trial-client.driver.ts'

export type TrialStep = (name: string, work: () => Promise<string>) => Promise<void>

type Options = {
  readonly run: Run
  readonly config: Config
  readonly status: AdminStatus
  readonly organization: string
  /** Runs a step and reports it; the work returns the text of the result. */
  readonly step: TrialStep
  readonly clock?: Pick<Clock, 'monotonicMs' | 'sleep'>
}

const pollMs = 200
const sshTimeoutMs = 60_000
/** More than a prompt in the instance may take. */
const commandTimeoutMs = 300_000
const promptAttemptsMax = 3
const promptPauseMs = 5_000
const verifyTimeoutMs = 30_000
const outputBytesMax = 65_536

/** Leaves no instance and no key, whatever happens. Faults: those of the steps. */
export async function tryInstance(options: Options): Promise<void> {
  const { run, status, organization, step, config } = options
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-init-'))
  await using undo = new AsyncDisposableStack()
  undo.defer(() => rmSync(directory, { recursive: true, force: true }))
  await step('organization', () => ensureOrganization(run, organization))
  const created = await run.client().request({
    method: 'POST',
    path: path`/organizations/${organization}/keys`,
    body: { scope: 'write' },
    response: AdminKeyCreated,
  })
  undo.defer(async () => {
    await run.client().request({ method: 'POST', path: path`/keys/${created.prefix}/revoke`, response: AdminKey })
  })
  const files = { identity: join(directory, 'client'), key: join(directory, 'key'), policy: join(directory, 'policy') }
  writeFileSync(files.key, created.key, { mode: 0o600 })
  await keygen(files.identity)
  const client = clientOf(status, { key: created.key })
  const publicKey = readFileSync(`${files.identity}.pub`, 'utf8').trim()
  let name = ''
  undo.defer(async () => {
    // Once more in case a step failed: deleting what is deleted has no effect.
    if (name !== '') await client.remove(name).catch(() => {})
  })
  await step('create', async () => {
    ;({ name } = await client.create(publicKey))
    return name
  })
  await step('boot', () =>
    reached(run, { ref: `${organization}/${name}`, wanted: 'ready', timeoutMs: bootMs(config), ...clockOf(options) }),
  )
  let knownHost: KnownHost | null = null
  await step('verify', async () => {
    const verified = await verify(options, { name, files, client })
    ;({ knownHost } = verified)
    return verified.summary
  })
  const login = { name, organization, files, knownHost: () => present(knownHost, 'a verified key') }
  await step('log in', async () => `kernel ${await inInstance(run, login, ['uname', '--kernel-release'])}`)
  const model = promptedModel(config)
  if (model === null) await run.hint('not tried: a prompt, because the gateway has no model for instances')
  else await step('prompt', () => promptFrom(run, { login, model, ...clockOf(options) }))
  await step('delete', async () => {
    await client.remove(name)
    const timeoutMs = config.vm.stop_grace_ms + deleteMs
    return await reached(run, { ref: `${organization}/${name}`, wanted: 'terminated', timeoutMs, ...clockOf(options) })
  })
}

const deleteMs = 60_000

function bootMs({ vm, capacity }: Config): number {
  return capacity.wait_ms + vm.boot_timeout_ms + vm.claim_timeout_ms + vm.ssh_timeout_ms
}

function clockOf({ clock = systemClock }: Options) {
  return { clock }
}

async function ensureOrganization(run: Run, slug: string): Promise<string> {
  const { organizations } = await run.client().request({ path: '/organizations', response: AdminOrganizationList })
  if (organizations.some(found => found.slug === slug)) return `${slug}, which was there`
  await run.client().request({ method: 'POST', path: '/organizations', body: { slug }, response: AdminOrganization })
  return `${slug}, made now`
}

async function keygen(file: string): Promise<void> {
  await withSsh('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', 'strongroom-init', '-f', file])
}

async function withSsh(program: string, words: readonly string[]): Promise<string> {
  if (Bun.which(program) === null) {
    throw new AdvisedFault('host.command_failed', `${program} is not installed`, {
      remedy: 'install openssh-client, then run `strongroom init` again',
    })
  }
  const { stdout } = await runCommand([program, ...words], {
    timeoutMs: program === 'ssh' ? commandTimeoutMs : sshTimeoutMs,
    outputBytesMax,
  })
  return stdout.trim()
}

type Reaching = {
  readonly ref: string
  readonly wanted: 'ready' | 'terminated'
  readonly timeoutMs: number
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
}

/** Asked over the admin socket: requests of clients are limited per minute. */
async function reached(run: Run, { ref, wanted, timeoutMs, clock }: Reaching): Promise<string> {
  const remedy = `see strongroom instance logs ${ref}, and strongroom doctor`
  for (const startedMs = clock.monotonicMs(); clock.monotonicMs() - startedMs < timeoutMs; await clock.sleep(pollMs)) {
    const found = await run.client().request({ path: '/instance', query: { ref }, response: AdminInstance })
    if (found.status === wanted) return wanted
    if (found.status !== 'failed') continue
    throw new AdvisedFault('host.command_failed', `${ref}: ${found.failure_code}: ${found.failure_message}`, { remedy })
  }
  throw new AdvisedFault('host.command_timeout', `${ref} is not ${wanted} within ${timeoutMs / 1000} s`, { remedy })
}

type Files = { readonly identity: string; readonly key: string; readonly policy: string }
type Verifying = { readonly name: string; readonly files: Files; readonly client: TrialClient }

/** Accepts the gateway of this host as it is configured. */
function ownGateway({ inference, instances }: Config) {
  const isElsewhere = instances.inference_base_url !== ''
  return {
    anyGateway: true,
    unattestedGateway: isElsewhere ? 'elsewhere' : inference.placement === 'host' ? 'host' : 'no-worker',
    allowOutside: inference.upstreams.map(allowedEntry),
    allow: exposureNames,
  } as const
}

/** Verifies like its owner, with the image and operator key of this host. Any gateway is accepted. */
async function verify({ run, config, status, organization }: Options, { name, files, client }: Verifying) {
  const image = config.vm.image_dir
  writeFileSync(files.policy, json(await policyFor({ image, operatorKey: status.operator_key.digest })))
  const caFile = status.tls.ca_file
  const judged = await judgeInstance(run, instanceArgument(`${name}.${organization}.${config.domain}`), {
    api: client.api,
    keyFile: files.key,
    timeoutMs: verifyTimeoutMs,
    policy: files.policy,
    image,
    publicKey: `${files.identity}.pub`,
    ...ownGateway(config),
    ...(caFile === null ? {} : { ca: caFile }),
    ...(status.evidence_simulated ? { trustSimulatedRoot: join(run.stateDir, 'simulator/root.pem') } : {}),
  })
  const { knownHost } = judged.found
  if (judged.shown.ok && knownHost !== null) {
    return { knownHost, summary: judged.shown.simulated ? 'PASS, SIMULATED: this host has no SEV-SNP' : 'PASS' }
  }
  throw new AdvisedFault('attestation_unavailable', instanceSummary(judged, run.paint, false).trim(), {
    remedy: 'see `strongroom doctor`; compare vm.image_dir with the image that you publish',
  })
}

type Login = {
  readonly name: string
  readonly organization: string
  readonly files: Files
  readonly knownHost: () => KnownHost
}

/** Runs a command in the instance and returns its output. */
async function inInstance(run: Run, login: Login, command: readonly string[]): Promise<string> {
  const { name, organization, files } = login
  const knownHost = login.knownHost()
  const query = { ref: `${organization}/${name}` }
  const { vm } = await run.client().request({ path: '/instance', query, response: AdminInstance })
  const address = present(vm?.address ?? vm?.address_v6, 'an address of a ready instance')
  const knownHosts = `${files.identity}.known_hosts`
  writeFileSync(knownHosts, `${knownHost.line}\n`, { mode: 0o600 })
  // The name may not be delegated yet; the key was verified for it all the same.
  const options = ['-F', 'none', '-i', files.identity, '-o', `Hostname=${address}`]
  const rest = [...options, '-o', 'IdentitiesOnly=yes', '-o', 'BatchMode=yes', ...command]
  const [ssh = '', ...words] = sshArguments({ user: 'agent', knownHost, args: rest }, knownHosts)
  return await withSsh(ssh, words)
}

type Prompting = {
  readonly login: Login
  readonly model: string
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
}

/** Sends a prompt from the instance, through its endpoint. A gateway that has just started gets a second chance. */
async function promptFrom(run: Run, { login, model, clock }: Prompting): Promise<string> {
  for (let attempt = 1; ; attempt += 1) {
    const verdict = promptVerdict(await inInstance(run, login, [promptCommand(model)]))
    if (verdict.ok) return `${model} answered${verdict.tokens === null ? '' : `, ${verdict.tokens} tokens`}`
    if (attempt === promptAttemptsMax) {
      throw new AdvisedFault('upstream_failed', `no answer of ${model}: ${verdict.why}`, {
        remedy: 'see `strongroom inference logs`, `strongroom upstream ls` and `strongroom help gateway`',
      })
    }
    await clock.sleep(promptPauseMs)
  }
}
