// Finds the route of a path, and the error where there is none. Pure.

import { Fault } from '../../base/fault.ts'
import type { ApiShape } from '../openai/shape.ts'
import type { EncryptedExchange } from '../types.ts'

/** `exchange`: null for a plain request. */
export type Received = {
  readonly id: string
  readonly address: () => string
  readonly exchange: EncryptedExchange | null
  /** The path's part at `{id}`, as sent; empty if the route has none. */
  readonly item: string
}

export type Route = {
  readonly methods: readonly string[]
  readonly isPublic: boolean
  /** Format of its errors; null: OpenAI's. */
  readonly shape: ApiShape | null
  readonly respond: (request: Request, received: Received) => Response | Promise<Response>
}

type Found = { readonly template: string; readonly route: Route; readonly item: string }

const itemEnd = '/{id}'

export class RouteTable {
  readonly #byPath = new Map<string, Found>()
  /** With the path's text before the id. */
  readonly #ofItems: (readonly [start: string, Omit<Found, 'item'>])[] = []

  /** By path; a path that ends in `/{id}` matches everything below, slashes included. */
  constructor(routes: readonly (readonly [template: string, Route])[]) {
    for (const [template, route] of routes) {
      if (template.endsWith(itemEnd)) {
        this.#ofItems.push([template.slice(0, 1 - itemEnd.length), { template, route }])
      } else this.#byPath.set(template, { template, route, item: '' })
    }
  }

  find(path: string): Found | null {
    const exact = this.#byPath.get(path)
    if (exact !== undefined) return exact
    const found = this.#ofItems.find(([start]) => path.length > start.length && path.startsWith(start))
    return found === undefined ? null : { ...found[1], item: path.slice(found[0].length) }
  }

  /** Fault not_found, with the routes that the client may know of. `hasKey`: it has shown a good key. */
  notFound(path: string, hasKey: boolean): Fault {
    const meant = this.find(withoutSlips(path))
    const hint = meant !== null && (hasKey || meant.route.isPublic) ? ` Did you mean ${meant.template}?` : ''
    const all = [...this.#byPath.values(), ...this.#ofItems.map(([, item]) => item)]
    const shown = all.filter(({ route }) => hasKey || route.isPublic)
    const names = shown.map(({ template, route }) => `${route.methods[0]} ${template}`).join(', ')
    const rest = hasKey ? '' : ' What needs a key is below /v1/: the base address of an OpenAI client ends in /v1.'
    return new Fault('not_found', `There is no such route.${hint} There are ${names}.${rest}`)
  }
}

/** Without what base addresses and paths often have too much of: slashes, and /v1 twice. */
function withoutSlips(path: string): string {
  const single = path.replaceAll(/\/{2,}/g, '/').replace(/\/$/, '')
  return single.replace(/^(?:\/v1)+(?=\/v1\/)/, '')
}
