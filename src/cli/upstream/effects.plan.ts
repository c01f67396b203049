// Describes the effects of changed upstreams on instances and clients. Pure.

import { hasWorker } from '../../config/checks/worker.ts'
import type { Config } from '../../config/schema.ts'

/** The gateway after a change. */
export type GatewayNow = {
  /** HOST_DATA of its reports; null if it is not known yet. */
  readonly workloadSha256: string | null
}

const listedMax = 20

/**
 * Reports whether running instances stop sending prompts when the upstreams change. Their claims name the workload.json
 * of a gateway that has evidence; one without evidence may change at any time.
 */
export function stopsPrompts({ listen, inference, instances }: Config): boolean {
  if (listen.inference === '' || instances.inference_base_url !== '') return false
  return inference.placement === 'vm' && hasWorker(inference.worker)
}

/** `instances`: null if they are not known. `accept`: what their owners have to accept. */
export function confirmText(instances: readonly string[] | null, accept: readonly string[]): string {
  const which =
    instances === null
      ? 'Instances that run now (the daemon does not answer, so they are not listed)'
      : `${instances.length} ${instances.length === 1 ? 'instance' : 'instances'} (${listed(instances)})`
  return `${which} will send no prompt until each owner accepts the new gateway. In the instance, with the digest that you publish afterwards:\n  ${ownerCommand('SHA256', accept)}`
}

function listed(names: readonly string[]): string {
  const rest = names.length - listedMax
  return `${names.slice(0, listedMax).join(', ')}${rest > 0 ? `, and ${rest} more` : ''}`
}

/** The command by which an owner accepts a new gateway, inside the instance. */
export function ownerCommand(workload: string, accept: readonly string[]): string {
  return ['strongroom-gateway accept', workload, ...accept].join(' ')
}

export type AddedUpstream = {
  readonly name: string
  readonly url: string
  readonly model: string
  readonly contextTokens: number | null
  readonly isFree: boolean
  readonly isEmbedding: boolean
  /** `NAME=ORIGIN`. */
  readonly entry: string
}

/** Lists the consequences of an added upstream, one line each. `gateway`: null if no gateway VM serves with it yet. */
export function afterAdd(added: AddedUpstream, config: Config, gateway: GatewayNow | null): string[] {
  const { name, url, model, contextTokens, isFree, isEmbedding, entry } = added
  return [
    ...afterChange(config, gateway, [entry]),
    ...clientLines(config, entry),
    ...(isEmbedding || config.instances.inference_base_url !== ''
      ? []
      : config.instances.inference_models[0] === model
        ? [`new instances use ${model}`]
        : [`new instances may use ${model} (inference_model of the create request)`]),
    ...(url.startsWith('https:') ? [] : [`this host and the network read every prompt to ${name}: its URL is http`]),
    ...(contextTokens === null
      ? [
          `${name} does not report its context size: set context_tokens, so that requests without max_tokens reserve less of a budget`,
        ]
      : []),
    ...(isFree ? [`${model} costs 0: a budget in dollars does not stop it, one in tokens does`] : []),
    'to see it answer, send a request with a gateway key: strongroom help inference',
  ]
}

/** Lists the consequences of any change of the upstreams, one line each. */
export function afterChange(config: Config, gateway: GatewayNow | null, accept: readonly string[]): string[] {
  const fleet = config.fleet.database === '' ? [] : ['make the same change on each host of the fleet']
  if (!stopsPrompts(config)) return fleet
  const workload = gateway?.workloadSha256 ?? null
  return [
    ...fleet,
    workload === null
      ? 'publish the new SHA-256 of workload.json: strongroom inference show --json has it when the new VM serves'
      : `publish the new SHA-256 of workload.json: ${workload}`,
    `owners of running instances accept it there: ${ownerCommand(workload ?? 'SHA256', accept)}`,
  ]
}

function clientLines({ inference }: Config, entry: string): string[] {
  if (inference.placement === 'host') return []
  if (hasWorker(inference.worker)) {
    return [`clients of the gateway allow it: --allow-outside ${entry} (strongroom verify gateway, connect)`]
  }
  return [
    'the gateway has no model inside its VM, so it has no evidence: owners need `strongroom client init --unattested-gateway no-worker`, and `strongroom connect` refuses it (strongroom help gateway)',
  ]
}
