// Checks of the configuration that the schema of one field cannot make. Pure.

import { isIP } from 'node:net'
import { canonicalNetwork, containsRange, parseIpv4, rangeOf } from '../../base/ipv4.ts'
import { allowNamesProblems } from '../allow-names.ts'
import { egressProblems } from '../egress.ts'
import { isNetworkV6 } from '../egress-v6.ts'
import { guestDnsPort, LISTENERS, type Listener, listenOverlap, parseListen } from '../listen.ts'
import { type Config, ListenConfig } from '../schema.ts'
import { workerUpstreamName } from '../upstream/kinds.ts'
import { acmeProblems } from './acme.ts'
import { alertsProblems } from './alerts.ts'
import { buildsProblems, type CrossProblem } from './builds.ts'
import { consoleProblems } from './console.ts'
import { embeddingProblems } from './embedding.ts'
import { fallbackProblems } from './fallbacks.ts'
import { fleetProblems } from './fleet.ts'
import { familyProblems } from './ipv6.ts'
import { processProblems } from './process.ts'
import { proxyProblems } from './proxy.ts'
import { scratchProblems } from './scratch.ts'
import { snapshotsProblems } from './snapshots.ts'
import { tracesProblems } from './traces.ts'
import { gpuProblems, workerProblems } from './worker.ts'

/** All contradictions in a configuration; empty when there are none. */
export function crossCheck(config: Config): CrossProblem[] {
  return CHECKS.flatMap(check => check(config))
}

type Check = (config: Config) => CrossProblem[]

