// strongroom secret: secrets that programs of an instance use and cannot read, changed by signed orders. Effects: the
// network, files, processes.

import { InvalidArgumentError } from 'commander'
import { checkValue, matches } from '../../contract/check.ts'
import { Closed } from '../../contract/forms.ts'
import { Type } from '../../contract/type.ts'
import { Secret, secretProblem, secretsMax } from '../../contract/vm/orders/secret.ts'
import { SecretFacts } from '../../contract/vm/orders/secret-facts.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { readTextInput } from '../../terminal/input-file.ts'
import { isTerminal } from '../../terminal/standard-stream.ts'
import { secretText } from '../../verifier/ordered/secrets.ts'
import { clientConfigHelp } from '../client-config.ts'
import { targetArgument, type UserAt } from '../instances/target.ts'
import { type VerifiedInstance, verifiedInstance } from '../instances/verified.ts'
import { addInstanceOptions, type InstanceOptions } from '../verify/instance.ts'
import { secretsOf } from '../verify/secret-facts.ts'
import { carriedOut, sendOrder } from './send.ts'

const targetWords = '[USER@]NAME, of `strongroom ls`, or a whole host name'
const argumentsWords = 'after --: options of ssh'
const nameWords = 'the variable of sessions that holds a placeholder, such as GITHUB_TOKEN'

type PutOptions = InstanceOptions & {
  readonly host: HostOption
  readonly header: string
  readonly format: string
  readonly method?: string
  readonly path?: string
}

export function addSecret(program: Command): void {
  const secret = program
    .command('secret')
    .description('secrets that programs of an instance use and cannot read: put, ls, rm')
  addInstanceOptions(
    secret
      .command('put')
      .description('read a secret from standard input; the VM inserts it into requests to one host')
      .argument('<target>', targetWords, targetArgument)
      .argument(
        '<name>',
        nameWords,
        field('name', 'It must be the name of a variable in capitals, such as GITHUB_TOKEN.'),
      )
      .argument('[ssh-arguments...]', argumentsWords)
      .requiredOption(
        '--host <name>',
        'the only host that gets it, over TLS; NAME:PORT for a port other than 443',
        hostOption,
      )
      .option(
        '--header <name>',
        'the field of requests that has it',
        field('header', 'It must be the name of a header field.'),
        'Authorization',
      )
      .option(
        '--format <text>',
        'the value of the field; {} stands for the secret, {basic:USER} for user and secret in base64',
        'Bearer {}',
      )
      .option(
        '--method <method>',
        'only requests with this method',
        field('method', 'It must be a method, such as GET.'),
      )
      .option(
        '--path <path>',
        'only requests at or below this path',
        field('path', 'It must be a path that begins with /, without query.'),
      ),
  )
    .addHelpText(
      'after',
      `${clientConfigHelp}
The instance is verified first. The order is signed with a key of yours that the instance lets in, and sealed to a key
that its evidence names: neither the host nor programs in the instance can read the secret, or put another one.
New sessions have a placeholder in the variable, and trust the certificate with which the VM answers for the host. The
VM sets the field in every request that matches, whatever the program sent in it, over HTTP/1.1. It masks the secret in
responses in its usual forms; a server that shows it in another one, or acts for it, is beyond that.
A policy of egress gets the host too; without a policy nothing is restricted. A second \`put\` of a name replaces the first.
${helpText(
  'strongroom secret put work GITHUB_TOKEN --host api.github.com <token.txt',
  "strongroom secret put work GIT_TOKEN --host github.com --format 'Basic {basic:x-access-token}' --path /acme/ <token.txt",
  "strongroom secret put work API_KEY --host api.example.com --header X-Api-Key --format '{}' --method GET <key.txt",
)}`,
    )
    .runs(put)
  addInstanceOptions(
    secret
      .command('ls')
      .description('list the secrets, without values, as the verified instance states them')
      .argument('<target>', targetWords, targetArgument),
  )
    .addHelpText('after', `${clientConfigHelp}${helpText('strongroom secret ls work')}`)
    .runs(list)
  addInstanceOptions(
    secret
      .command('rm')
      .description('remove a secret from an instance; what a server did with it stays done')
      .argument('<target>', targetWords, targetArgument)
      .argument('<name>', nameWords, field('name', 'It must be a name of `strongroom secret ls`.'))
      .argument('[ssh-arguments...]', argumentsWords),
  )
    .addHelpText('after', `${clientConfigHelp}${helpText('strongroom secret rm work GITHUB_TOKEN')}`)
    .runs(remove)
}

