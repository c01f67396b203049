// Facts that a verified gateway proved, as one line and as a document. Pure.

import type { Verdict } from '../../attest/verdict.ts'
import { toHex } from '../../base/bytes.ts'
import { harmlessLine } from '../../base/harmless.ts'
import type { WorkloadDocument } from '../../contract/vm/workload.ts'
import { type Paint, verdictWords } from '../../terminal/render.ts'
import type { GatewayVerdict } from '../../verifier/gateway.ts'
import { modelPlaceholder } from './client-setup.ts'

export type GatewayFacts = Pick<Verdict, 'ok'> & {
  readonly simulated: boolean
  readonly image: { readonly name: string; readonly measurement: string } | null
  /** Null if there is no workload.json to name the models. */
  readonly models: { readonly inside: readonly string[]; readonly outside: readonly OutsideModels[] } | null
}

type OutsideModels = { readonly upstream: string; readonly url: string; readonly models: readonly string[] }

export function factsOf({ ok, simulated, gateway, workload }: GatewayVerdict): GatewayFacts {
  const image = gateway && { name: gateway.image.name, measurement: toHex(gateway.image.measurement) }
  return { ok, simulated, image, models: workload && modelsOf(workload) }
}

function modelsOf({ worker, upstreams }: WorkloadDocument): NonNullable<GatewayFacts['models']> {
  return {
    inside: worker === null ? [] : [worker.model],
    outside: upstreams.map(({ name, url, models }) => ({ upstream: name, url, models })),
  }
}

/** Returns the ids that clients can use for models. */
export function modelIds({ models }: GatewayFacts): readonly string[] {
  return models === null ? [] : [...new Set([...models.inside, ...models.outside.flatMap(({ models }) => models)])]
}

/**
 * Returns the first id of printable ASCII without quotes and backslashes, which is safe in every shell and file;
 * otherwise a placeholder. The gateway's operator chooses the ids.
 */
export function exampleModel(facts: GatewayFacts): string {
  return modelIds(facts).find(id => /^[!#-&(-[\]-_a-~]{1,256}$/.test(id)) ?? modelPlaceholder
}

/** Returns one line: the verdict, what runs, and where prompts are sent. */
export function factsLine(host: string, facts: GatewayFacts, paint: Paint): string {
  const { image } = facts
  const runs = image === null ? [] : [`runs image ${image.name} with measurement ${image.measurement}`]
  const words = [...runs, promptsText(facts)].join('; ')
  return `${verdictWords(facts, paint)}: ${harmlessLine(`${host} ${words}`)}`
}

function promptsText({ models }: GatewayFacts): string {
  if (models === null) return 'prompts: it does not say where they go'
  const inside = models.inside.length === 0 ? [] : [`for ${models.inside.join(', ')} stay inside its VM`]
  const outside = models.outside.map(
    ({ upstream, url, models }) => `for ${models.join(', ')} go OUTSIDE to ${upstream} at ${url}`,
  )
  return `prompts ${[...outside, ...inside].join('; ') || 'go nowhere: it has no models'}`
}