const CHECKS: readonly Check[] = [
  ({ listen }) => LISTENERS.flatMap(name => listenProblems(name, listen)),
  ({ tls }) =>
    when(tls.certificate_file !== '' && tls.key_file === '', {
      field: 'tls.certificate_file',
      message: 'needs key_file too; set both or none',
    }),
  ({ tls }) =>
    when(tls.key_file !== '' && tls.certificate_file === '', {
      field: 'tls.key_file',
      message: 'needs certificate_file too; set both or none',
    }),
  ({ tls }) =>
    when(tls.renew_before_days >= tls.validity_days, {
      field: 'tls.renew_before_days',
      message: `must be less than validity_days (${tls.validity_days}), else every certificate is already due for renewal`,
    }),
  ({ tls }) =>
    tls.announced_names.flatMap((name, index) =>
      when(isIP(name) !== 0 || !DNS_NAME.test(name), {
        field: `tls.announced_names.${index}`,
        message: `${JSON.stringify(name)} is not allowed; allowed: a DNS name in lowercase (*. may lead it)`,
      }),
    ),
  ({ tls }) =>
    tls.names.flatMap((name, index) =>
      when(isIP(name) === 0 && !DNS_NAME.test(name), {
        field: `tls.names.${index}`,
        message: `${JSON.stringify(name)} is not allowed; allowed: a DNS name in lowercase (*. may lead it) or an IP address`,
      }),
    ),
  acmeProblems,
  ({ operator: { admins } }) =>
    admins.flatMap(({ user }, index) =>
      when(admins.findIndex(other => other.user === user) !== index, {
        field: `operator.admins.${index}.user`,
        message: `${user} stands here twice; one user has one role`,
      }),
    ),
  ({ network }) => (network.pool_v4 === '' ? [] : poolProblems(network.pool_v4)),
  familyProblems,
  ({ network }) =>
    when(inPool(network.gateway_v4, network.pool_v4), {
      field: 'network.gateway_v4',
      message: `${network.gateway_v4} is in pool_v4 (${network.pool_v4}), whose addresses instances get; choose one outside it`,
    }),
  ({ network }) =>
    when(!isUnicast(parseIpv4(network.gateway_v4)), {
      field: 'network.gateway_v4',
      message: `${network.gateway_v4} is not an address that a host can have`,
    }),
  ({ network: { public_v4: address, pool_v4: pool } }) =>
    address === ''
      ? []
      : [
          ...when(!isUnicast(parseIpv4(address)), {
            field: 'network.public_v4',
            message: `${address} is not an address that clients can reach`,
          }),
          ...when(inPool(address, pool), {
            field: 'network.public_v4',
            message: `${address} is in pool_v4 (${pool}), whose addresses instances get; use the address of this host`,
          }),
        ],
  ({ network }) =>
    network.resolvers.flatMap((resolver, index) =>
      when(!resolver.includes(':') && inPool(resolver, network.pool_v4), {
        field: `network.resolvers.${index}`,
        message: `${resolver} is in pool_v4 (${network.pool_v4}), whose addresses instances get`,
      }),
    ),
  ({ network }) =>
    network.probe_peers.flatMap((peers, index) =>
      when(peers.includes(':') && !isNetworkV6(peers), {
        field: `network.probe_peers.${index}`,
        message: `${JSON.stringify(peers)} is not an IPv6 network ADDRESS/N`,
      }),
    ),
  ({ network }) => egressProblems(network),
  allowNamesProblems,
  proxyProblems,
  forwarderProblems,
  ({ vm }) =>
    when(vm.uid_max < vm.uid_min, {
      field: 'vm.uid_max',
      message: `${vm.uid_max} is below uid_min (${vm.uid_min}); each VM needs a user id of its own from this range`,
    }),
  ({ vm, capacity }) =>
    when(capacity.memory_mib !== 0 && capacity.memory_mib < vm.memory_mib, {
      field: 'capacity.memory_mib',
      message: `${capacity.memory_mib} is too small for one instance of vm.memory_mib (${vm.memory_mib}); raise it, or use 0 for the default`,
    }),
  ({ vm, capacity }) =>
    when(capacity.vcpus !== 0 && capacity.vcpus < vm.vcpus, {
      field: 'capacity.vcpus',
      message: `${capacity.vcpus} is too small for one instance of vm.vcpus (${vm.vcpus}); raise it, or use 0 for the default`,
    }),
  ({ vm, capacity }) =>
    when(capacity.scratch_gib !== 0 && capacity.scratch_gib < vm.scratch_gib, {
      field: 'capacity.scratch_gib',
      message: `${capacity.scratch_gib} is too small for one instance of vm.scratch_gib (${vm.scratch_gib}); raise it, or use 0 for the default`,
    }),
  warmProblems,
  scratchProblems,
  buildsProblems,
  snapshotsProblems,
  ({ inference }) => workerProblems(inference.placement, inference.worker),
  gpuProblems,
  ({ inference }) => tracesProblems(inference.traces),
  ({ inference, listen }) =>
    when(inference.placement === 'vm' && parseListen(listen.inference)?.port === 0, {
      field: 'listen.inference',
      message: 'needs a port: the firewall leads it to the VM of the gateway (inference.placement is "vm")',
    }),
  embeddingProblems,
  fallbackProblems,
  processProblems,
  consoleProblems,
  ({ alerts }) => alertsProblems(alerts),
  fleetProblems,
  ({ inference }) => upstreamNameProblems(inference.upstreams.map(upstream => upstream.name)),
  ({ instances }) =>
    when(new Set(instances.inference_models).size !== instances.inference_models.length, {
      field: 'instances.inference_models',
      message: 'names a model twice',
    }),
  ({ instances }) =>
    when(instances.inference_base_url !== '' && !isHttpUrl(instances.inference_base_url), {
      field: 'instances.inference_base_url',
      message: `${JSON.stringify(instances.inference_base_url)} is not allowed; allowed: "" or an http: or https: URL`,
    }),
]

/** The forwarder for names has the gateway address at port 53. */
function forwarderProblems({ network, listen }: Config): CrossProblem[] {
  const dns = parseListen(listen.dns)
  const own = [network.gateway_v4, network.gateway_v6].map(hostname => ({ hostname, port: guestDnsPort }))
  const isTaken = dns !== null && own.some(address => address.hostname === dns.hostname && address.port === dns.port)
  return when(network.allow_names.length > 0 && isTaken, {
    field: 'listen.dns',
    message: `${listen.dns} is where instances ask for names (network.allow_names); choose another address`,
  })
}

