// strongroom status: what the daemon serves and how much is in use. Effects: one request to the daemon.

import { AdminStatus } from '../../contract/admin/admin.ts'
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
  const { capacity, problems } = status
  const simulated = status.evidence_simulated ? ` (evidence is ${paint.bad('SIMULATED')})` : ''
  return fields(paint, [
    ['ready', problems.length === 0 ? 'yes' : paint.bad('no')],
    ...problems.map(({ name, detail, remedy }): [string, string] => [name, oneLine(`${detail}; ${remedy}`)]),
    ...clockFields(status, paint),
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
    ...namesFields(status),
    ['certificate', `${status.tls.source}, until ${status.tls.expires_at}`],
    ['authority', dash(status.tls.ca_file)],
    ...acmeFields(status, paint),
    ...formerFields(status),
    ['operator key', status.operator_key.digest],
    ...logFields(status, paint),
    backupField(status, paint),
    ...(status.budgets_near ?? []).map((near): [string, string] => ['budget', nearText(near)]),
    ...fleetFields(status, paint),
    ...collateralFields(status, paint),
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

function acmeFields({ tls: { acme } }: AdminStatus, paint: Paint): [string, string][] {
  return (acme ?? []).map(({ name, expires_at, failure }) => {
    const until = expires_at === null ? 'none yet' : `until ${expires_at}`
    return [
      'by ACME',
      oneLine(`${name}: ${until}`) + (failure === null ? '' : `, ${paint.bad('failed')}: ${oneLine(failure.detail)}`),
    ]
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

function backupField({ backups }: AdminStatus, paint: Paint): [string, string] {
  const { state, last, nightly, problem, remedy } = backups
  const made = last === null ? 'none is known' : oneLine(`${last.at}, ${bytesText(last.bytes)}, ${last.file}`)
  if (state === 'none' && !nightly) return ['backup', 'none yet: strongroom help backup']
  const next = nightly ? '; the timer makes one each night' : '; the nightly timer is off'
  const wrong = problem === null ? '' : `; ${paint.bad(state)}: ${oneLine(`${problem}; ${remedy}`)}`
  return ['backup', `${made}${next}${wrong}`]
}

/** A trusted clock needs no line. */
function clockFields({ clock }: AdminStatus, paint: Paint): [string, string][] {
  const { problem, remedy } = clock
  return problem === null ? [] : [['clock', `${paint.bad('held')}: ${oneLine(`${problem}; ${remedy}`)}`]]
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
  const failure = pool.last_failure
  return [
    ['warm pool', `${pool.warm} warm, ${pool.booting} booting, ${pool.wanted} wanted${lacking}`],
    ...(failure === null
      ? []
      : [['pool failure', `${failure.at}: ${failure.reason}${next}`] satisfies [string, string]]),
  ]
}

function gatewayFields({ placement, vm, state, problem }: AdminStatus['gateway'], paint: Paint): [string, string][] {
  if (placement === 'off') return [['gateway', 'off']]
  if (placement === 'host') return [['gateway', 'a part of the daemon (inference.placement is "host")']]
  const found = vm === null ? paint.bad('no VM') : `VM ${vm}, ${paint.word(state ?? '')}`
  return [['gateway', problem === null ? found : `${found}: ${problem}`]]
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

function logFields({ log }: AdminStatus, paint: Paint): [string, string][] {
  if (log === null) return [['log', unknown]]
  const { size, shown, last_entry_at: last, waiting_since: since, witnesses, problems } = log
  const newest = last === null ? '' : `, the last ${last}`
  const waiting = since === null ? '' : `; ${size - shown} wait for a witness since ${since}`
  const word = witnesses === 0 ? 'no witness' : `${witnesses} witnesses`
  return [
    ['log', `${size} entries${newest}; ${word}${waiting}`],
    ...problems.map(({ witness, severe, detail, remedy }): [string, string] => {
      const what = oneLine(witness === null ? detail : `${witness}: ${detail}`)
      return [witness === null ? 'log' : 'log witness', `${severe ? paint.bad(what) : what}; ${oneLine(remedy)}`]
    }),
  ]
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

function collateralFields({ collateral }: AdminStatus, paint: Paint): [string, string][] {
  if (collateral === null) return []
  const { veks, problem, remedy } = collateral
  const fetched = (at: string | null) => (at === null ? 'not fetched yet' : `fetched ${at}`)
  const word = collateral.state === 'good' ? 'good' : paint.bad(collateral.state)
  return [
    ['collateral', `${word}${problem === null ? '' : `: ${problem}; ${remedy}`}`],
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

function nearText(near: NonNullable<AdminStatus['budgets_near']>[number]): string {
  const { organization, key, period, kind, percent } = near
  const whose = key === null ? organization : `key ${key} of ${organization}`
  return `${percent} % of the ${kind === 'usd' ? 'money' : 'tokens'} of ${whose} for ${period} are spent`
}
