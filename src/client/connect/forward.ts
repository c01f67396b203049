// strongroom connect --instance: verifies an instance, then forwards one of its ports to this machine over SSH.
// Effects: network, files, a loopback port, a process that runs until a signal.

import { createServer } from 'node:net'
import { InvalidArgumentError } from 'commander'
import { messageOf, systemErrorCode } from '../../base/fault.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { EXIT, InputFault } from '../../terminal/exit.ts'
import { clientConfigHelp } from '../client-config.ts'
import { type Connection, refuseSharing, runForward } from '../instances/openssh.ts'
import { targetArgument, type UserAt } from '../instances/target.ts'
import { verifiedInstance } from '../instances/verified.ts'
import { addInstanceOptions, type InstanceOptions } from '../verify/instance.ts'

/** Ports of one forwarding. */
type Ports = { readonly inside: number; readonly here: number }
type ForwardOptions = InstanceOptions & { instance: UserAt }

const loopback = '127.0.0.1'
const portMax = 65_535

export function addForward(program: Command): void {
  const command = program
    .command('connect')
    .description('verify an instance, and forward one of its ports to loopback of this machine')
    .argument('<port>', 'PORT of the instance, or PORT:LOCAL with the port of this machine', portsOption)
    .argument('[ssh-arguments...]', 'after --: options of ssh')
    .requiredOption(
      '--instance <target>',
      '[USER@]NAME, of `strongroom ls`, or a whole host name; the default user is agent',
      targetArgument,
    )
  addInstanceOptions(command)
    .addHelpText(
      'after',
      `${clientConfigHelp}
The command verifies the instance as \`strongroom ssh\` does; on FAIL nothing listens. Then ${loopback} of this machine leads to
${loopback} in the instance, encrypted to its verified host key. What listens in the instance answers, so a reply is as
trustworthy as the programs that run there. Every program of this machine can connect, those of other users too.
SIGINT or SIGTERM ends it with exit code 0. Other exit codes are those of ssh, or on FAIL of \`verify instance\`.
${helpText('strongroom connect --instance work 3000', 'strongroom connect --instance work 3000:8080')}`,
    )
    .runs(forward)
}

function portsOption(text: string): Ports {
  const [, inside = '', here = inside] = /^([0-9]{1,5})(?::([0-9]{1,5}))?$/.exec(text) ?? []
  const ports = { inside: Number(inside), here: Number(here) }
  if (Object.values(ports).every(port => port >= 1 && port <= portMax)) return ports
  throw new InvalidArgumentError(`It must be PORT or PORT:LOCAL, each from 1 to ${portMax}, like 3000:8080.`)
}

async function forward(run: Run, ports: Ports, args: readonly string[], options: ForwardOptions): Promise<void> {
  refuseSharing(args)
  // Before the verification, which takes longer. ssh reports a port that another program takes meanwhile.
  await refuseTaken(ports)
  const connection = await verifiedInstance(run, { target: options.instance, args, options })
  if (connection === null) return
  const isEnded = watchSignals(run)
  const code = await runForward(run, {
    ...connection,
    args,
    local: `${loopback}:${ports.here}`,
    remote: `${loopback}:${ports.inside}`,
    onReady: () => showReady(run, connection, ports),
  })
  run.exitWith(isEnded() ? EXIT.ok : code)
}

/** Rejects if the local port cannot be opened. Fault invalid_request. */
async function refuseTaken({ here }: Ports): Promise<void> {
  const server = createServer()
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen({ host: loopback, port: here }, resolve)
    })
  } catch (error) {
    const isTaken = systemErrorCode(error) === 'EADDRINUSE'
    const reason = isTaken ? 'another program listens there' : messageOf(error)
    throw new InputFault(`${loopback}:${here} of this machine: ${reason}`, {
      param: 'port',
      remedy: 'name another port of this machine, as in 3000:8080',
    })
  } finally {
    server.close()
  }
}

/** Ends ssh by its own signal handling. Returns whether a signal came. */
function watchSignals({ io }: Run): () => boolean {
  let isEnded = false
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    io.onSignal(signal, () => {
      isEnded = true
    })
  }
  return () => isEnded
}

async function showReady(run: Run, { knownHost: { hostname } }: Connection, { inside, here }: Ports): Promise<void> {
  const [local, remote] = [`${loopback}:${here}`, `${loopback}:${inside}`]
  const text = `Listening on ${local} of this machine: leads to ${remote} in ${hostname}, until Ctrl-C.\n`
  if (run.json) await run.result({ ready: true, hostname, local, remote }, '')
  else await run.io.stdout(text)
}
