// The files of a backup that a restore writes outside of the state directory, and whether it may. Pure.
//
// A valid list of files is not enough: the configuration in the same backup must name each of them, and the operator
// decides about every directory but the one of Strongroom's own configuration.

import { Fault } from '../base/fault.ts'
import { parseConfig, problemText } from '../config/parse.ts'
import type { Config } from '../config/schema.ts'
import type { Manifest, ManifestEntry } from './manifest.ts'

export type OutsideRules = {
  /** Where this machine reads its configuration. */
  readonly configurationFile: string
  /** Files below these need no word of the operator. */
  readonly directories: readonly string[]
  /** Other files that the operator allowed. */
  readonly paths: readonly string[]
}

export type OutsideFiles = {
  readonly entries: readonly ManifestEntry[]
  /** Paths of entries that the operator has not allowed yet. */
  readonly unlisted: readonly string[]
}

/**
 * Returns the files to write outside of `stateDir`. `configuration` is the text of the backup's configuration, null if
 * the backup has none. Fault invalid_request: a file that this configuration does not name, another place for the
 * configuration, a path in the state directory.
 */
export function outsideFiles(
  manifest: Manifest,
  configuration: string | null,
  { stateDir, rules }: { readonly stateDir: string; readonly rules: OutsideRules },
): OutsideFiles {
  const entries = manifest.entries.filter(({ kind }) => kind !== 'state')
  const known = configuration === null ? new Set<string>() : new Set(namesIn(configuration, rules.configurationFile))
  for (const { kind, path } of entries) {
    if (isBelow(path, stateDir)) throw refused(`${path}, which is in the state directory ${stateDir}`)
    if (kind === 'named' && !known.has(path)) throw refused(`${path}, which its configuration does not name`)
    if (kind === 'configuration' && path !== rules.configurationFile) {
      throw refused(
        `the configuration ${path}, and this machine reads ${rules.configurationFile}; give --config ${path} if that is where it belongs`,
      )
    }
  }
  const isAllowed = ({ kind, path }: ManifestEntry) =>
    kind === 'configuration' ||
    rules.paths.includes(path) ||
    rules.directories.some(directory => isBelow(path, directory))
  return { entries, unlisted: entries.filter(entry => !isAllowed(entry)).map(({ path }) => path) }
}

/**
 * Returns the keys, certificates, policies and headers that a configuration names: small files of the operator's.
 * Images, models, firmware and programs are not among them: packages bring them, and they are large.
 */
export function namedFiles(config: Config): string[] {
  const { tls, network, builds, inference, fleet, metrics, console, alerts } = config
  const { traces, upstreams, worker } = inference
  return [
    tls.certificate_file,
    tls.key_file,
    tls.acme.eab_key_file,
    tls.acme.ca_file,
    network.proxy.password_file,
    builds.fetch_ca_file,
    traces.headers_file,
    traces.ca_file,
    ...upstreams.flatMap(upstream => [
      upstream.key_file,
      upstream.ca_file,
      upstream.attestation_policy,
      upstream.attestation_collateral,
      upstream.attestation_simulated_root,
    ]),
    worker.gpu_policy,
    fleet.password_file,
    fleet.ca_file,
    metrics.token_file,
    console.oidc.client_secret_file,
    console.oidc.ca_file,
    alerts.webhook_secret_file,
    alerts.webhook_ca_file,
    alerts.smtp_password_file,
    alerts.smtp_ca_file,
  ].filter(path => path !== '')
}

function namesIn(text: string, file: string): string[] {
  const verdict = parseConfig(text, file)
  if (verdict.ok) return namedFiles(verdict.config)
  const problems = verdict.problems.map(problemText).join('\n')
  throw new Fault(
    'invalid_request',
    `this release cannot read the configuration in the backup; --no-configuration leaves it out:\n${problems}`,
  )
}

function isBelow(path: string, directory: string): boolean {
  return path === directory || path.startsWith(directory.endsWith('/') ? directory : `${directory}/`)
}

function refused(what: string): Fault {
  return new Fault('invalid_request', `the backup holds ${what}; --no-configuration restores the state directory alone`)
}
