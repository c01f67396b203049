// The models that clients may ask for: those of all upstreams, each once, in their order. Pure.

import type { GatewayModelList } from '../../contract/inference.ts'

export type Catalog = {
  readonly has: (model: string) => boolean
  readonly list: GatewayModelList
}

export function createCatalog(upstreams: readonly { readonly models: readonly string[] }[], ownedBy: string): Catalog {
  const ids = new Set(upstreams.flatMap(({ models }) => models))
  return {
    has: model => ids.has(model),
    list: { object: 'list', data: [...ids].map(id => ({ id, object: 'model', owned_by: ownedBy })) },
  }
}
