// Verifies an instance right before a login, for commands that then connect to it. Effects: network,
// files. Prints the verdict.

import type { Run } from '../../terminal/command.ts'
import { EXIT } from '../../terminal/exit.ts'
import { oneLine, paintFor, verdictWords, wantsColour } from '../../terminal/render.ts'
import { exitCodeOfVerdict, failureOf } from '../../terminal/verdict-exit.ts'
import { readInstanceHostname } from '../../verifier/instance.ts'
import type { KnownHost } from '../../verifier/ssh-key.ts'
import { clientDirectory, loadClientDefaults } from '../client-config.ts'
import { findKnownHost, forgetKnownHost } from '../known-hosts.ts'
import {
  type InstanceExpectation,
  type InstanceOptions,
  instanceDocument,
  instanceSummary,
  type JudgedInstance,
  judgeExpected,
  readExpectation,
} from '../verify/instance.ts'
import { identitiesOf } from '../verify/keys/own-keys.ts'
import { readService, serviceUrl } from '../verify/service-options.ts'
import { localNames } from './names.ts'
import { addressFor, identityOf, refuseSharing } from './openssh.ts'
import { hintOfPending } from './restore.ts'
import { createService } from './service.ts'
import { resolveTarget, type Target, type UserAt } from './target.ts'
import { earlierWords, keepVerifiedImages, readEarlierExpectation } from './verified-images.ts'

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
  /** Changes what the command expects, before the first request. */
  readonly expecting?: (expectation: InstanceExpectation) => InstanceExpectation
}

/**
 * Verifies the instance, and prints the verdict on stderr. Null on FAIL, with the exit code of the verdict. Faults:
 * those of `judgeInstance`.
 */
export async function verifiedInstance(
  run: Run,
  { target, args, options: given, expecting = same => same }: InstanceRequest,
): Promise<VerifiedInstance | null> {
  refuseSharing(args)
  const { instance, options, localName, local } = await resolved(run, target, given)
  const identities = identitiesOf(args)
  const expectation = expecting(await readExpectation(run, options, identities))
  const judged = await judgeExpected(run, instance, options, expectation, async () => {
    const earlier = local === null ? null : await readEarlierExpectation(run, local, options, identities)
    return earlier === null ? null : { ...earlier, expectation: expecting(earlier.expectation) }
  })
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
  if (local !== null && localName !== null) {
    if (judged.isEarlier) await run.hint(earlierWords(localName))
    await hintOfPending(run, localName, local)
    await keepVerifiedImages(run, { names: localNames(io.env), name: localName, local, judged, options, expectation })
  }
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
): Promise<Target & { readonly options: InstanceOptions }> {
  const { env } = run.io
  const whole = readInstanceHostname(word)
  // A whole host name needs no names of this machine, which may have no home directory.
  if (whole !== null && clientDirectory(env) === null) return { instance: whole, local: null, localName: null, options }
  const defaults = await loadClientDefaults(env)
  const url = serviceUrl(options, defaults)
  const service = () => createService(readService(env, options, defaults))
  const target = await resolveTarget(word, { names: localNames(env), api: url?.origin ?? null, service })
  const { local } = target
  const isAddressKnown = url !== null || whole !== null || local === null
  return { ...target, options: isAddressKnown ? options : { ...options, api: new URL(local.api) } }
}
