// Judges the facts about this host's network: obstacles to the appliance, and needless openness. Pure.

import { guestDnsPort, LISTENERS, type Listener, listenAddress, listenOverlap } from '../../config/listen.ts'
import type { Config } from '../../config/schema.ts'
import type { Forwarding } from '../../host/network/forwarding.ts'
import type { Listening } from '../../host/network/listening.ts'
import { droppedRemedy, droppedText } from '../../vm/firewall-probe/dropping-chain.plan.ts'
import type { ProbeLook } from '../../vm/firewall-probe/probe.driver.ts'
import type { Family } from '../../vm/firewall-probe/probe.plan.ts'
import { type Check, fail, type Outcome, pass, skip, warn } from './check.ts'

export type NetworkFacts = {
  readonly forwarding: Forwarding
  readonly forwardingV6: Forwarding
  /** Null when not run as root. */
  readonly firewalls: ProbeLook | null
  /** Text: why it is not known. */
  readonly listening: readonly Listening[] | string
  readonly isRoot: boolean
  /** Discovery of the console's identity provider; null without one. */
  readonly provider: Outcome | null
}

/** `daemonPid`: null when no daemon answers. */
export function networkChecks(facts: NetworkFacts, config: Config, daemonPid: number | null): Check[] {
  return [
    forwardingCheck(facts, config, 'ipv4'),
    ...(config.network.pool_v6 === '' ? [] : [forwardingCheck(facts, config, 'ipv6')]),
    ...firewallChecks(facts, config),
    portsCheck(facts, config, daemonPid),
    ...namesChecks(facts, config, daemonPid),
    ...consoleChecks(config),
    ...providerChecks(facts, config),
  ]
}

/** Checks the console's address. Empty if the console is off. */
function consoleChecks({ listen, console: { names: own } }: Config): Check[] {
  if (listen.console === '') return []
  const name = 'console'
  const { hostname } = listenAddress(listen.console)
  const names = own.length === 0 ? 'localhost' : own.join(', ')
  const detail = `at ${listen.console}, by ${names}`
  if (own.length > 0 || hostname.startsWith('127.') || hostname === '::1') return [pass(name, detail)]
  const remedy =
    'name it in console.names as browsers of other machines do; where only this one and its tunnels are to reach it, let it listen on 127.0.0.1'
  return [warn(name, `${detail} alone: a browser of another machine is refused, or has no passkeys`, remedy)]
}

/** Checks the identity provider. Empty without one. */
function providerChecks({ provider }: NetworkFacts, { console: { oidc } }: Config): Check[] {
  const name = 'identity provider'
  if (provider === null) return []
  const roles = oidc.groups.map(({ group, role }) => `${group}: ${role}`).join(', ')
  if (provider.ok) return [pass(name, `${provider.text}; ${roles}`)]
  const remedy =
    'correct console.oidc.issuer, ca_file or client_secret_file, or let this host reach it; until then people sign in with passkeys and links (strongroom help console)'
  return [warn(name, provider.text, remedy)]
}

/** The daemon turns forwarding on; then the host forwards for everybody, unless a firewall keeps it from that. */
function forwardingCheck(facts: NetworkFacts, { network }: Config, family: Family): Check {
  const name = family === 'ipv4' ? 'forwarding' : 'forwarding of IPv6'
  const { forwards, interfaces } = family === 'ipv4' ? facts.forwarding : facts.forwardingV6
  if (!forwards) return pass(name, 'off; the daemon turns it on')
  const { firewalls } = facts
  if (firewalls === null) return skip(name, 'needs root')
  const others = 'what is forwarded for others'
  if (firewalls.dropped.some(need => need.kind === 'others' && need.family === family))
    return pass(name, `on; a firewall drops ${others}`)
  if (interfaces.length < 2) return pass(name, `on; beside instances this host is in one network only`)
  if (firewalls.unknown !== null) return skip(name, firewalls.unknown)
  const between = `between ${interfaces.join(', ')}`
  const detail = `on, and nothing drops ${others}: every neighbour can use this host as a router ${between}`
  const remedy =
    network.forward_others === 'drop'
      ? 'start strongroom: network.forward_others is "drop", and its rules are not there'
      : 'set network.forward_others = "drop" and restart strongroom; or, where this host is to route, drop what it is not to in a chain of your own'
  return warn(name, detail, remedy)
}

