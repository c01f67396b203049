// The verdict on an instance in plain words, and commands to try after FAIL. Pure.

import { parsed } from '../../attest/malformed.ts'
import { isAllowed, readOutside } from '../../attest/receipt/outside.ts'
import type { Check } from '../../attest/verdict.ts'
import type { EgressPolicy } from '../../contract/http/egress-policy.ts'
import { EXPOSURE_WORDS } from '../../contract/vm/exposure.ts'
import type { AttestedGateway, UnattestedReason } from '../../contract/vm/inference-gateway.ts'
import { bytesText } from '../../terminal/render.ts'
import { type ExpectedGateway, hostKeyName } from '../../verifier/claim.ts'
import type { InstanceVerdict } from '../../verifier/instance.ts'
import { reachWords, statedReach } from '../../verifier/ordered/reach.ts'
import { pinCheckName } from '../../verifier/pins.ts'
import { hostAddress, hostName, listed } from '../verdict/host-text.ts'
import { type Added, hasOption, type NextCommands } from '../verdict/next-commands.ts'
import type { Fact, Plain } from '../verdict/plain.ts'
import { hardwareFacts, launchFacts, readerFacts, shortText } from '../verdict/receipt-facts.ts'
import { isAnotherLaunch, isFailed, lackingOptions, policyCommand } from './pin-commands.ts'
import { publishedFacts } from './published-facts.ts'
import { secretFacts } from './secret-facts.ts'

export type InstanceWords = {
  readonly found: InstanceVerdict
  /** Checks as shown, in the terms of the command line. */
  readonly checks: readonly Check[]
  readonly argv: readonly string[]
  readonly hostname: string
  /** Files and options that name the expected measurement. */
  readonly sources: readonly string[]
  /** The gateway as named by options and client.toml. */
  readonly gateway: ExpectedGateway
  readonly stored: StoredImages
}

/** Paths of manifests that were expected earlier, and fit what runs; null each for none. */
export type StoredImages = { readonly image: string | null; readonly gatewayImage: string | null }

export function instanceWords(words: InstanceWords): Plain {
  const { found, checks, hostname, sources } = words
  const { receipt, simulated } = found
  const facts = {
    report: receipt?.report ?? null,
    image: receipt?.statement?.image.name ?? null,
    operatorKey: receipt?.statement?.operatorKey ?? null,
    checks: [...checks, ...(receipt?.checks ?? [])],
    simulated,
    isOwnImage: true,
    sources,
  }
  return {
    act: `log in to ${hostname}`,
    facts: [
      ...loginFacts(found, checks),
      ...launchFacts(facts),
      ...readerFacts(facts, settingLines(found)),
      ...promptFacts(found),
      ...reachFacts(found),
      ...secretFacts(found),
      ...publishedFacts(found),
      ...hardwareFacts(facts),
    ],
    unproved: limitsOf(found),
    next: nextOf(words),
  }
}

function loginFacts({ hostKey, receipt }: InstanceVerdict, checks: readonly Check[]): Fact[] {
  const own = checks.find(({ name, outcome }) => name === 'own-key' && outcome === 'pass')
  return [
    ...(hostKey === null
      ? []
      : [['you may', `its SSH host key ${hostKey.fingerprint} was made inside the VM`] as const]),
    ...(own === undefined ? [] : keyFacts(own.reason, receipt?.statement?.loginKeys ?? null)),
  ]
}

/** `own`: the fingerprint of the caller's key first. */
function keyFacts(own: string, loginKeys: readonly string[] | null): Fact[] {
  const more = (loginKeys ?? []).filter(key => key !== own.split(',')[0])
  if (more.length === 0) return [['you may', `it lets in your SSH key alone: ${own}`]]
  const others = listed(more, 'other SSH keys').map(key => `it lets in ${key} too, by a signed order`)
  return [`it lets in your SSH key: ${own}`, ...others].map(text => ['you may', text] as const)
}

const UNATTESTED = {
  host: 'the process of a host',
  'no-worker': 'a gateway without a model of its own, which has no evidence',
  elsewhere: 'a gateway that the operator names',
} as const satisfies Record<UnattestedReason, string>

function promptFacts({ claim }: InstanceVerdict): Fact[] {
  if (claim === null) return []
  const { baseUrl, model, gateway } = claim.claim.inference
  return promptLines().map(text => ['prompts', text] as const)

  function promptLines(): string[] {
    if (gateway.kind === 'none') return ['none: the instance has no gateway']
    const where = `${hostAddress(baseUrl)}, model ${hostName(model)}`
    if (gateway.kind === 'unattested')
      return [`OUTSIDE, to ${UNATTESTED[gateway.why]}, whose operator can read them: ${where}`]
    const { outside } = gateway
    const upstreams = outside.map(entry => `OUTSIDE: the gateway may send them on to ${hostAddress(entry)}`)
    const inside = `${where}, in the measured VM ${measurementsText(gateway)}`
    return [
      ...listed(upstreams, 'upstreams OUTSIDE'),
      outside.length === 0 ? `only inside: to ${inside}` : `first to ${inside}`,
    ]
  }
}

