// strongroom idle, keep and snapshot --every: when an unused instance ends, and when snapshots are taken, by signed
// orders. Effects: the network, files, processes.

import { InvalidArgumentError } from 'commander'
import { checkValue, OneOf } from '../../contract/check.ts'
import { Closed, OrNull } from '../../contract/forms.ts'
import { Type } from '../../contract/type.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import { clientConfigHelp } from '../client-config.ts'
import { targetArgument, type UserAt } from '../instances/target.ts'
import { verifiedInstance } from '../instances/verified.ts'
import { addInstanceOptions, type InstanceOptions } from '../verify/instance.ts'
import { carriedOut, sendOrder } from './send.ts'

const targetWords = '[USER@]NAME, of `strongroom ls`, or a whole host name'
const argumentsWords = 'after --: options of ssh'
const signing = `The instance is verified first, and a key of yours that it lets in signs the order. Needs OpenSSH 8.5.`
const limits = `The VM counts, inside. Its host takes a snapshot, unless the operator has switched that off, and ends the instance in
the ordinary way, with terminated_reason "idle"; what no snapshot has is lost. No evidence proves that the host does: it may
end an instance earlier, or never.`

export function addIdle(program: Command): void {
  addInstanceOptions(
    program
      .command('idle')
      .description('end an instance after a time without use: no SSH session, no login, no request to the gateway')
      .argument('<target>', targetWords, targetArgument)
      .argument(
        '<time>',
        'like 90m, 2h or 7d, at most 365d; `off` for no end, whatever the operator has set',
        timeOrOff,
      )
      .argument('[ssh-arguments...]', argumentsWords),
  )
    .addHelpText(
      'after',
      `${clientConfigHelp}
${signing}
${limits}
What runs without a session counts as no use, a build in tmux for example: \`strongroom keep\` postpones the end for it.
${helpText('strongroom idle work 2h', 'strongroom idle work off')}`,
    )
    .runs((run, target: UserAt, minutes: number | null, args: readonly string[], options: InstanceOptions) =>
      orderTimes(run, { target, args, options }, 'idle', { minutes }),
    )
}

export function addKeep(program: Command): void {
  addInstanceOptions(
    program
      .command('keep')
      .description('prevent the idle end of an instance for a time from now; a second keep replaces the first')
      .argument('<target>', targetWords, targetArgument)
      .argument('[time]', 'like 90m, 2h or 7d, at most 30d; default 2h', keepTime, keepMinutesDefault)
      .argument('[ssh-arguments...]', argumentsWords),
  )
    .addHelpText(
      'after',
      `${clientConfigHelp}\n${signing}\n${helpText('strongroom keep work', 'strongroom keep work 8h')}`,
    )
    .runs((run, target: UserAt, minutes: number, args: readonly string[], options: InstanceOptions) =>
      orderTimes(run, { target, args, options }, 'keep', { minutes }),
    )
}

const keepMinutesDefault = 120
const everyMinutesMin = 15
const MINUTES = { m: 1, h: 60, d: 1_440 } as const

function minutesIn(text: string, daysMax: number): number {
  const [, count = '', unit = ''] = /^([1-9][0-9]{0,5})([mhd])$/.exec(text) ?? []
  const minutes = Number(count) * (MINUTES[unit as keyof typeof MINUTES] ?? 0)
  if (minutes >= 1 && minutes <= daysMax * MINUTES.d) return minutes
  throw new InvalidArgumentError(`It must be a time like 90m, 2h or 7d, at most ${daysMax}d.`)
}

function timeOrOff(text: string): number | null {
  return text === 'off' ? null : minutesIn(text, 365)
}

/** Reads the value of --every, in minutes; commander takes no null. Throws commander's InvalidArgumentError. */
export function everyTime(text: string): number | 'off' {
  const minutes = text === 'off' ? 'off' : minutesIn(text, 30)
  if (minutes === 'off' || minutes >= everyMinutesMin) return minutes
  throw new InvalidArgumentError(`It must be at least ${everyMinutesMin}m.`)
}

function keepTime(text: string): number {
  return minutesIn(text, 30)
}

const IdleResult = Closed({
  /** Minutes as text, or `off`; null if no order has set it. */
  idle: OrNull(Type.Union([Type.String({ pattern: '^[0-9]{1,6}$' }), OneOf(['off'])])),
  kept_minutes: Type.Integer({ minimum: 0 }),
  /** Minutes; left out without a schedule. */
  snapshot_every: Type.Optional(Type.Integer({ minimum: 1 })),
})

/** Sends an order about the times of an instance, and prints all of them. */
export async function orderTimes(
  run: Run,
  request: Parameters<typeof verifiedInstance>[1],
  kind: 'idle' | 'keep' | 'snapshot_every',
  body: object,
): Promise<void> {
  const instance = await verifiedInstance(run, request)
  if (instance === null) return
  const result = checkValue(IdleResult, carriedOut(await sendOrder(run, instance, kind, body)))
  if (!result.ok) {
    throw new AdvisedFault('internal', `the answer of the instance is not as expected: ${result.problem}`, {
      remedy: 'use a client of the release of its image',
    })
  }
  const { idle, kept_minutes, snapshot_every: every = null } = result.value
  const ends = { null: "by the operator's setting", off: 'never by itself' }[String(idle)]
  const kept = kept_minutes === 0 ? '' : `, not within ${minutesText(kept_minutes)}`
  const end = `idle end: ${ends ?? `after ${minutesText(Number(idle))} without use`}${kept}\n`
  const off = kind === 'snapshot_every' ? 'snapshots: by command alone\n' : ''
  const schedule = every === null ? off : `snapshots: every ${minutesText(every)}, if files have changed\n`
  const document = { hostname: instance.knownHost.hostname, idle, kept_minutes, snapshot_every: every }
  await run.result(document, `${end}${schedule}`)
}

function minutesText(count: number): string {
  return count === 1 ? '1 minute' : `${count} minutes`
}