type HostOption = { readonly host: string; readonly port: number }

function hostOption(text: string): HostOption {
  const [, host, port = '443'] = /^([^:]*)(?::([1-9][0-9]{0,4}))?$/.exec(text) ?? []
  const { properties } = Secret
  if (matches(properties.host, host) && matches(properties.port, Number(port))) return { host, port: Number(port) }
  throw new InvalidArgumentError('It must be a DNS name in lower case, such as api.github.com or api.example.com:8443.')
}

/** Reads one field of a secret. The message is that of commander's InvalidArgumentError. */
function field(name: 'name' | 'header' | 'method' | 'path', message: string) {
  return (text: string): string => {
    if (matches(Secret.properties[name], text)) return text
    throw new InvalidArgumentError(message)
  }
}

const valueBytesMax = 4_100

async function put(
  run: Run,
  target: UserAt,
  name: string,
  args: readonly string[],
  options: PutOptions,
): Promise<void> {
  const { host: at, header, format, method, path } = options
  if (await isTerminal(0)) await run.hint('Type the secret, which the terminal shows, then Enter and Ctrl-D.')
  const value = readTextInput({ path: '-', param: 'stdin', bytesMax: valueBytesMax }).replace(/\r?\n$/, '')
  const optional = { ...(method === undefined ? {} : { method }), ...(path === undefined ? {} : { path }) }
  const secret: Secret = { name, ...at, header, format, value, ...optional }
  // The value is in no message.
  if (!matches(Secret.properties.value, value)) {
    throw new InputFault('standard input has no secret of 8 to 4,096 visible ASCII characters in one line', {
      param: 'stdin',
      remedy: 'pipe the secret alone, such as: strongroom secret put … <token.txt',
    })
  }
  if (!matches(Secret.properties.format, format))
    throw badField('format', 'not 2 to 256 ASCII characters; write it like: Bearer {}')
  const problem = secretProblem(secret, [])
  if (problem !== null) throw badField(...split(problem))
  await change(run, { target, args, options }, { kind: 'secret_put', body: secret })
}

/** `problem`: of `secretProblem`, which begins with the field. */
function split(problem: string): [string, string] {
  const at = problem.indexOf(': ')
  return [problem.slice(0, at), problem.slice(at + 2)]
}

function badField(name: string, problem: string): InputFault {
  const [reason = '', remedy = ''] = problem.split('; ')
  return new InputFault(`${name === 'name' ? name : `--${name}`}: ${reason}`, { param: name, remedy })
}

async function remove(
  run: Run,
  target: UserAt,
  name: string,
  args: readonly string[],
  options: InstanceOptions,
): Promise<void> {
  await change(run, { target, args, options }, { kind: 'secret_remove', body: { name } })
}

async function list(run: Run, target: UserAt, options: InstanceOptions): Promise<void> {
  const instance = await verifiedInstance(run, { target, args: [], options })
  if (instance !== null) await shown(run, instance, secretsOf(instance.judged.found))
}

const SecretsResult = Closed({ secrets: Type.Array(SecretFacts, { maxItems: secretsMax }) })

type Change = { readonly kind: 'secret_put' | 'secret_remove'; readonly body: object }

async function change(
  run: Run,
  request: Parameters<typeof verifiedInstance>[1],
  { kind, body }: Change,
): Promise<void> {
  const instance = await verifiedInstance(run, request)
  if (instance === null) return
  const result = checkValue(SecretsResult, carriedOut(await sendOrder(run, instance, kind, body)))
  if (!result.ok) {
    throw new AdvisedFault('internal', `the answer of the instance is not as expected: ${result.problem}`, {
      remedy: 'look at `strongroom secret ls`; use a client of the release of its image',
    })
  }
  await shown(run, instance, result.value.secrets)
}

async function shown(run: Run, { knownHost }: VerifiedInstance, secrets: readonly SecretFacts[]): Promise<void> {
  const lines = secrets.map(secret => `${secretText(secret)}\n`)
  await run.result({ hostname: knownHost.hostname, secrets }, lines.length === 0 ? 'no secrets\n' : lines.join(''))
}
