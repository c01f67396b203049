// strongroom status: what the daemon serves and how much is in use. Effects: one request to the daemon.

import { AdminStatus } from '../../contract/admin/admin.ts'
import { helpCommandFor } from '../../contract/admin/problems.ts'
import { bytesText, dash, fields, oneLine, type Paint } from '../../terminal/render.ts'
import type { Command } from '../operator-run.ts'

export function addStatus(program: Command): void {
  program
    .command('status')
    .description('show what the daemon serves and how much of its capacity is used')
    .examples('strongroom status', 'strongroom status --json')
    .runs(async run => {
      await run.show({ path: '/status', response: AdminStatus }, statusText)
    })
}

export function statusText(status: AdminStatus, paint: Paint): string {
  const { capacity } = status
  const simulated = status.evidence_simulated ? ` (evidence is ${paint.bad('SIMULATED')})` : ''
  return fields(paint, [
    ['ready', status.ready ? 'yes' : paint.bad('no')],
    ...problemFields(status, paint),
    ...(status.maintenance === null ? [] : [['maintenance', maintenanceWords(status.maintenance)] satisfies Row]),
    ['version', status.version],
    ['pid', String(status.pid)],
    ['host', status.host_id],
    ['started', status.started_at],
    ['platform', `${status.platform}${simulated}`],
    ['TPM of VMs', TPM_WORDS[status.tpm]],
    ['domain', status.domain],
    ['instances API', status.listen.instances],
    ['inference API', dash(status.listen.inference)],
    ['builds API', dash(status.listen.builds)],
    ['DNS', dash(status.listen.dns)],
    ['console', dash(status.listen.console)],
    ['metrics', dash(status.listen.metrics)],
    ...namesFields(status),
    ['certificate', `${status.tls.source}, until ${status.tls.expires_at}`],
    ['authority', dash(status.tls.ca_file)],
    ...acmeFields(status),
    ...formerFields(status),
    ['operator key', status.operator_key.digest],
    ...logFields(status),
    backupField(status),
    ...fleetFields(status, paint),
    ...collateralFields(status),
    ['organizations', countText(status.organizations)],
    ['instances', countsText(status.instances)],
    ['VMs', countsText(status.vms)],
    ...poolFields(status.pool),
    ...gatewayFields(status.gateway, paint),
    ...attestedFields(status.gateway, paint),
    ...tracesFields(status.gateway),
    ...buildsFields(status),
    ['memory', `${countText(capacity.memory_mib_used)} of ${capacity.memory_mib_total} MiB`],
    ['vCPUs', `${countText(capacity.vcpus_used)} of ${capacity.vcpus_total}`],
    ['addresses', addressesText(capacity)],
  ])
}

type Row = [string, string]

function maintenanceWords({ since, until, message }: NonNullable<AdminStatus['maintenance']>): string {
  const end = until === null ? '' : `, until about ${until}`
  return oneLine(`since ${since}${end}${message === '' ? '' : `: ${message}`}`)
}

/** The only place with problems; the lines below describe the host. */
function problemFields({ problems }: AdminStatus, paint: Paint): [string, string][] {
  if (problems.length === 0) return [['problems', 'none is known']]
  const critical = problems.filter(({ severity }) => severity === 'critical').length
  return [
    ['problems', `${problems.length}, ${critical} of them critical`],
    ...problems.map(({ name, subject, severity, since, detail, affects, remedy }): [string, string] => {
      const word = severity === 'critical' ? paint.bad(severity) : severity
      const what = subject === null || detail.includes(subject) ? detail : `${subject}: ${detail}`
      const rest = oneLine(`${what}; affects ${affects}; remedy: ${remedy}; more: ${helpCommandFor(name)}`)
      return [name, `${word} since ${since}: ${rest}`]
    }),
  ]
}

function acmeFields({ tls: { acme } }: AdminStatus): [string, string][] {
  return (acme ?? []).map(({ name, expires_at }) => {
    const until = expires_at === null ? 'none yet' : `until ${expires_at}`
    return ['by ACME', oneLine(`${name}: ${until}`)]
  })
}

function formerFields({ tls: { former } }: AdminStatus): [string, string][] {
  if (former === null) return []
  return [['earlier names', oneLine(`${former.names.join(', ')}, served until ${former.until}`)]]
}

function addressesText(capacity: AdminStatus['capacity']): string {
  const { addresses_used, addresses_total, addresses_resting: resting, next_address_free_at: next } = capacity
  const rests = resting === 0 ? '' : `; ${resting} rest, the next is free at ${dash(next)}`
  return `${countText(addresses_used)} of ${addresses_total}${rests}`
}

function fleetFields({ fleet }: AdminStatus, paint: Paint): [string, string][] {
  if (fleet === null) return []
  const { name, database, has_lease, is_reachable, is_draining, problem, since } = fleet
  const lease = has_lease ? (is_draining ? 'drains' : 'takes instances') : paint.bad('no lease: takes no instances')
  const away = is_reachable ? '' : `, ${paint.bad('away')} since ${since}`
  return [
    ['fleet', oneLine(`${name}: ${lease}`)],
    ['directory', oneLine(`${database}${away}${problem === null ? '' : `: ${problem}`}`)],
    ['other hosts', peersText(fleet, paint)],
  ]
}

