// Problems of the inference gateway: no VM serves, no model is served, an upstream is down, usage is not booked. Pure.

import type { AdminStatus } from '../../contract/admin/admin.ts'
import type { AdminGatewayVms } from '../../contract/admin/gateway-vms.ts'
import type { FoundProblem } from '../../contract/admin/problems.ts'

/** An upstream or the built-in worker, as the daemon and the gateway observe it. */
export type ObservedUpstream = {
  readonly name: string
  readonly models: readonly string[]
  /** Whether it is the gateway's own worker. */
  readonly isWorker: boolean
  /** Why it gets no requests or does not answer as it should; null if nothing is known to be wrong. */
  readonly problem: string | null
  /** Whether it cannot serve requests because of that. */
  readonly isDown: boolean
  /** Present if it answers its probe with another status than 200. `keyFile`: "" without a key. */
  readonly refusal?: { readonly status: number; readonly keyFile: string }
  /** Since when; null if unknown. */
  readonly sinceMs: number | null
}

export type GatewayFacts = {
  readonly upstreams: readonly ObservedUpstream[]
  /** VMs of the gateway. Empty if it has none. */
  readonly gatewayVms: AdminGatewayVms['gateways']
}

/** In good order, usage is booked within a second. */
const usageWaitMsMax = 60_000
/** Models that a detail names. */
const namedModels = 5

export function gatewayProblems(
  gateway: AdminStatus['gateway'],
  { upstreams, gatewayVms }: GatewayFacts,
  nowMs: number,
): FoundProblem[] {
  if (gateway.placement === 'off') return []
  const vm = vmProblems(gateway, gatewayVms)
  const observed = upstreams.map(upstream => attestedOf(upstream, gateway.attested_upstreams))
  return [
    ...vm,
    // Without a VM there is no gateway that could serve a model.
    ...(vm.some(({ severity }) => severity === 'critical') ? [] : modelProblems(observed)),
    ...observed.flatMap(upstreamProblem),
    ...gatewayVms.flatMap(row => usageProblem(row, nowMs)),
  ]
}

const VM_REMEDY =
  'see `strongroom inference show` and `strongroom inference logs`, and the log of the daemon; `strongroom doctor` checks the image and the model'

function vmProblems(gateway: AdminStatus['gateway'], gatewayVms: GatewayFacts['gatewayVms']): FoundProblem[] {
  const { placement, state, vm, problem } = gateway
  if (placement !== 'vm' || (state === 'serving' && problem === null)) return []
  const row = gatewayVms.find(found => found.vm === vm)
  const found = { name: 'gateway', subject: null, sinceMs: row === undefined ? null : Date.parse(row.since) } as const
  if (state === 'serving')
    return [{ ...found, severity: 'warning', detail: `VM ${vm} serves: ${problem}`, remedy: VM_REMEDY }]
  const isStarting = state === 'starting' && problem === null
  const detail = isStarting
    ? `no gateway VM serves yet: ${vm} is starting`
    : `no gateway VM serves: ${problem ?? 'none has been started'}`
  const remedy = isStarting ? `wait until it serves; if it does not, ${VM_REMEDY}` : VM_REMEDY
  return [{ ...found, severity: 'critical', detail, remedy }]
}

/** Evidence decides whether an attested upstream gets prompts. */
function attestedOf(
  upstream: ObservedUpstream,
  attested: AdminStatus['gateway']['attested_upstreams'],
): ObservedUpstream {
  const row = attested.find(({ name }) => name === upstream.name)
  if (row === undefined || row.attested || upstream.problem !== null) return upstream
  const counts = row.failures.map(({ check, count }) => `${check} ${count}`).join(', ')
  const last = row.last_good_at === null ? 'never verified' : `last verified ${row.last_good_at}`
  return { ...upstream, isDown: true, problem: `not attested (${last}${counts === '' ? '' : `; failures: ${counts}`})` }
}

const NO_MODEL_REMEDY =
  'name a server in [[inference.upstreams]], or a model file in inference.worker.model_file; without a gateway set listen.inference to ""'

