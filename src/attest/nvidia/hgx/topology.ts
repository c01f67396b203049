// Whether GPUs and switches are the whole of one machine: each GPU names exactly these switches, and each switch
// exactly these GPUs. Pure.
//
// NVIDIA's verifier does not compare the GPUs' side with certificates. This one does: a GPU of another machine could
// name these switches, if something between answers for them, but these switches would not name it.

import type { Parsed } from '../../malformed.ts'
import { type Check, check, fail, notChecked, pass } from '../../verdict.ts'
import type { Topology } from './policy.ts'
import { pdiOfSerial } from './switch.ts'

export type Topologies = {
  /** A fact is null if the device's report or chain is not good. */
  readonly gpus: readonly { readonly deviceSerial: string | null; readonly switches: Parsed<ReadonlySet<string>> }[]
  readonly switches: readonly ({ readonly pdi: string; readonly gpuPdis: ReadonlySet<string> } | null)[]
  readonly expected: Topology | 'any'
}

const [countName, distinctName] = ['gpu-policy-topology', 'gpu-switch-distinct'] as const
const [switchesName, gpusName] = ['gpu-topology-switches', 'gpu-topology-gpus'] as const

export function topologyChecks(machine: Topologies): readonly Check[] {
  const { gpus, switches, expected } = machine
  const none = `${gpus.length} GPUs; nothing shows that they are of one machine`
  const counted = switches.length === 0 ? none : `${gpus.length} GPUs and ${switches.length} switches`
  const count =
    expected === 'any'
      ? notChecked(countName, `${counted}; the policy has 'any'`, false)
      : check(
          countName,
          expected.gpus === gpus.length && expected.switches === switches.length,
          `${gpus.length} GPUs and ${switches.length} switches; the policy has ${expected.gpus} and ${expected.switches}`,
          counted,
        )
  if (switches.length === 0) return [count, ...withoutSwitches(machine)]
  const pdis = switches.flatMap(known => (known === null ? [] : [known.pdi]))
  const distinct = check(distinctName, new Set(pdis).size === pdis.length, 'one switch stands in it twice')
  const serials = gpus.flatMap(({ deviceSerial }) => (deviceSerial === null ? [] : [deviceSerial]))
  if (pdis.length < switches.length || serials.length < gpus.length) {
    const open = [switchesName, gpusName].map(name => notChecked(name, 'a report or chain is not good', true))
    return [count, distinct, ...open]
  }
  return [count, distinct, switchesCheck(machine, new Set(pdis)), gpusCheck(machine, serials)]
}

/** Without switches, a GPU that names one has left its machine behind: that fails if the policy has 0 switches. */
function withoutSwitches({ gpus, expected }: Topologies): readonly Check[] {
  if (expected !== 'any' && expected.switches > 0) {
    return [notChecked(switchesName, "give the switches' reports with --switches", true)]
  }
  const at = gpus.findIndex(({ switches }) => !switches.ok || switches.value.size > 0)
  const found = gpus[at]?.switches
  if (found === undefined) return expected === 'any' ? [] : [pass(switchesName, 'no GPU names a switch')]
  const reason = found.ok ? `gpu-${at} names ${listed(found.value)}, without a report of it` : found.reason
  return [expected === 'any' ? notChecked(switchesName, reason, false) : fail(switchesName, reason)]
}

function switchesCheck({ gpus }: Topologies, pdis: ReadonlySet<string>): Check {
  for (const [at, { switches }] of gpus.entries()) {
    const fault = switches.ok ? faultOf(switches.value, pdis) : switches.reason
    if (fault !== null) return fail(switchesName, `gpu-${at}: ${fault}`)
  }
  return pass(switchesName, `each GPU names these ${pdis.size} switches`)
}

function gpusCheck({ switches }: Topologies, serials: readonly string[]): Check {
  const pdis = serials.map(pdiOfSerial)
  const known = new Set(pdis.filter(pdi => pdi !== null))
  const odd = serials[pdis.indexOf(null)]
  if (odd !== undefined) return fail(gpusName, `the serial number ${odd} contains no PDI`)
  if (known.size < serials.length) return fail(gpusName, 'two GPUs have the same PDI')
  for (const [at, device] of switches.entries()) {
    const fault = faultOf(device?.gpuPdis ?? new Set(), known)
    if (fault !== null) return fail(gpusName, `switch-${at}: ${fault}`)
  }
  return pass(gpusName, `each switch names these ${known.size} GPUs`)
}

/** Returns how what a device names differs from what is there; null if both are the same. */
function faultOf(named: ReadonlySet<string>, there: ReadonlySet<string>): string | null {
  const foreign = new Set([...there].filter(pdi => !named.has(pdi)))
  if (foreign.size > 0) return `it does not name ${listed(foreign)}, whose report is here`
  const missing = new Set([...named].filter(pdi => !there.has(pdi)))
  return missing.size > 0 ? `it names ${listed(missing)}, without a report here` : null
}

const namedMax = 8

function listed(pdis: ReadonlySet<string>): string {
  const more = pdis.size > namedMax ? ` and ${pdis.size - namedMax} more` : ''
  return `${[...pdis].slice(0, namedMax).join(', ')}${more}`
}
