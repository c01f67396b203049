// strongroom ssh: verifies an instance, then runs ssh with its verified host key. Effects: network, files, a process.

import { type Command, helpText, type Run } from '../terminal/command.ts'
import { clientConfigHelp } from './client-config.ts'
import { runSsh } from './instances/openssh.ts'
import { targetArgument, type UserAt } from './instances/target.ts'
import { type InstanceRequest, verifiedInstance } from './instances/verified.ts'
import { addInstanceOptions, type InstanceOptions } from './verify/instance.ts'

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

/** Prints to stderr: stdout belongs to the remote command. */
async function verifyAndRun(run: Run, request: InstanceRequest): Promise<void> {
  const instance = await verifiedInstance(run, request)
  if (instance !== null) run.exitWith(await runSsh(run, { ...instance, args: request.args }))
}
