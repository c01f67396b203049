// strongroom publish and unpublish: ports of an instance that anyone reaches by TLS, changed by signed orders. Effects:
// the network, files, processes.

import { InvalidArgumentError } from 'commander'
import { systemClock } from '../../base/clock.ts'
import { checkValue } from '../../contract/check.ts'
import { Closed, OrNull } from '../../contract/forms.ts'
import { type Static, Type } from '../../contract/type.ts'
import { PublishBody, publishedMax } from '../../contract/vm/orders/published.ts'
import { PublishedFacts } from '../../contract/vm/orders/published-facts.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import { oneLine } from '../../terminal/render.ts'
import { clientConfigHelp } from '../client-config.ts'
import { targetArgument, type UserAt } from '../instances/target.ts'
import { type VerifiedInstance, verifiedInstance } from '../instances/verified.ts'
import { addInstanceOptions, type InstanceOptions } from '../verify/instance.ts'
import { carriedOut, sendOrder } from './send.ts'

const targetWords = '[USER@]NAME, of `strongroom ls`, or a whole host name'
const argumentsWords = 'after --: options of ssh'
const signing = `The instance is verified first, and a key of yours that it lets in signs the order. Needs OpenSSH 8.5.`
/** The host looks once a minute; then one order at the ACME server may take as long. */
const waitMs = 300_000
const pauseMs = 15_000

type PublishOptions = InstanceOptions & { readonly name: string; readonly wait: boolean }

export function addPublish(program: Command): void {
  const command = program
    .command('publish')
    .description('let anyone reach a port of an instance by TLS, with a key that is made in the VM')
    .argument('<target>', targetWords, targetArgument)
    .argument('<port>', 'where your program listens on 127.0.0.1, 1024 to 65535', portNumber)
    .argument('[ssh-arguments...]', argumentsWords)
    .option('--name <name>', 'the label in front of the host name', label, 'web')
    .option('--no-wait', 'do not wait for the certificate')
  addInstanceOptions(command)
    .addHelpText(
      'after',
      `${clientConfigHelp}
${signing}
Clients reach https://web.HOST, and so may anyone: your program decides who may do what. The VM ends the TLS, and passes
the bytes on to the port. Its operator gets the certificate, and must have opened published ports. The waiting sends the
order again every 15 seconds. More: strongroom help instances, "A public address for a port".
${helpText('strongroom publish work 3000', 'strongroom publish work 8080 --name api')}`,
    )
    .runs((run, target: UserAt, port: number, args: readonly string[], options: PublishOptions) =>
      publish(run, { target, args, options }, { port, ...options }),
    )
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
      const instance = await verifiedInstance(run, { target, args, options })
      if (instance !== null) await shown(run, instance, await order(run, instance, { name: options.name, port: null }))
    })
}

/** `problem`: why the host has no certificate yet; only the host vouches for it. */
const PublishedState = Closed({
  ...PublishedFacts.properties,
  isCertified: Type.Boolean(),
  problem: OrNull(Type.String({ maxLength: 512 })),
})
/** The result of the order: all published ports. */
export const PublishedResult = Closed({ published: Type.Array(PublishedState, { maxItems: publishedMax }) })
type Published = Static<typeof PublishedResult>['published']

async function publish(
  run: Run,
  request: Parameters<typeof verifiedInstance>[1],
  { name, port, wait }: { readonly name: string; readonly port: number; readonly wait: boolean },
): Promise<void> {
  const instance = await verifiedInstance(run, request)
  if (instance === null) return
  const isOpen = (published: Published) =>
    published.some(port => port.name === name && !port.isCertified && !port.problem)
  const untilMs = systemClock.monotonicMs() + (wait ? waitMs : 0)
  let published = await order(run, instance, { name, port })
  while (isOpen(published) && systemClock.monotonicMs() < untilMs) {
    await systemClock.sleep(pauseMs)
    published = await order(run, instance, { name, port })
  }
  await shown(run, instance, published)
  if (wait && isOpen(published)) {
    await run.hint(`${name}: no certificate yet, and no word of the operator's host; repeat the command later`)
  }
}

async function order(run: Run, instance: VerifiedInstance, body: Static<typeof PublishBody>): Promise<Published> {
  const result = checkValue(PublishedResult, carriedOut(await sendOrder(run, instance, 'publish', body)))
  if (result.ok) return result.value.published
  throw new AdvisedFault('internal', `the answer of the instance is not as expected: ${result.problem}`, {
    remedy: 'use a client of the release of its image',
  })
}

async function shown(run: Run, { knownHost: { hostname } }: VerifiedInstance, published: Published): Promise<void> {
  const lines = published.map(({ name, port, keySha256, isCertified, problem }) => {
    const state = isCertified ? '' : `  not reached yet: ${oneLine(problem ?? 'the host has no certificate yet')}\n`
    return `https://${name}.${hostname} → port ${port}, by the key sha256:${keySha256}\n${state}`
  })
  const document = {
    hostname,
    published: published.map(({ keySha256, isCertified, ...port }) => {
      return { ...port, host: `${port.name}.${hostname}`, key_sha256: keySha256, certified: isCertified }
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
