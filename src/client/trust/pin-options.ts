// The flags that waive a pin, and their wording in the verdict. Pure.

import { InvalidArgumentError, Option } from 'commander'
import { FLOOR_PARTS, type FloorWaivers } from '../../attest/policy/floors.ts'
import type { Check } from '../../attest/verdict.ts'
import type { Command } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import type { InstancePins } from '../../verifier/instance-pins.ts'
import { EVERY_PIN, PIN_WORDS, type Pin, type Pins, pinCheckName, readWaiver } from '../../verifier/pins.ts'

export type PinOptions = {
  anyMeasurement?: boolean
  anyAllowlist?: boolean
  anyOperatorKey?: boolean
  anyGateway?: boolean
  anyVmpl?: boolean
  anyCrl?: boolean
  anyTcb?: boolean
  waiveFloor?: FloorWaivers
}

const HELP: Readonly<Record<Pin, string>> = {
  measurement: 'accept any measurement; without this the --policy must name the expected ones',
  allowlist:
    'accept any allowlist and any operator key; without this --allowlist, or a key or HOST_DATA in the --policy, is required',
  'operator-key': 'accept any operator key; without this the --policy must name the expected one',
  gateway:
    'accept any gateway in a measured VM; without this --gateway-policy must name its measurements and operator key',
  vmpl: 'accept any VMPL; without this the --policy names it, or it must be 0',
  crl: 'accept evidence without a revocation list; a list in the evidence is still checked',
  tcb: "accept firmware below AMD's fixes; without this `verify tcb-floors` is the least that passes",
}

export function addPinOptions(command: Command, pins: readonly Pin[]): Command {
  for (const pin of pins) command.addOption(new Option(flagOf(pin), HELP[pin]))
  if (!pins.includes('tcb')) return command
  return command.addOption(
    new Option(
      '--waive-floor <part=reason>',
      `accept firmware below AMD's fixes in this part, for this reason; repeatable; parts: ${FLOOR_PARTS.join(', ')}`,
    ).argParser(waiverOption),
  )
}

function waiverOption(text: string, before: FloorWaivers = {}): FloorWaivers {
  const waivers = readWaiver(text, before)
  if (typeof waivers === 'string') throw new InvalidArgumentError(`${waivers}.`)
  return waivers
}

export function readPins(options: PinOptions): Pins & InstancePins {
  const said = (isWaived: boolean | undefined) => (isWaived === true ? 'any' : 'required')
  if (options.anyTcb === true && options.waiveFloor !== undefined) {
    throw new InputFault('--any-tcb leaves out every floor, so --waive-floor beside it has no effect', {
      param: 'waive-floor',
      remedy: 'leave one of the two out',
    })
  }
  return {
    measurement: said(options.anyMeasurement),
    allowlist: said(options.anyAllowlist),
    'operator-key': said(options.anyOperatorKey),
    gateway: said(options.anyGateway),
    vmpl: said(options.anyVmpl),
    crl: said(options.anyCrl),
    tcb: options.waiveFloor ?? said(options.anyTcb),
  }
}

/** Replaces 'any' of the library's checks by the flag. */
export function withFlags(checks: readonly Check[]): Check[] {
  return checks.map(check => {
    if (check.outcome !== 'pass' && check.reason.includes(noCrl))
      return { ...check, reason: check.reason.replace(noCrl, crlAdvice) }
    if (check.outcome === 'fail' && check.reason.endsWith(nameConfiguration))
      return { ...check, reason: check.reason.replace(nameConfiguration, configurationAdvice) }
    const pin = EVERY_PIN.find(name => check.name === pinCheckName(name))
    if (pin === undefined || check.outcome === 'pass') return check
    const { accepted, missing } = PIN_WORDS[pin]
    // Accepted by an option with a name of its own.
    if (check.outcome === 'not-checked' && !check.reason.startsWith(`${accepted}:`)) return check
    const reason =
      check.outcome === 'fail'
        ? `${missing}, or accept any with ${flagOf(pin)}`
        : `${accepted}: you asked with ${flagOf(pin)}`
    return { ...check, reason }
  })
}

/** The library's wording, and what to do about it on the command line. */
const noCrl = 'no CRL was given'
const crlAdvice = `${noCrl}; name one with --crl, or accept evidence without one with --any-crl`

const nameConfiguration = "name it, or say 'any'"
const configurationAdvice = 'name it with --configuration, or accept any with --any-configuration'

function flagOf(pin: Pin): string {
  return `--any-${pin}`
}
