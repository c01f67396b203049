// The operations of the gateway, service B (contract 4.2), and the look-up of a route by its path. Pure.

import { keyConfigPath } from '../../attest/ehbp/protocol.ts'
import { present } from '../../base/assert.ts'
import { Fault } from '../../base/fault.ts'
import type { Operation } from '../../http/operations.ts'
import type { Dialect } from '../openai/dialect.ts'
import type { EncryptedExchange } from '../types.ts'
import { receiptsPath } from './receipts.ts'

export const GATEWAY_OPERATIONS = {
  health: { method: 'GET', path: '/health', isPublic: true },
  attestation: { method: 'GET', path: '/attestation', isPublic: true },
  workload: { method: 'GET', path: '/workload.json', isPublic: true },
  keyConfig: { method: 'GET', path: keyConfigPath, isPublic: true },
  listModels: { method: 'GET', path: '/v1/models', isPublic: false },
  retrieveModel: { method: 'GET', path: '/v1/models/{id}', isPublic: false },
  retrieveReceipt: { method: 'GET', path: `${receiptsPath}{id}`, isPublic: false },
  retrieveUsage: { method: 'GET', path: '/v1/usage', isPublic: false },
  createChatCompletion: { method: 'POST', path: '/v1/chat/completions', isPublic: false },
  createCompletion: { method: 'POST', path: '/v1/completions', isPublic: false },
  createResponse: { method: 'POST', path: '/v1/responses', isPublic: false },
  compactResponse: { method: 'POST', path: '/v1/responses/compact', isPublic: false },
  countInputTokens: { method: 'POST', path: '/v1/responses/input_tokens', isPublic: false },
  listInputItems: { method: 'GET', path: '/v1/responses/{id}/input_items', isPublic: false },
  retrieveResponse: { method: 'GET', path: '/v1/responses/{id}', isPublic: false },
  createMessage: { method: 'POST', path: '/v1/messages', isPublic: false },
  countMessageTokens: { method: 'POST', path: '/v1/messages/count_tokens', isPublic: false },
  createEmbeddings: { method: 'POST', path: '/v1/embeddings', isPublic: false },
  rerank: { method: 'POST', path: '/v1/rerank', isPublic: false },
  retrieveOpenapi: { method: 'GET', path: '/openapi.json', isPublic: true },
} as const satisfies Record<string, Operation>

export type GatewayOperation = keyof typeof GATEWAY_OPERATIONS

export type Received = {
  readonly id: string
  readonly address: () => string
  /** Null for a plain request. */
  readonly exchange: EncryptedExchange | null
  /** The part of the path at `{id}`, as sent; empty for a route without it. */
  readonly item: string
}

export type Route = {
  readonly methods: readonly string[]
  readonly isPublic: boolean
  /** API that defines the form of errors; null for OpenAI's. */
  readonly dialect: Dialect | null
  readonly respond: (request: Request, received: Received) => Response | Promise<Response>
}

type RouteMatch = { readonly template: string; readonly route: Route; readonly item: string }

export type Handler = Pick<Route, 'dialect' | 'respond'>
/** Functions that make the handlers of operations from their dependencies. */
export type HandlerTable<Made> = Readonly<Partial<Record<GatewayOperation, (made: Made) => Handler>>>

/** Returns the routes of a table by path. Routes of GET also serve HEAD, because Bun omits the body. */
export function routesOf<Made>(table: HandlerTable<Made>, made: Made): readonly (readonly [string, Route])[] {
  return (Object.keys(table) as GatewayOperation[]).map(id => {
    const { method, path, isPublic } = GATEWAY_OPERATIONS[id]
    const methods = method === 'GET' ? ['GET', 'HEAD'] : [method]
    const handlerOf = present(table[id], 'a key of the table has a value')
    return [path, { methods, isPublic, ...handlerOf(made) }]
  })
}

type ItemRoute = Omit<RouteMatch, 'item'> & { readonly before: string; readonly after: string }

export class RouteTable {
  readonly #byPath = new Map<string, RouteMatch>()
  readonly #ofItems: ItemRoute[] = []

  /**
   * Builds the table. A template with `{id}` matches every path with a text in its place, slashes included. If several
   * templates match, the first counts.
   */
  constructor(routes: readonly (readonly [template: string, Route])[]) {
    for (const [template, route] of routes) {
      const [before = '', after] = template.split('{id}')
      if (after === undefined) this.#byPath.set(template, { template, route, item: '' })
      else this.#ofItems.push({ template, route, before, after })
    }
  }

  find(path: string): RouteMatch | null {
    const exact = this.#byPath.get(path)
    if (exact !== undefined) return exact
    const found = this.#ofItems.find(({ before, after }) => {
      return path.length > before.length + after.length && path.startsWith(before) && path.endsWith(after)
    })
    if (found === undefined) return null
    const { template, route, before, after } = found
    return { template, route, item: path.slice(before.length, path.length - after.length) }
  }

  /**
   * Returns Fault not_found that names the routes this client may see: all with a valid key, otherwise the public ones.
   */
  notFound(path: string, hasKey: boolean): Fault {
    const meant = this.find(withoutSlips(path))
    const hint = meant !== null && (hasKey || meant.route.isPublic) ? ` Did you mean ${meant.template}?` : ''
    const all = [...this.#byPath.values(), ...this.#ofItems]
    const shown = all.filter(({ route }) => hasKey || route.isPublic)
    const names = shown.map(({ template, route }) => `${route.methods[0]} ${template}`).join(', ')
    const rest = hasKey ? '' : ' Routes that need a key are below /v1/: the base URL of an OpenAI client ends in /v1.'
    return new Fault('not_found', `Route not found.${hint} Available: ${names}.${rest}`)
  }
}

/** Removes repeated and trailing slashes and a repeated /v1, which base addresses often add. */
function withoutSlips(path: string): string {
  const single = path.replaceAll(/\/{2,}/g, '/').replace(/\/$/, '')
  return single.replace(/^(?:\/v1)+(?=\/v1\/)/, '')
}
