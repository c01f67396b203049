// strongroom publish and unpublish: ports of an instance that anyone reaches by TLS, changed by signed orders. Effects:
// the network, files, processes.

import { InvalidArgumentError } from 'commander'
import { systemClock } from '../../base/clock.ts'
import { checkValue } from '../../contract/check.ts'
import type { Static } from '../../contract/type.ts'
import { PublishBody, publishedEgressBytesMax } from '../../contract/vm/orders/published.ts'
import { PublishedFacts } from '../../contract/vm/orders/published-facts.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { AdvisedFault, EXIT, InputFault } from '../../terminal/exit.ts'
import { bytesOption } from '../../terminal/options.ts'
import { oneLine } from '../../terminal/render.ts'
import { defaultPorts } from '../../verifier/instance.ts'
import type { ExpectedPort } from '../../verifier/ordered/published.ts'
import { clientConfigHelp } from '../client-config.ts'
import { targetArgument, type UserAt } from '../instances/target.ts'
import { type VerifiedInstance, verifiedInstance } from '../instances/verified.ts'
import { addInstanceOptions, type InstanceExpectation, type InstanceOptions } from '../verify/instance.ts'
import { type Published, PublishedResult, probePublished, waited } from './published-wait.ts'
import { carriedOut, sendOrder } from './send.ts'

const targetWords = '[USER@]NAME, of `strongroom ls`, or a whole host name'
const argumentsWords = 'after --: options of ssh'
const signing = `The instance is verified first, and a key of yours that it lets in signs the order. Needs OpenSSH 8.5.`
type PublishOptions = InstanceOptions & { readonly name: string; readonly egress?: number; readonly wait: boolean }

export function addPublish(program: Command): void {
  const command = program
    .command('publish')
    .description('let anyone reach a port of an instance by TLS, with a key that is made in the VM')
    .argument('<target>', targetWords, targetArgument)
    .argument('<port>', 'where your program listens on 127.0.0.1, 1024 to 65535', portNumber)
    .argument('[ssh-arguments...]', argumentsWords)
    .option('--name <name>', 'the label in front of the host name', label, 'web')
    .option(
      '--egress <bytes>',
      'what answers may use of the egress cap, like 1GiB; default 256MiB, or as before',
      bytesOption(publishedEgressBytesMax),
    )
    .option('--no-wait', 'do not wait for the certificate')
  addInstanceOptions(command)
    .addHelpText(
      'after',
      `${clientConfigHelp}
${signing}
Clients reach https://web.HOST, and so may anyone: your program decides who may do what. The VM ends the TLS, and passes
the bytes on to the port. Its operator gets the certificate, and must have opened published ports. The command waits until
it gets the VM's key at that address, and ends with exit code 1 if it does not; it then signs once more, to ask why. It
compares the key alone: whether clients trust the certificate depends on the operator's ACME server.
More: strongroom help instances, "A public address for a port".
${helpText('strongroom publish work 3000', 'strongroom publish work 8080 --name api --egress 1GiB')}`,
    )
    .runs(async (run, target: UserAt, port: number, args: readonly string[], options: PublishOptions) => {
      const expecting = (expectation: InstanceExpectation) => acceptingPort(expectation, { name: options.name, port })
      const instance = await verifiedInstance(run, { target, args, options, expecting })
      if (instance !== null) await publish(run, instance, { port, ...options })
    })
}

export function addUnpublish(program: Command): void {
  addInstanceOptions(
    program
      .command('unpublish')
      .description('end a published port of an instance, its connections and its key')
      .argument('<target>', targetWords, targetArgument)
      .argument('[ssh-arguments...]', argumentsWords)
      .option('--name <name>', 'the label of `strongroom publish`', label, 'web'),
  )
    .addHelpText('after', `${clientConfigHelp}\n${signing}\n${helpText('strongroom unpublish work')}`)
    .runs(async (run, target: UserAt, args: readonly string[], options: PublishOptions) => {
      const instance = await verifiedInstance(run, { target, args, options, expecting: withAnyPorts })
      if (instance !== null) await shown(run, instance, await order(run, instance, { name: options.name, port: null }))
    })
}

/** Ports that a policy does not name, or that are missing, must not keep the owner from changing them. */
function withAnyPorts(expectation: InstanceExpectation): InstanceExpectation {
  return { ...expectation, published: 'any' }
}

