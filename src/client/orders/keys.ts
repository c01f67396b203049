// strongroom keys: the SSH keys that an instance lets in, changed by signed orders. Effects: the network, files,
// processes.

import { parsed } from '../../attest/malformed.ts'
import { checkValue } from '../../contract/check.ts'
import { Closed } from '../../contract/forms.ts'
import { Type } from '../../contract/type.ts'
import { KeyFingerprint, loginKeysMax } from '../../contract/vm/orders/order.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { KIB, readTextInput } from '../../terminal/input-file.ts'
import { readSshKey } from '../../verifier/ssh-key.ts'
import { clientConfigHelp } from '../client-config.ts'
import { targetArgument, type UserAt } from '../instances/target.ts'
import { type VerifiedInstance, verifiedInstance } from '../instances/verified.ts'
import { addInstanceOptions, type InstanceOptions } from '../verify/instance.ts'
import { carriedOut, sendOrder } from './send.ts'

const targetWords = '[USER@]NAME, of `strongroom ls`, or a whole host name'
const argumentsWords = 'after --: options of ssh'

export function addKeys(program: Command): void {
  const keys = program.command('keys').description('the SSH keys that an instance lets in: add, ls, rm')
  const examples = (...lines: readonly string[]) => `${clientConfigHelp}
The instance is verified first. A key of yours that it lets in signs the change, with ssh-keygen or ssh-agent: programs
in the instance cannot change its keys. Sessions that are open stay open. Needs OpenSSH 8.5.
${helpText(...lines)}`
  addInstanceOptions(
    keys
      .command('ls')
      .description('list the fingerprints of all keys that log in, as the verified instance states them')
      .argument('<target>', targetWords, targetArgument),
  )
    .addHelpText('after', `${clientConfigHelp}${helpText('strongroom keys ls work')}`)
    .runs(list)
  addInstanceOptions(
    keys
      .command('add')
      .description('let in one more key; it may also change the keys, and all that orders change')
      .argument('<target>', targetWords, targetArgument)
      .argument('<file>', 'the public key as OpenSSH writes it')
      .argument('[ssh-arguments...]', argumentsWords),
  )
    .addHelpText('after', examples('strongroom keys add work laptop.pub'))
    .runs(add)
  addInstanceOptions(
    keys
      .command('rm')
      .description('no longer let in a key, for new logins; the last one stays')
      .argument('<target>', targetWords, targetArgument)
      .argument('<fingerprint>', 'SHA256:…, as `strongroom keys ls` prints it')
      .argument('[ssh-arguments...]', argumentsWords),
  )
    .addHelpText('after', examples('strongroom keys rm work SHA256:JQ6FV0rf7qqJHZqIj4zNH8eV0oB8KLKh9Pph3FTD98g'))
    .runs(remove)
}

async function list(run: Run, target: UserAt, options: InstanceOptions): Promise<void> {
  const instance = await verifiedInstance(run, { target, args: [], options })
  if (instance !== null) await shown(run, instance, statedKeys(instance))
}

async function add(
  run: Run,
  target: UserAt,
  file: string,
  args: readonly string[],
  options: InstanceOptions,
): Promise<void> {
  const line = readTextInput({ path: file, param: 'file', bytesMax: 16 * KIB }).trim()
  const key = parsed(() => readSshKey(line))
  if (!key.ok) {
    throw new InputFault(`${file}: ${key.reason}`, { param: 'file', remedy: 'name the file that ends with .pub' })
  }
  await change(run, { target, args, options }, { add: line })
}

async function remove(
  run: Run,
  target: UserAt,
  fingerprint: string,
  args: readonly string[],
  options: InstanceOptions,
): Promise<void> {
  if (!checkValue(KeyFingerprint, fingerprint).ok) {
    throw new InputFault(`${JSON.stringify(fingerprint)} is no fingerprint`, {
      param: 'fingerprint',
      remedy: 'take one of `strongroom keys ls`',
    })
  }
  await change(run, { target, args, options }, { remove: fingerprint })
}

const KeysResult = Closed({ keys: Type.Array(KeyFingerprint, { maxItems: loginKeysMax }) })

async function change(run: Run, request: Parameters<typeof verifiedInstance>[1], body: object): Promise<void> {
  const instance = await verifiedInstance(run, request)
  if (instance === null) return
  const result = checkValue(KeysResult, carriedOut(await sendOrder(run, instance, 'keys', body)))
  if (!result.ok) {
    throw new AdvisedFault('internal', `the answer of the instance is not as expected: ${result.problem}`, {
      remedy: 'look at `strongroom keys ls`; use a client of the release of its image',
    })
  }
  await shown(run, instance, result.value.keys)
}

function statedKeys({ judged: { found } }: VerifiedInstance): readonly string[] {
  const claimed = found.claim === null ? [] : [readSshKey(found.claim.claim.publicKey).fingerprint]
  return found.receipt?.statement?.loginKeys ?? claimed
}

async function shown(run: Run, { judged, knownHost }: VerifiedInstance, keys: readonly string[]): Promise<void> {
  const own = judged.ownKey === null ? null : readSshKey(judged.ownKey.line).fingerprint
  const text = keys.map(key => (key === own ? `${key}  yours, ${judged.ownKey?.source}\n` : `${key}\n`)).join('')
  await run.result({ hostname: knownHost.hostname, keys, own_key: own }, text)
}