/** Returns the restriction that the VM enforces. The host's firewall is among the limits. */
function reachFacts(found: InstanceVerdict): Fact[] {
  const policy = statedPolicy(found)
  return policy === null ? [] : [['reach', `${reachWords(policy)}; the VM enforces it`]]
}

/** Null if the VM restricts nothing, and for a text that cannot be read, which fails the check `reach`. */
export function statedPolicy({ receipt }: Pick<InstanceVerdict, 'receipt'>): EgressPolicy | null {
  const statement = receipt?.statement ?? null
  const stated = statement === null ? null : parsed(() => statedReach(statement))
  return stated?.ok ? stated.value : null
}

function measurementsText({ measurements }: AttestedGateway): string {
  const [first = '', ...more] = measurements
  return `${shortText(first)}${more.length === 0 ? '' : ` or ${more.length} more`}`
}

/** Describes settings of the gateway that let others read more. */
function settingLines({ claim }: InstanceVerdict): string[] {
  const gateway = claim?.claim.inference.gateway
  const allow = gateway?.kind === 'attested' ? (gateway.allow ?? []) : []
  return allow.map(name => `besides, by the setting ${name}: ${EXPOSURE_WORDS[name]}`)
}

function limitsOf(found: InstanceVerdict): string[] {
  const { claim } = found
  const inference = claim?.claim.inference
  const isOpen = inference?.gateway.kind === 'attested' && inference.gateway.workloads === undefined
  const isHostKey = inference !== undefined && inference.gateway.kind !== 'none' && inference.key == null
  return [
    ...(isOpen ? ['which models and settings the gateway has: its operator may choose any workload.json'] : []),
    ...(isHostKey ? ['that requests to the gateway in the name of this instance come from it: it drew no key'] : []),
    'what was done in the instance after it was claimed',
    ...(claim === null || reachFacts(found).length > 0
      ? []
      : [`what it may reach: the firewall is the host's, which promises ${egressText(claim)}`]),
  ]
}

function egressText({ claim: { egress } }: NonNullable<InstanceVerdict['claim']>): string {
  const names = egress.names === 'listed' ? 'listed names only' : 'the public Internet'
  return `${bytesText(egress.limitBytes)} to ${names}`
}

function nextOf(words: InstanceWords): NextCommands {
  const { checks, argv, found, stored } = words
  const lacking = lackingOptions(argv, checks)
  const isUnattested = found.claim?.claim.inference.gateway.kind === 'unattested'
  const lacksGateway =
    isFailed(checks, pinCheckName('gateway')) && !isUnattested && !hasOption(argv, '--gateway-policy')
  const gatewayImage = stored.gatewayImage ?? (lacksGateway ? 'gateway-manifest.json' : null)
  const lacksOwn = isFailed(checks, 'own-key') && !hasOption(argv, '--public-key')
  return {
    ...lacking,
    prepared: [
      ...lacking.prepared,
      ...(gatewayImage === null ? [] : [policyCommand('gateway.json', gatewayImage, stored.gatewayImage === null)]),
    ],
    expected: [
      ...lacking.expected,
      ...(stored.image === null ? [] : ['--image', stored.image]),
      ...(gatewayImage === null ? [] : ['--gateway-policy', 'gateway.json']),
      ...(lacksOwn ? ['--public-key', 'id.pub'] : []),
      ...(isAnotherLaunch(checks) ? [] : acceptedBy(words)),
    ],
  }
}

/** Returns options that accept the claim's gateway by name; none if it is not the expected gateway. */
function acceptedBy({ found, checks, argv, gateway: expected }: InstanceWords): Added {
  const gateway = found.claim?.claim.inference.gateway
  const keyFlags = isFailed(checks, 'gateway-key') ? [hostKeyName] : []
  const prompts = checks.find(({ name, outcome }) => name === 'prompts' && outcome === 'fail')
  if (gateway?.kind === 'unattested') {
    return prompts === undefined ? allowFlags(keyFlags) : ['--unattested-gateway', gateway.why]
  }
  if (gateway?.kind !== 'attested' || prompts === undefined) return allowFlags(keyFlags)
  const settings = (gateway.allow ?? []).filter(name => expected.allow?.includes(name) !== true)
  // The first problem decides the reason, and only these two kinds can be accepted.
  const isAcceptable =
    prompts.reason.startsWith('upstream ') || settings.some(name => prompts.reason.startsWith(`${name}: `))
  if (!isAcceptable) return []
  const strange = gateway.outside.filter(entry => {
    const { name, origin } = readOutside(entry)
    return !isAllowed(expected.outside, name, origin)
  })
  return [...outsideFlags(strange), ...allowFlags([...settings, ...keyFlags])]

  /** Returns the options. An option replaces the list of client.toml, so the list is repeated. */
  function outsideFlags(entries: readonly string[]): Added {
    if (entries.length === 0) return []
    const kept = hasOption(argv, '--allow-outside') ? [] : expected.outside
    return [...kept, ...entries].flatMap(entry => ['--allow-outside', entry])
  }

  function allowFlags(names: readonly string[]): Added {
    if (names.length === 0) return []
    const kept = hasOption(argv, '--allow') ? [] : (expected.allow ?? [])
    return [...kept, ...names].flatMap(name => ['--allow', name])
  }
}