function modelProblems(upstreams: readonly ObservedUpstream[]): FoundProblem[] {
  const found = { name: 'models', subject: null, severity: 'critical' } as const
  if (upstreams.length === 0) {
    const detail = 'the gateway serves no model: neither an upstream nor a model of its own is configured'
    return [{ ...found, sinceMs: null, detail, remedy: NO_MODEL_REMEDY }]
  }
  const served = new Set(upstreams.filter(({ isDown }) => !isDown).flatMap(({ models }) => models))
  const missing = [...new Set(upstreams.flatMap(({ models }) => models))].filter(model => !served.has(model))
  if (missing.length === 0) return []
  const names = missing.slice(0, namedModels).join(', ') + (missing.length > namedModels ? ', …' : '')
  const detail =
    served.size === 0
      ? `the gateway serves no model: none of its upstreams can answer (${names})`
      : `${missing.length} of the configured models are not served: ${names}`
  const remedy = 'the problems `upstream` of this list have the causes'
  return [{ ...found, sinceMs: null, detail, remedy }]
}

const UPSTREAM_REMEDY =
  'see that the server runs and that this host reaches it: the gateway then uses it again by itself; after a change of inference.upstreams.url or ca_file, `systemctl restart strongroom`'
const ATTESTED_REMEDY =
  'the log of the gateway has the reason (strongroom inference logs, or that of the daemon): connection, tls- and evidence- mean that no evidence arrived, collateral needs a newer attestation_collateral, and attestation_policy refuses the rest; change the policy only if the upstream was changed on purpose'
const WORKER_REMEDY =
  'see `strongroom inference logs` and the log of the daemon; `strongroom doctor` checks the model and the image'

/** Files of upstreams and the configuration are read at the start alone. */
const RESTART = 'then `systemctl restart strongroom`, because the daemon reads it when it starts (VMs continue)'

/** `isDown`: the gateway sends it no requests. */
function refusalRemedy({ status, keyFile }: NonNullable<ObservedUpstream['refusal']>, isDown: boolean): string {
  const may = isDown ? '' : '; it may answer requests all the same, and the gateway sends them to it'
  switch (status) {
    case 401:
    case 403:
      return keyFile === ''
        ? `it requires an API key, and none is configured: write one into a file, name the file in inference.upstreams.key_file, ${RESTART}`
        : `it does not accept the key in ${keyFile}: put a valid one there, ${RESTART}`
    case 404:
      return `it has no such path: correct inference.upstreams.url, which usually ends in /v1, ${RESTART}${may}`
    default:
      return `the log of that server has the reason${may}`
  }
}

function upstreamProblem({ name, isWorker, problem, isDown, refusal, sinceMs }: ObservedUpstream): FoundProblem[] {
  if (problem === null) return []
  const isUnattested = problem.startsWith('not attested')
  const reached = refusal === undefined ? UPSTREAM_REMEDY : refusalRemedy(refusal, isDown)
  const remedy = isWorker ? WORKER_REMEDY : isUnattested ? ATTESTED_REMEDY : reached
  const detail = isUnattested ? `${name} gets no prompts: ${problem}` : `${name}: ${problem}`
  return [{ name: 'upstream', subject: name, severity: 'warning', sinceMs, detail, remedy }]
}

const USAGE_REMEDY =
  'keep the VM running, because these rows end with it, and correct what the log of the daemon names; with too many of them the gateway answers 503'

function usageProblem(
  { vm, usage_waiting, usage_waiting_since: since, problem }: GatewayFacts['gatewayVms'][number],
  nowMs: number,
): FoundProblem[] {
  if (since === null || nowMs - Date.parse(since) < usageWaitMsMax) return []
  const why = problem === null ? '' : `: ${problem}`
  const detail = `${usage_waiting} rows of usage of ${vm} wait since ${since}, and none is booked${why}`
  return [
    { name: 'usage', subject: vm, severity: 'critical', sinceMs: Date.parse(since), detail, remedy: USAGE_REMEDY },
  ]
}
