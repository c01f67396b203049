// Contradictions in the table `builds` of the configuration, and with others. Pure.

import { isIPv4 } from 'node:net'
import { fetchHostAllowed, parseFetchHost } from '../fetch-hosts.ts'
import { type ListenAddress, listenOverlap, parseListen } from '../listen.ts'
import type { Config } from '../schema.ts'

export type CrossProblem = { readonly field: string; readonly message: string }

/** All of them; what concerns the host's capacity only where service C is on. */
export function buildsProblems(config: Config): CrossProblem[] {
  const { builds } = config
  const exchangeMib = builds.exchange_gib * 1024
  return [
    ...hostProblems(config),
    ...(config.listen.builds === '' ? [] : capacityProblems(config)),
    ...when(builds.archive_mib > exchangeMib, {
      field: 'builds.exchange_gib',
      message: `${builds.exchange_gib} is too small for builds.archive_mib (${builds.archive_mib}); raise it`,
    }),
    ...when(builds.artifact_mib + builds.log_mib + evidenceMib > exchangeMib, {
      field: 'builds.exchange_gib',
      message: `${builds.exchange_gib} is too small for a result of builds.artifact_mib (${builds.artifact_mib}) and builds.log_mib (${builds.log_mib}); raise it`,
    }),
    ...when(builds.results_gib_max < builds.exchange_gib, {
      field: 'builds.results_gib_max',
      message: `${builds.results_gib_max} is less than one result may have (builds.exchange_gib, ${builds.exchange_gib}); raise it`,
    }),
    ...when(builds.warm > builds.concurrent_max, {
      field: 'builds.warm',
      message: `${builds.warm} is more than may build at the same time (builds.concurrent_max, ${builds.concurrent_max})`,
    }),
    ...when(builds.build_memory_mib >= builds.memory_mib, {
      field: 'builds.build_memory_mib',
      message: `${builds.build_memory_mib} leaves the VM nothing of builds.memory_mib (${builds.memory_mib}); lower it, or use 0 for the default`,
    }),
    ...when(builds.build_disk_gib >= builds.scratch_gib && builds.build_disk_gib > 0, {
      field: 'builds.build_disk_gib',
      message: `${builds.build_disk_gib} leaves nothing of builds.scratch_gib (${builds.scratch_gib}); lower it, or use 0 for the default`,
    }),
    ...when(builds.base_url !== '' && !isOrigin(builds.base_url), {
      field: 'builds.base_url',
      message: `${JSON.stringify(builds.base_url)} is not allowed; allowed: "" or https://HOST or https://HOST:PORT, with nothing after it`,
    }),
  ]
}

/** Provenance, evidence and receipts beside the artifacts. */
const evidenceMib = 16

function hostProblems({ builds, listen, network }: Config): CrossProblem[] {
  const hosts = builds.fetch_hosts.map(parseFetchHost)
  const wrong = hosts.flatMap((host, index) =>
    when(host === null, {
      field: `builds.fetch_hosts.${index}`,
      message: `${JSON.stringify(builds.fetch_hosts[index])} is not allowed; allowed: ${fetchHostAllowed}`,
    }),
  )
  const isListed = (text: string) => {
    const url = URL.canParse(text) ? new URL(text) : null
    const port = Number(url?.port || 443)
    return url !== null && hosts.some(host => host?.host === url.hostname && host.port === port)
  }
  const proxy: ListenAddress = { hostname: network.gateway_v4, port: builds.fetch_port }
  const holder = (['instances', 'inference', 'builds', 'dns'] as const).find(name => {
    const taken = listen[name] === '' ? null : parseListen(listen[name])
    return taken !== null && isIPv4(proxy.hostname) && listenOverlap(proxy, taken)
  })
  return [
    ...wrong,
    ...(['crates_mirror', 'rust_mirror'] as const).flatMap(name =>
      when(builds[name] !== '' && !isListed(builds[name].replace(/^sparse\+/, '')), {
        field: `builds.${name}`,
        message: `${JSON.stringify(builds[name])} cannot be reached: add its host to builds.fetch_hosts`,
      }),
    ),
    ...when(listen.builds !== '' && holder !== undefined, {
      field: 'builds.fetch_port',
      message: `${builds.fetch_port} is taken by listen.${holder}; choose another port`,
    }),
  ]
}

function capacityProblems({ builds, capacity }: Config): CrossProblem[] {
  return (['memory_mib', 'vcpus', 'scratch_gib'] as const).flatMap(name => {
    // The exchange disk is on the same file system.
    const wanted = name === 'scratch_gib' ? builds.scratch_gib + builds.exchange_gib : builds[name]
    return when(capacity[name] !== 0 && capacity[name] < wanted, {
      field: `capacity.${name}`,
      message: `${capacity[name]} is too small for one build VM, which needs ${wanted} (builds.${name}); raise it, or use 0 for the default`,
    })
  })
}

function isOrigin(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : null
  return url !== null && url.protocol === 'https:' && url.origin === text
}

function when(wrong: boolean, problem: CrossProblem): CrossProblem[] {
  return wrong ? [problem] : []
}
