// strongroom ssh: verifies an instance, then runs ssh with its verified host key. Effects: network, files, a process.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { InvalidArgumentError } from 'commander'
import { messageOf } from '../base/fault.ts'
import { type Command, helpText, type Run } from '../terminal/command.ts'
import { AdvisedFault, EXIT } from '../terminal/exit.ts'
import { oneLine, paintFor, verdictWords, wantsColour } from '../terminal/render.ts'
import { exitCodeOfVerdict } from '../terminal/verdict-exit.ts'
import type { KnownHost } from '../verifier/ssh-key.ts'
import { clientConfigHelp } from './client-config.ts'
import {
  type AskedInstance,
  addInstanceOptions,
  type InstanceOptions,
  instanceArgument,
  instanceDocument,
  instanceSummary,
  judgeInstance,
} from './verify/instance.ts'
import { identitiesOf } from './verify/keys/own-keys.ts'

/** The user account in every instance. */
const defaultUser = 'agent'

type Target = { readonly instance: AskedInstance; readonly user: string }

export function addSsh(program: Command): void {
  const command = program
    .command('ssh')
    .description('verify an instance, then log in with exactly the verified host key; on FAIL ssh is not run')
    .argument('<target>', '[USER@]NAME.ORGANIZATION.DOMAIN; the default user is agent', targetArgument)
    .argument('[ssh-arguments...]', 'after --: options of ssh and the command to run')
  addInstanceOptions(command)
    .addHelpText(
      'after',
      `${clientConfigHelp}
The host key comes from the attestation alone: files of known hosts, hashed names, DNS, and connections that are open already are not used.
The instance must let in a key of yours: --public-key, else one of ~/.ssh/*.pub, of ssh-agent, or of -i FILE after --.
Exit code: that of ssh; on FAIL, where ssh is not run, that of \`verify instance\`. Needs OpenSSH 8.5.
${helpText(
  'strongroom ssh k3v9x2ma.acme.agents.example',
  'strongroom ssh k3v9x2ma.acme.agents.example --policy policy.json -- -L 8080:127.0.0.1:8080',
  'strongroom ssh k3v9x2ma.acme.agents.example -- uname --all',
)}`,
    )
    .runs(async (run, target: Target, args: readonly string[], options: InstanceOptions) =>
      verifyAndRun(run, { target, args, options }),
    )
}

type SshRequest = { readonly target: Target; readonly args: readonly string[]; readonly options: InstanceOptions }

/** Prints to stderr: stdout belongs to the remote command. */
async function verifyAndRun(run: Run, { target, args, options }: SshRequest): Promise<void> {
  const judged = await judgeInstance(run, target.instance, options, identitiesOf(args))
  const { found, shown, asOf } = judged
  const { io } = run
  const paint = paintFor(wantsColour({ isTerminal: io.stderrIsTerminal, env: io.env }))
  const { knownHost } = found
  if (knownHost === null || !shown.ok) {
    if (run.json) await run.result(instanceDocument(found, shown, asOf), '')
    else await io.stderr(instanceSummary(judged, paint, options.verbose === true))
    const code = exitCodeOfVerdict(shown, { details: found.receipt?.checks })
    // Without a host key ssh did not run, whatever the checks say.
    run.exitWith(code === EXIT.ok ? EXIT.failed : code)
    return
  }
  const words = `${verdictWords(shown, paint)}: ${knownHost.hostname} ${knownHost.key.fingerprint}`
  await run.hint(options.verbose === true ? instanceSummary(judged, paint, true).trimEnd() : oneLine(words))
  run.exitWith(await runSsh(run, { user: target.user, knownHost, args }))
}

type Login = { readonly user: string; readonly knownHost: KnownHost; readonly args: readonly string[] }

/** Returns ssh's exit code; for a signal, 128 plus its number, as in shells. */
async function runSsh({ io }: Run, login: Login): Promise<number> {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-ssh-'))
  try {
    const file = join(directory, 'known_hosts')
    writeFileSync(file, `${login.knownHost.line}\n`, { mode: 0o600 })
    const child = startSsh(sshArguments(login, file), io.env)
    // The terminal sends SIGINT to ssh too, which handles it.
    io.onSignal('SIGINT', () => {})
    io.onSignal('SIGTERM', () => child.kill('SIGTERM'))
    io.onSignal('SIGHUP', () => child.kill('SIGHUP'))
    return await child.exited
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

function startSsh(argv: readonly string[], env: Run['io']['env']) {
  try {
    return Bun.spawn([...argv], { stdin: 'inherit', stdout: 'inherit', stderr: 'inherit', env })
  } catch (error) {
    throw new AdvisedFault('host.command_failed', `ssh: ${messageOf(error)}`, {
      remedy: 'install OpenSSH, and see that ssh is in the PATH',
    })
  }
}

/**
 * ssh uses the first value of an option (ssh_config(5)), so neither `args` nor the user's configuration overrides
 * these: this file is the only source of host keys, and no earlier connection is shared.
 */
export function sshArguments({ user, knownHost, args }: Login, knownHostsFile: string): string[] {
  const options = {
    StrictHostKeyChecking: 'yes',
    // A single name, even with blanks, and without ssh's tokens.
    UserKnownHostsFile: `"${knownHostsFile.replaceAll('%', '%%')}"`,
    GlobalKnownHostsFile: '/dev/null',
    KnownHostsCommand: 'none',
    // The name in the file, even if the configuration has another address or port for it.
    HostKeyAlias: knownHost.hostname,
    HostKeyAlgorithms: 'ssh-ed25519',
    VerifyHostKeyDNS: 'no',
    UpdateHostKeys: 'no',
    CheckHostIP: 'no',
    NoHostAuthenticationForLocalhost: 'no',
    ControlMaster: 'no',
    ControlPath: 'none',
  }
  const ours = Object.entries(options).flatMap(([name, value]) => ['-o', `${name}=${value}`])
  return ['ssh', ...ours, `${user}@${knownHost.hostname}`, ...args]
}

function targetArgument(text: string): Target {
  const at = text.lastIndexOf('@')
  const user = at === -1 ? defaultUser : text.slice(0, at)
  if (!/^[a-z_][a-z0-9_-]{0,31}$/.test(user)) throw new InvalidArgumentError('The user before the @ is no user name.')
  return { instance: instanceArgument(text.slice(at + 1)), user }
}