function firewallChecks({ firewalls }: NetworkFacts, config: Config): Check[] {
  const name = 'firewalls'
  if (firewalls === null) return [skip(name, 'needs root')]
  if (firewalls.unknown !== null) return [skip(name, firewalls.unknown)]
  const found = ([fail, warn] as const).flatMap((verdict, index) => {
    const dropped = firewalls.dropped.filter(({ kind }) => kind === (['instances', 'services'] as const)[index])
    const detail = droppedText(dropped, firewalls.chains)
    return detail === null ? [] : [verdict(name, detail, droppedRemedy(dropped, config, firewalls.chains))]
  })
  return found.length > 0 ? found : [pass(name, 'what instances and services need passes all of them')]
}

function portsCheck({ listening, isRoot }: NetworkFacts, config: Config, daemonPid: number | null): Check {
  const name = 'ports'
  if (typeof listening === 'string') return skip(name, listening)
  const wanted = LISTENERS.flatMap(listener => wantedOf(listener, config))
  const taken = wanted.flatMap(({ listener, protocol, address }) => {
    const found = listening.find(
      listening =>
        listening.protocol === protocol &&
        !isHeldBy(listening, daemonPid) &&
        listenOverlap(address, addressOf(listening)),
    )
    // A listener without a known holder may be the daemon.
    return found === undefined || (found.holders.length === 0 && (!isRoot || daemonPid !== null))
      ? []
      : [{ listener, found }]
  })
  const [first] = taken
  if (first === undefined) {
    const ports = wanted.map(({ protocol, address }) => `${protocol} ${address.port}`).join(', ')
    return pass(name, daemonPid === null ? `free: ${ports}` : `free or the daemon's: ${ports}`)
  }
  const details = taken.map(
    ({ listener, found }) =>
      `${holderText(found)} has ${found.protocol} ${found.host}:${found.port} (listen.${listener})`,
  )
  return fail(name, details.join('; '), takenRemedy(first.listener, first.found))
}

/** Empty without a list of names. */
function namesChecks({ listening, isRoot }: NetworkFacts, { network }: Config, daemonPid: number | null): Check[] {
  const name = 'names'
  if (network.allow_names.length === 0) return []
  const count = `${network.allow_names.length} in network.allow_names`
  if (typeof listening === 'string') return [skip(name, `${count}; ${listening}`)]
  const own = [network.gateway_v4, network.gateway_v6].map(hostname => ({ hostname, port: guestDnsPort }))
  const taken = listening.find(
    listening =>
      listening.protocol === 'udp' &&
      !isHeldBy(listening, daemonPid) &&
      own.some(address => listenOverlap(address, addressOf(listening))) &&
      // A listener without a known holder may be the daemon.
      !(listening.holders.length === 0 && (!isRoot || daemonPid !== null)),
  )
  if (taken !== undefined) {
    const remedy = `keep it off ${own.map(({ hostname }) => hostname).join(' and ')}, or end it`
    const where = `udp ${taken.host}:${taken.port}, where instances ask for names`
    return [fail(name, `${holderText(taken)} has ${where}`, remedy)]
  }
  return [pass(name, `${count}: instances reach these alone; asked for at ${network.resolvers.join(', ')}`)]
}

type RequiredListener = {
  readonly listener: Listener
  readonly protocol: 'tcp' | 'udp'
  readonly address: { hostname: string; port: number }
}

/** Clients of a gateway in a VM are led there by the firewall: the host listens at no port for it. */
function wantedOf(listener: Listener, { listen, inference }: Config): RequiredListener[] {
  if (listen[listener] === '' || (listener === 'inference' && inference.placement === 'vm')) return []
  const address = listenAddress(listen[listener])
  const protocols = listener === 'dns' ? (['tcp', 'udp'] as const) : (['tcp'] as const)
  return protocols.map(protocol => ({ listener, protocol, address }))
}

function addressOf({ host, port }: Listening): { hostname: string; port: number } {
  return { hostname: host === '*' ? '::' : host, port }
}

function isHeldBy({ holders }: Listening, pid: number | null): boolean {
  return holders.some(holder => holder.pid === pid)
}

function holderText({ holders: [holder] }: Listening): string {
  return holder === undefined ? 'somebody' : `${holder.name} (pid ${holder.pid})`
}

function takenRemedy(listener: Listener, { holders: [holder], port, protocol }: Listening): string {
  if (holder?.name === 'systemd-resolve') {
    return 'write DNSStubListener=no below [Resolve] in /etc/systemd/resolved.conf; run systemctl restart systemd-resolved; or name one address of this host in listen.dns'
  }
  const who =
    holder === undefined
      ? `find it: ss --listening --numeric --processes '( sport = :${port} )'`
      : `systemctl status ${holder.pid} names its unit: stop and disable that`
  return `${who}; or give listen.${listener} another port than ${protocol} ${port}`
}
