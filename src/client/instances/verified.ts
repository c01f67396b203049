// An instance that has just been verified, for commands that then connect to it. Effects: network, files.

import type { Run } from '../../terminal/command.ts'
import { EXIT } from '../../terminal/exit.ts'
import { oneLine, paintFor, verdictWords, wantsColour } from '../../terminal/render.ts'
import { exitCodeOfVerdict, failureOf } from '../../terminal/verdict-exit.ts'
import { readInstanceHostname } from '../../verifier/instance.ts'
import type { KnownHost } from '../../verifier/ssh-key.ts'
import { clientDirectory, loadClientDefaults } from '../client-config.ts'
import { findKnownHost, forgetKnownHost } from '../known-hosts.ts'
import {
  type AskedInstance,
  type InstanceOptions,
  instanceDocument,
  instanceSummary,
  type JudgedInstance,
  judgeInstance,
} from '../verify/instance.ts'
import { identitiesOf } from '../verify/keys/own-keys.ts'
import { readService, serviceUrl } from '../verify/service-options.ts'
import { localNames } from './names.ts'
import { addressFor, identityOf, refuseSharing } from './openssh.ts'
import { createService } from './service.ts'
import { resolveTarget, type UserAt } from './target.ts'

export type VerifiedInstance = {
  readonly judged: JudgedInstance
  readonly user: string
  readonly knownHost: KnownHost
  /** See `Connection`. */
  readonly identity: string | null
  readonly address: string | null
  /** Options of ssh. */
  readonly args: readonly string[]
}

export type InstanceRequest = {
  readonly target: UserAt
  /** Options of ssh, and the command to run. */
  readonly args: readonly string[]
  readonly options: InstanceOptions
}

/**
 * Verifies the instance, and prints the verdict on stderr. Null on FAIL, with the exit code of the verdict. Faults:
 * those of `judgeInstance`.
 */
export async function verifiedInstance(
  run: Run,
  { target, args, options: given }: InstanceRequest,
): Promise<VerifiedInstance | null> {
  refuseSharing(args)
  const [instance, options] = await resolved(run, target, given)
  const judged = await judgeInstance(run, instance, options, identitiesOf(args))
  const { found, shown, asOf } = judged
  const { io } = run
  const paint = paintFor(wantsColour({ isTerminal: io.stderrIsTerminal, env: io.env }))
  const { knownHost } = found
  if (knownHost === null || !shown.ok) {
    if (run.json) await run.result(instanceDocument(found, shown, asOf), '')
    else await io.stderr(instanceSummary(judged, paint, options.verbose === true))
    if (isDoubtful(judged)) await forget(run, instance.hostname)
    const code = exitCodeOfVerdict(shown, { details: found.receipt?.checks })
    // Without a host key nothing connects, whatever the checks say.
    run.exitWith(code === EXIT.ok ? EXIT.failed : code)
    return null
  }
  const words = `${verdictWords(shown, paint)}: ${oneLine(`${knownHost.hostname} ${knownHost.key.fingerprint}`)}`
  await run.hint(options.verbose === true ? instanceSummary(judged, paint, true).trimEnd() : words)
  const network = found.claim?.network
  const address = await addressFor(knownHost.hostname, network?.address ?? network?.v6?.address ?? null, args)
  const identity = identityOf(options.publicKey ?? (await loadClientDefaults(io.env)).public_key)
  return { judged, user: target.user, knownHost, identity, address, args }
}

/** Evidence failed, or cannot be read. A policy that refuses, or no connection, casts no doubt on an earlier key. */
function isDoubtful({ found, shown }: JudgedInstance): boolean {
  const failure = failureOf(shown, { details: found.receipt?.checks })
  return failure === 'evidence' || (failure === 'input' && shown.checks.some(({ outcome }) => outcome === 'fail'))
}

/** Removes the key that an earlier `up` verified, so that `cp` does not go on with it. */
async function forget({ io }: Run, hostname: string): Promise<void> {
  if (clientDirectory(io.env) === null) return
  const names = localNames(io.env)
  if (findKnownHost(names.knownHosts, hostname) === null) return
  await names.alone(() => forgetKnownHost(names.knownHosts, hostname))
}

/** The instance that the word means, and the options with the address of its service. */
async function resolved(
  run: Run,
  { word }: UserAt,
  options: InstanceOptions,
): Promise<[AskedInstance, InstanceOptions]> {
  const whole = readInstanceHostname(word)
  if (whole !== null) return [whole, options]
  const { env } = run.io
  const defaults = await loadClientDefaults(env)
  const url = serviceUrl(options, defaults)
  const service = () => createService(readService(env, options, defaults))
  const { instance, local } = await resolveTarget(word, { names: localNames(env), api: url?.origin ?? null, service })
  return [instance, url === null && local !== null ? { ...options, api: new URL(local.api) } : options]
}