/** Accepts other ports too. Fault invalid_request: with this one, other commands would refuse the instance. */
function acceptingPort(expectation: InstanceExpectation, wanted: ExpectedPort): InstanceExpectation {
  const accepted = expectation.published ?? defaultPorts(expectation.egressPolicy)
  if (accepted === 'any' || accepted.some(({ name, port }) => name === wanted.name && port === wanted.port))
    return withAnyPorts(expectation)
  throw new InputFault(`port ${wanted.port}: your policy would then refuse the instance`, {
    remedy: `add ${JSON.stringify(wanted)} to "published" in the file of --policy`,
  })
}

type Ordered = { readonly name: string; readonly port: number; readonly egress?: number; readonly wait: boolean }

type Ways = Pick<Parameters<typeof waited>[1], 'clock'> & {
  readonly send: typeof order
  readonly probe: typeof probePublished
}

/** Publishes a port of a verified instance, and prints the state. `ways`: for tests. */
export async function publish(
  run: Run,
  instance: VerifiedInstance,
  { name, port, egress, wait }: Ordered,
  { send, probe, clock }: Ways = { send: order, probe: probePublished, clock: systemClock },
): Promise<void> {
  const first = await send(run, instance, { name, port, ...(egress === undefined ? {} : { egressBytes: egress }) })
  const found = (published: Published) => published.find(port => port.name === name)
  const end = async (published: Published, isReached: boolean) => {
    await shown(run, instance, published, isReached ? null : name)
    if (!isReached || (found(published)?.problem ?? null) !== null) run.exitWith(EXIT.failed)
  }
  // A problem beside a certificate is one that no wait ends.
  const { isCertified = false, problem = null } = found(first) ?? {}
  if (!wait || (isCertified && problem !== null)) return await end(first, true)
  await run.hint(`${name}: ordered; waiting until clients reach it, up to four minutes (--no-wait does not)`)
  const host = `${name}.${instance.knownHost.hostname}`
  const last = await waited(first, {
    name,
    ask: () => send(run, instance, { name }),
    probe: keySha256 => probe({ host, address: instance.address, keySha256 }),
    clock,
  })
  await end(last.published, last.isReached)
}

async function order(run: Run, instance: VerifiedInstance, body: Static<typeof PublishBody>): Promise<Published> {
  const result = checkValue(PublishedResult, carriedOut(await sendOrder(run, instance, 'publish', body)))
  if (result.ok) return result.value.published
  throw new AdvisedFault('internal', `the answer of the instance is not as expected: ${result.problem}`, {
    remedy: 'use a client of the release of its image',
  })
}

/** `unreached`: a name at whose address a wait has not found the key of the VM. */
async function shown(
  run: Run,
  { knownHost: { hostname } }: VerifiedInstance,
  published: Published,
  unreached: string | null = null,
): Promise<void> {
  const told = published.map(({ problem, ...port }) => {
    const lost = `no answer with this key came from ${port.name}.${hostname}:443; check its DNS, and the way there`
    return { ...port, problem: problem ?? (port.isCertified && port.name === unreached ? lost : null) }
  })
  const lines = told.map(({ name, port, keySha256, isCertified, problem }) => {
    const reason = problem ?? (isCertified ? null : 'it serves no certificate yet')
    const state = reason === null ? '' : `  not reached${isCertified ? '' : ' yet'}: ${oneLine(reason)}\n`
    return `https://${name}.${hostname} → port ${port}, by the key sha256:${keySha256}\n${state}`
  })
  const document = {
    hostname,
    published: told.map(({ name, port, problem, ...more }) => {
      const rest = { key_sha256: more.keySha256, certified: more.isCertified, egress_bytes: more.egressBytes }
      return { name, port, problem, host: `${name}.${hostname}`, ...rest }
    }),
  }
  await run.result(document, lines.length === 0 ? 'no published ports\n' : lines.join(''))
}

function portNumber(text: string): number {
  const port = Number(/^[1-9][0-9]{3,4}$/.test(text) ? text : 0)
  if (checkValue(PublishBody, { name: 'web', port }).ok) return port
  throw new InvalidArgumentError('It must be a port from 1024 to 65535.')
}

function label(text: string): string {
  if (checkValue(PublishedFacts.properties.name, text).ok) return text
  throw new InvalidArgumentError('It must be a lowercase letter, then letters, digits and hyphens, at most 32.')
}
