// strongroom ssh: verifies an instance, then runs ssh with its verified host key. Effects: network, files, a process.

import { type Command, helpText, type Run } from '../terminal/command.ts'
import { EXIT } from '../terminal/exit.ts'
import { oneLine, paintFor, verdictWords, wantsColour } from '../terminal/render.ts'
import { exitCodeOfVerdict, failureOf } from '../terminal/verdict-exit.ts'
import { readInstanceHostname } from '../verifier/instance.ts'
import { clientConfigHelp, clientDirectory, loadClientDefaults } from './client-config.ts'
import { localNames } from './instances/names.ts'
import { addressFor, identityOf, refuseSharing, runSsh } from './instances/openssh.ts'
import { createService } from './instances/service.ts'
import { resolveTarget, targetWord, type UserAt, withUser } from './instances/target.ts'
import { findKnownHost, forgetKnownHost } from './known-hosts.ts'
import {
  type AskedInstance,
  addInstanceOptions,
  type InstanceOptions,
  instanceDocument,
  instanceSummary,
  type JudgedInstance,
  judgeInstance,
} from './verify/instance.ts'
import { identitiesOf } from './verify/keys/own-keys.ts'
import { readService, serviceUrl } from './verify/service-options.ts'

export function addSsh(program: Command): void {
  const command = program
    .command('ssh')
    .description('verify an instance, then log in with exactly the verified host key; on FAIL ssh is not run')
    .argument(
      '<target>',
      '[USER@]NAME, of `strongroom ls`, or a whole host name; the default user is agent',
      targetArgument,
    )
    .argument('[ssh-arguments...]', 'after --: options of ssh and the command to run')
  addInstanceOptions(command)
    .addHelpText(
      'after',
      `${clientConfigHelp}
The host key comes from the attestation alone: files of known hosts, hashed names, DNS, and connections that are open already are not used.
The instance must let in a key of yours: --public-key, else one of ~/.ssh/*.pub, of ssh-agent, or of -i FILE after --.
Exit code: that of ssh; on FAIL, where ssh is not run, that of \`verify instance\`. Needs OpenSSH 8.5.
${helpText(
  'strongroom ssh work',
  'strongroom ssh work -- uname --all',
  'strongroom ssh k3v9x2ma.acme.agents.example --policy policy.json -- -L 8080:127.0.0.1:8080',
)}`,
    )
    .runs(async (run, target: UserAt, args: readonly string[], options: InstanceOptions) =>
      verifyAndRun(run, { target, args, options }),
    )
}

type SshRequest = { readonly target: UserAt; readonly args: readonly string[]; readonly options: InstanceOptions }

/** Prints to stderr: stdout belongs to the remote command. */
async function verifyAndRun(run: Run, { target, args, options: given }: SshRequest): Promise<void> {
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
    // Without a host key ssh did not run, whatever the checks say.
    run.exitWith(code === EXIT.ok ? EXIT.failed : code)
    return
  }
  const words = `${verdictWords(shown, paint)}: ${oneLine(`${knownHost.hostname} ${knownHost.key.fingerprint}`)}`
  await run.hint(options.verbose === true ? instanceSummary(judged, paint, true).trimEnd() : words)
  const network = found.claim?.network
  const address = await addressFor(knownHost.hostname, network?.address ?? network?.v6?.address ?? null, args)
  const identity = identityOf(options.publicKey ?? (await loadClientDefaults(io.env)).public_key)
  run.exitWith(await runSsh(run, { user: target.user, knownHost, args, identity, address }))
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

function targetArgument(text: string): UserAt {
  return withUser(text, targetWord)
}
