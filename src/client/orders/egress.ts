// strongroom egress: what the programs of an instance may reach, changed by signed orders. Effects: the network, files,
// processes.

import { Option } from 'commander'
import { checkValue } from '../../contract/check.ts'
import { Closed, OrNull } from '../../contract/forms.ts'
import { type EgressPolicy, type EgressRule, egressPolicyText } from '../../contract/http/egress-policy.ts'
import { type Static, Type } from '../../contract/type.ts'
import { egressHostCharsMax, egressReasonCharsMax } from '../../contract/vm/orders/egress-log.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { table, timeText } from '../../terminal/render.ts'
import { reachWords, statedReach } from '../../verifier/ordered/reach.ts'
import { clientConfigHelp } from '../client-config.ts'
import { targetArgument, type UserAt } from '../instances/target.ts'
import { type VerifiedInstance, verifiedInstance } from '../instances/verified.ts'
import { policyOf, reachOption } from '../trust/reach-options.ts'
import { addInstanceOptions, type InstanceOptions } from '../verify/instance.ts'
import { carriedOut, sendOrder } from './send.ts'

type SetOptions = InstanceOptions & { reach?: readonly EgressRule[]; default: EgressPolicy['default'] }

const targetWords = '[USER@]NAME, of `strongroom ls`, or a whole host name'
const argumentsWords = 'after --: options of ssh'
const signing = 'The instance is verified first, and a key of yours that it lets in signs the order. Needs OpenSSH 8.5.'

export function addEgress(program: Command): void {
  const egress = program.command('egress').description('what the programs of an instance may reach: set, show, log')
  addSet(egress)
  addInstanceOptions(
    egress
      .command('show')
      .description('show what programs may reach, as the verified instance states it')
      .argument('<target>', targetWords, targetArgument),
  )
    .addHelpText(
      'after',
      `${clientConfigHelp}${helpText('strongroom egress show work', 'strongroom egress show work --json')}`,
    )
    .runs(show)
  addInstanceOptions(
    egress
      .command('log')
      .description('list the destinations that programs reached for, allowed and refused, the newest last')
      .argument('<target>', targetWords, targetArgument)
      .argument('[ssh-arguments...]', argumentsWords),
  )
    .addHelpText('after', `${clientConfigHelp}\n${signing}\n${helpText('strongroom egress log work')}`)
    .runs(log)
}

function addSet(egress: Command): void {
  addInstanceOptions(
    egress
      .command('set')
      .description('let programs reach these destinations and no others; the VM enforces it from the answer on')
      .argument('<target>', targetWords, targetArgument)
      .argument('[ssh-arguments...]', argumentsWords)
      .option(
        '--reach <host[:port]>',
        'a destination: a DNS name, or *.NAME for all below it; port 443 unless given; repeatable',
        reachOption,
      )
      .addOption(
        new Option('--default <what>', 'refuse all other destinations, or allow them, which removes the restriction')
          .choices(['refuse', 'allow'])
          .default('refuse'),
      ),
  )
    .addHelpText(
      'after',
      `${clientConfigHelp}
${signing}
Each \`set\` replaces the policy; hosts of secrets stay. Programs resolve listed names alone, and connect to them over
TCP; the server name of TLS and the Host of plain HTTP must be the listed name. A server with several names, such as a
CDN, may serve another one that TLS hides: list hosts whose whole server you accept. The inference gateway and your SSH
sessions stay. The host's own limits apply besides. From the first policy or secret on, programs can make no network
namespaces until the instance ends, also after \`--default allow\`; those that exist stay.
${helpText(
  'strongroom egress set work --reach github.com --reach github.com:22 --reach "*.githubusercontent.com"',
  'strongroom egress set work --default allow',
)}`,
    )
    .runs(set)
}

const SetResult = Closed({ policy: OrNull(Type.String({ maxLength: 20_480 })) })

async function set(run: Run, target: UserAt, args: readonly string[], options: SetOptions): Promise<void> {
  const { reach = [], default: otherwise, ...others } = options
  if (reach.length > 0 && otherwise === 'allow') {
    throw new InputFault('--default allow lists no destinations: everything may be reached', {
      param: 'reach',
      remedy: 'leave out --reach, or --default',
    })
  }
  const policy = policyOf(otherwise, reach)
  const instance = await verifiedInstance(run, { target, args, options: others })
  if (instance === null) return
  const result = checkValue(SetResult, carriedOut(await sendOrder(run, instance, 'egress_policy', policy)))
  const wanted = otherwise === 'allow' ? null : egressPolicyText(policy)
  if (!result.ok || result.value.policy !== wanted) throw strange(result.ok ? 'another policy' : result.problem)
  await shown(run, instance, otherwise === 'allow' ? null : policy)
}

async function show(run: Run, target: UserAt, options: InstanceOptions): Promise<void> {
  const instance = await verifiedInstance(run, { target, args: [], options })
  if (instance === null) return
  const statement = instance.judged.found.receipt?.statement
  await shown(run, instance, statement == null ? null : statedReach(statement))
}

/** Prints the policy; its JSON is a file for --egress-policy. */
async function shown(run: Run, { knownHost }: VerifiedInstance, policy: EgressPolicy | null): Promise<void> {
  const document = policy ?? { default: 'allow', allow: [] }
  await run.result(document, `${knownHost.hostname}: programs reach ${reachWords(policy)}\n`)
}

const LogResult = Closed({
  rows: Type.Array(
    Closed({
      atMs: Type.Number(),
      verdict: Type.String({ maxLength: 16 }),
      host: Type.String({ maxLength: egressHostCharsMax }),
      port: Type.Integer(),
      reason: OrNull(Type.String({ maxLength: egressReasonCharsMax })),
      count: Type.Integer(),
    }),
    { maxItems: 2_000 },
  ),
})

async function log(run: Run, target: UserAt, args: readonly string[], options: InstanceOptions): Promise<void> {
  const instance = await verifiedInstance(run, { target, args, options })
  if (instance === null) return
  const result = checkValue(LogResult, carriedOut(await sendOrder(run, instance, 'egress_log', {})))
  if (!result.ok) throw strange(result.problem)
  await run.result(result.value, () => logText(run, result.value.rows))
}

function logText(run: Run, rows: Static<typeof LogResult>['rows']): string {
  const lines = rows.map(({ atMs, verdict, host, port, reason, count }) => [
    timeText(new Date(atMs).toISOString()),
    verdict,
    port === 0 ? `${host} (looked up)` : `${host}:${port}`,
    String(count),
    reason ?? '',
  ])
  return table(run.paint, ['last', 'verdict', 'destination', 'times', 'why'], lines)
}

function strange(problem: string): AdvisedFault {
  return new AdvisedFault('internal', `the answer of the instance is not as expected: ${problem}`, {
    remedy: 'look at `strongroom egress show`; use a client of the release of its image',
  })
}