/** A pool that can never be full would ask forever. At run time the pool waits for capacity that the host derives. */
function warmProblems({ pool: { warm }, vm, capacity, network }: Config): CrossProblem[] {
  const addresses = poolAddressCount(network.pool_v4)
  const limits = [
    { of: `capacity.memory_mib (${capacity.memory_mib})`, room: roomIn(capacity.memory_mib, vm.memory_mib) },
    { of: `capacity.vcpus (${capacity.vcpus})`, room: roomIn(capacity.vcpus, vm.vcpus) },
    { of: `capacity.scratch_gib (${capacity.scratch_gib})`, room: roomIn(capacity.scratch_gib, vm.scratch_gib) },
    { of: `capacity.asids (${capacity.asids})`, room: roomIn(capacity.asids, 1) },
    { of: `network.pool_v4 (${network.pool_v4})`, room: addresses },
    { of: 'vm.uid_min to vm.uid_max', room: vm.uid_max - vm.uid_min + 1 },
  ]
  const { of, room } = limits.reduce((least, limit) => (limit.room < least.room ? limit : least))
  return when(warm > Math.max(0, room), {
    field: 'pool.warm',
    message: `${warm} VMs do not fit: ${of} has room for ${room}`,
  })
}

/** Endless where the configuration leaves it to the host. */
function roomIn(total: number, each: number): number {
  return total === 0 ? Number.POSITIVE_INFINITY : Math.floor(total / each)
}

/** RFC 1123 2.1, with a leading wildcard label (RFC 6125 6.4.3). */
const DNS_NAME = /^(?=.{1,253}$)(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/

function upstreamNameProblems(names: readonly string[]): CrossProblem[] {
  return names.flatMap((name, index) => {
    const field = `inference.upstreams.${index}.name`
    if (name === workerUpstreamName) {
      const message = `"${name}" is the name of the built-in worker, which receipts vouch for; choose another`
      return [{ field, message }]
    }
    return when(names.indexOf(name) !== index, {
      field,
      message: `"${name}" is the name of another upstream too; receipts name upstreams, so choose another`,
    })
  })
}

/** A listener that is off has no address to check. */
function listenProblems(name: Listener, listen: Config['listen']): CrossProblem[] {
  if (listen[name] === '') return []
  const field = `listen.${name}`
  const address = parseListen(listen[name])
  if (address === null) {
    const { allowed } = ListenConfig.properties[name]
    return [{ field, message: `${JSON.stringify(listen[name])} is not allowed; allowed: ${allowed}` }]
  }
  const holder = LISTENERS.slice(0, LISTENERS.indexOf(name)).find(earlier => {
    const taken = parseListen(listen[earlier])
    return taken !== null && listenOverlap(address, taken)
  })
  if (holder === undefined) return []
  const by = listen[holder] === listen[name] ? `listen.${holder}` : `listen.${holder} (${listen[holder]})`
  return [{ field, message: `${listen[name]} is taken by ${by}; choose another port` }]
}

function poolProblems(pool: string): CrossProblem[] {
  const canonical = canonicalNetwork(pool)
  return [
    ...when(canonical !== pool, {
      field: 'network.pool_v4',
      message: `${pool} has bits set after its prefix; write ${canonical}`,
    }),
    ...when(!isUnicast(rangeOf(pool).first), {
      field: 'network.pool_v4',
      message: `${pool} has no addresses that instances can have; use a unicast network`,
    }),
  ]
}

/** Without the network's first and last. */
function poolAddressCount(pool: string): number {
  if (pool === '') return Number.POSITIVE_INFINITY
  const { first, last } = rangeOf(pool)
  return last - first - 1
}

function inPool(address: string, pool: string): boolean {
  return pool !== '' && containsRange(rangeOf(pool), rangeOf(address))
}

/** Not "this network", loopback, multicast or reserved (RFC 6890). */
function isUnicast(address: number): boolean {
  const first = Math.floor(address / 2 ** 24)
  return first !== 0 && first !== 127 && first < 224
}

function isHttpUrl(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : null
  return url !== null && (url.protocol === 'https:' || url.protocol === 'http:')
}

function when(wrong: boolean, problem: CrossProblem): CrossProblem[] {
  return wrong ? [problem] : []
}
