// The destinations that programs of an instance may reach, enforced inside its VM. Pure.
//
// The owner sets it by the create request or by an order. The statement of kind `claim` has its canonical text, so a
// relying party sees it, and the host can neither loosen nor replace it.

import { canonicalJson } from '../../base/canonical-json.ts'
import { OneOf } from '../check.ts'
import { Closed } from '../forms.ts'
import { type Static, Type } from '../type.ts'

/** No share: limits one policy. */
export const egressRulesMax = 64
/** Ports that one policy may name: each is a listener of the broker. No share: limits one policy. */
export const egressPortsMax = 32
/** The canonical text of the largest policy has fewer bytes. */
export const egressPolicyBytesMax = 20_480

export const EgressRule = Closed({
  host: Type.String({
    minLength: 1,
    maxLength: 253,
    pattern: '^(\\*\\.)?[a-z0-9_.-]+$',
    description: 'A DNS name in lower case. `*.example.org` stands for all names below example.org.',
    examples: ['github.com'],
  }),
  port: Type.Integer({ minimum: 1, maximum: 65_535, description: 'TCP port.', examples: [443] }),
})
export type EgressRule = Static<typeof EgressRule>

export const EgressPolicy = Closed({
  default: OneOf(['refuse', 'allow'], {
    description: '`refuse`: programs reach the listed destinations alone. `allow`: the VM restricts nothing.',
  }),
  allow: Type.Array(EgressRule, { maxItems: egressRulesMax, description: 'Allowed destinations.' }),
})
export type EgressPolicy = Static<typeof EgressPolicy>

/** Without a policy: the VM restricts nothing. */
export const openPolicy: EgressPolicy = { default: 'allow', allow: [] }

/** Checks beyond the schema: the first wrong field and its remedy, or null. */
export function egressPolicyProblem({ allow }: EgressPolicy): string | null {
  const wrong = allow.find(({ host }) => !HOST.test(host))
  if (wrong !== undefined) {
    return `egress.allow: ${wrong.host} is not a DNS name of at least two labels; give a name like github.com or *.github.com`
  }
  const ports = new Set(allow.map(({ port }) => port))
  return ports.size > egressPortsMax ? `egress.allow: more than ${egressPortsMax} different ports; name fewer` : null
}

/** Two labels at least, and a last one that is no number: an address is no name. */
const HOST = /^(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+(?=[a-z0-9-]*[a-z])[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/

/** The canonical text, whose SHA-256 is the policy's digest: rules sorted, each once. */
export function egressPolicyText({ default: otherwise, allow }: EgressPolicy): string {
  const rules = new Map(allow.map(({ host, port }) => [`${host}:${port}`, { host, port }]))
  return canonicalJson({
    default: otherwise,
    allow: [...rules].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, rule]) => rule),
  })
}

/** Rules, ports and addresses that root's process and the broker derive from a policy and from secrets. */
export type Reach = {
  readonly rules: readonly EgressRule[]
  readonly ports: readonly number[]
  /** Exact names with their synthetic addresses. */
  readonly addresses: ReadonlyMap<string, string>
}

/** Ports that programs commonly use on the host of a secret: with an open policy, too, its address is synthetic. */
const commonPorts = [22, 80, 443]

/** `secrets`: hosts and ports of secrets, each of which implies a rule. */
export function reachOf(policy: EgressPolicy, secrets: readonly EgressRule[]): Reach {
  const isOpen = policy.default === 'allow'
  const hosts = [...new Set(secrets.map(({ host }) => host))]
  const common = isOpen ? hosts.flatMap(host => commonPorts.map(port => ({ host, port }))) : []
  const listed = policy.allow.filter(({ host }) => !isOpen || hosts.includes(host))
  const rules = [...listed, ...secrets.map(({ host, port }) => ({ host, port })), ...common]
  const names = [...new Set(rules.map(({ host }) => host))].filter(host => !host.startsWith('*.')).toSorted()
  return {
    rules,
    ports: [...new Set(rules.map(({ port }) => port))],
    addresses: addressesFor(names),
  }
}

/** Derives addresses of 198.18.0.0/16, without its first 256, from the names: an address stays when others change. */
function addressesFor(names: readonly string[]): Map<string, string> {
  const taken = new Map<number, string>()
  for (const name of names) {
    let at = [...name].reduce((hash, letter) => Math.imul(hash ^ letter.charCodeAt(0), 0x01000193) >>> 0, 0x811c9dc5)
    for (at %= 65_280; taken.has(at); at = (at + 1) % 65_280) {}
    taken.set(at, name)
  }
  return new Map([...taken].map(([at, name]) => [name, `198.18.${1 + (at >> 8)}.${at & 0xff}`]))
}

/** Networks of benchmarks (RFC 2544), which no route leads to: inside the VM they stand for names. */
export const syntheticNetwork = '198.18.0.0/15'
/** The broker's resolver. */
export const resolverAddress = '198.18.0.1'
/**
 * The broker listens for the allowed port in slot i on this port plus i. Privileged, so that no other program takes it.
 */
export const brokerPortFirst = 601

/** Gives each port a slot, and 0 to free ones. A port keeps its slot, for its open connections. */
export function slotsFor(ports: readonly number[], before: readonly number[]): number[] {
  const slots = before.map(port => (ports.includes(port) ? port : 0))
  for (const port of ports.filter(port => !slots.includes(port))) {
    const free = slots.indexOf(0)
    slots[free === -1 ? slots.length : free] = port
  }
  return slots
}