function peersText({ peer_address: address, peers }: AdminStatus['fleet'] & {}, paint: Paint): string {
  const own = address === null ? 'none of them is answered (fleet.peer_listen is off)' : `answered at ${address}`
  const away = peers.filter(({ is_reached: isReached }) => !isReached)
  const count =
    peers.length === 0 ? 'none answers this one' : `${peers.length - away.length} of ${peers.length} reached`
  if (away.length === 0) return oneLine(`${own}; ${count}`)
  const details = away.map(({ name, problem }) => `${name}: ${dash(problem)}`).join(', ')
  return oneLine(`${own}; ${paint.bad(count)}: ${details}; strongroom fleet show NAME has the remedy`)
}

function backupField({ backups: { state, last, nightly } }: AdminStatus): [string, string] {
  const made = last === null ? 'none is known' : oneLine(`${last.at}, ${bytesText(last.bytes)}, ${last.file}`)
  if (state === 'none' && !nightly) return ['backup', 'none yet: strongroom help backup']
  return ['backup', `${made}${nightly ? '; the timer makes one each night' : '; the nightly timer is off'}`]
}

const TPM_WORDS = {
  swtpm: "swtpm, this host's own: proves nothing to clients",
  off: 'none (vm.tpm is "off")',
  snp: 'that of their SVSM, or none',
  missing: 'none: swtpm is not installed; strongroom doctor has the remedy',
} as const satisfies Record<AdminStatus['tpm'], string>

function namesFields({ names }: AdminStatus): [string, string][] {
  if (names === null) return []
  const { entries, addresses, answered, blocked, failed } = names
  const questions = `asked for: ${answered} answered, ${blocked} blocked, ${failed} failed`
  return [['names', `${entries} that instances may reach, ${addresses} addresses open; ${questions}`]]
}

function poolFields(pool: AdminStatus['pool']): [string, string][] {
  if (pool.wanted === 0 && pool.warm + pool.booting === 0) return [['warm pool', 'off']]
  const lacking = pool.lacking === null ? '' : `; no room for more: ${pool.lacking}`
  const next = pool.next_attempt_at === null ? '' : `; next attempt ${pool.next_attempt_at}`
  return [['warm pool', `${pool.warm} warm, ${pool.booting} booting, ${pool.wanted} wanted${lacking}${next}`]]
}

function gatewayFields({ placement, vm, state }: AdminStatus['gateway'], paint: Paint): [string, string][] {
  if (placement === 'off') return [['gateway', 'off']]
  if (placement === 'host') return [['gateway', 'a part of the daemon (inference.placement is "host")']]
  return [['gateway', vm === null ? paint.bad('no VM') : `VM ${vm}, ${paint.word(state ?? '')}`]]
}

function attestedFields({ attested_upstreams: upstreams }: AdminStatus['gateway'], paint: Paint): [string, string][] {
  return upstreams.map(({ name, kind, attested, last_good_at: last }) => {
    const word = attested ? 'attested' : paint.bad('not attested, gets no prompts')
    return ['upstream', `${oneLine(`${name} (${kind})`)}: ${word}, last ${dash(last)}`]
  })
}

function tracesFields({ traces }: AdminStatus['gateway']): [string, string][] {
  if (traces === null) return []
  const { exported, dropped, waiting, problem } = traces
  const why = problem === null ? '' : `; the receiver: ${problem}`
  return [['traces', `${exported} spans exported, ${dropped} dropped, ${waiting} waiting${why}`]]
}

function logFields({ log }: AdminStatus): [string, string][] {
  if (log === null) return [['log', unknown]]
  const { size, shown, last_entry_at: last, waiting_since: since, witnesses } = log
  const newest = last === null ? '' : `, the last ${last}`
  const waiting = since === null ? '' : `; ${size - shown} wait for a witness since ${since}`
  const word = witnesses === 0 ? 'no witness' : `${witnesses} witnesses`
  return [['log', `${size} entries${newest}; ${word}${waiting}`]]
}

function buildsFields({ builds }: AdminStatus): [string, string][] {
  if (builds === null) return []
  const { warm, booting, wanted, reserved, lacking, states, disk_bytes } = builds
  const lack = lacking === null ? '' : `; the next one lacks: ${lacking}`
  return [
    ['builds', `${countsText(states)}; files ${disk_bytes === null ? unknown : bytesText(disk_bytes)}`],
    ['build VMs', `${warm} warm, ${booting} booting, ${wanted} wanted, ${reserved} reserved${lack}`],
  ]
}

function collateralFields({ collateral }: AdminStatus): [string, string][] {
  if (collateral === null) return []
  const { veks } = collateral
  const fetched = (at: string | null) => (at === null ? 'not fetched yet' : `fetched ${at}`)
  return [
    ['collateral', collateral.state],
    ['VEKs', `${veks} of ${collateral.product}, ${fetched(collateral.vek_fetched_at)}`],
    ['chain', fetched(collateral.chain_fetched_at)],
    ['CRL', `${fetched(collateral.crl_fetched_at)}, next update ${collateral.crl_next_update ?? 'unknown'}`],
  ]
}

/** Where the database is damaged. */
const unknown = 'unknown'

function countText(count: number | null): string {
  return count === null ? unknown : String(count)
}

function countsText(counts: { readonly [name: string]: number } | null): string {
  if (counts === null) return unknown
  const parts = Object.entries(counts).filter(([, count]) => count > 0)
  return parts.length === 0 ? 'none' : parts.map(([name, count]) => `${count} ${name}`).join(', ')
}
