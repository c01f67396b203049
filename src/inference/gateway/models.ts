// The models that the gateway serves, as its clients are told of them. Pure.

import { Fault } from '../../base/fault.ts'
import type { GatewayModel, GatewayModelList } from '../../contract/inference.ts'

export type ModelCatalog = {
  /** JSON of the list. */
  readonly listText: string
  /** JSON of one model by the path's text, percent-encoded or not; null for an unknown one. */
  readonly textOf: (item: string) => string | null
}

export function createModelCatalog(
  ids: ReadonlySet<string>,
  { created, ownedBy }: { readonly created: number; readonly ownedBy: string },
): ModelCatalog {
  const data = [...ids].map((id): GatewayModel => ({ id, object: 'model', created, owned_by: ownedBy }))
  const list: GatewayModelList = { object: 'list', data }
  const texts = new Map(data.map(model => [model.id, JSON.stringify(model)]))
  return {
    listText: JSON.stringify(list),
    textOf: item => texts.get(decoded(item) ?? '') ?? texts.get(item) ?? null,
  }
}

/** Null for text that is not percent-encoded UTF-8. */
function decoded(item: string): string | null {
  try {
    return decodeURIComponent(item)
  } catch {
    return null
  }
}

/** Fault not_found. */
export function noSuchModel(): Fault {
  return new Fault('not_found', 'There is no such model; see /v1/models.')
}
