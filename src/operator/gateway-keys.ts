// The admin interface's part for the inference gateway: its keys, and metrics. Effects: the store. Every change appends an event.

import { Type } from '@sinclair/typebox'
import { Elysia } from 'elysia'
import { present } from '../base/assert.ts'
import { type Clock, iso, isoOrNull } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import {
  AdminGatewayKey,
  AdminGatewayKeyCreate,
  AdminGatewayKeyCreated,
  AdminGatewayKeyList,
  Slug,
} from '../contract/admin.ts'
import type { MintedGatewayKey } from '../inference/keys/authenticate.ts'
import type { MetricsHandler } from '../inference/metrics/metrics.ts'
import type { Store } from '../store/db.ts'
import {
  findGatewayKey,
  insertGatewayKey,
  listGatewayKeys,
  revokeGatewayKey,
} from '../store/directory/gateway-key.query.ts'
import type { GatewayKey } from '../store/directory/gateway-key.table.ts'
import { organizationById } from '../store/directory/organization.query.ts'
import { appendEvent, type NewEvent } from '../store/ledger/event.query.ts'
import type { AdminHandler } from './api.ts'
import { adminFault, adminProblem } from './problem.ts'
import { organizationBySlug } from './view.ts'

export type GatewayAdminDeps = {
  readonly store: Pick<Store, 'directory' | 'ledger'>
  readonly clock: Pick<Clock, 'nowMs'>
  readonly random: RandomBytes
  readonly log: Logger
  readonly mintKey: (random: RandomBytes) => MintedGatewayKey
  readonly metrics: MetricsHandler
}

/** Takes the gateway's routes and leaves every other request to `next`. */
export function createGatewayAdmin(deps: GatewayAdminDeps, next: AdminHandler): AdminHandler {
  const { log } = deps
  const operator = createOperator(deps)
  const bySlug = { params: Type.Object({ slug: Slug }) }
  const app = new Elysia({ normalize: false })
    .onError(({ error, set }) => {
      const fault = adminFault(error)
      if (fault.status >= 500) log.error('admin request failed', { error })
      set.status = fault.status
      return adminProblem(fault)
    })
    .get('/metrics', () => deps.metrics())
    .get('/organizations/:slug/gateway-keys', ({ params }) => ({ keys: operator.list(params.slug) }), {
      ...bySlug,
      response: AdminGatewayKeyList,
    })
    .post(
      '/organizations/:slug/gateway-keys',
      ({ params, body, set }) => {
        set.status = 201
        return operator.create(params.slug, body)
      },
      { ...bySlug, body: AdminGatewayKeyCreate, parse: 'json', response: { 201: AdminGatewayKeyCreated } },
    )
    .post('/gateway-keys/:prefix/revoke', ({ params }) => operator.revoke(params.prefix), {
      params: Type.Object({ prefix: Type.String({ maxLength: 64 }) }),
      response: AdminGatewayKey,
    })
  return request => {
    const { pathname } = new URL(request.url)
    const isOurs = pathname === '/metrics' || /^\/(?:organizations\/[^/]+\/)?gateway-keys(?:\/|$)/.test(pathname)
    return isOurs ? app.fetch(request) : next(request)
  }
}

const mintAttemptsMax = 8

/** Each change commits in the directory first; the event follows in this host's journal. */
function createOperator({ store, clock, random, mintKey }: GatewayAdminDeps) {
  const { directory } = store
  const append = (event: NewEvent) => appendEvent(store.ledger.db, event)
  const view = (key: GatewayKey, organization: string): AdminGatewayKey => ({
    prefix: key.prefix,
    organization,
    instance: key.instanceId,
    state: stateOf(key, clock.nowMs()),
    requests_per_minute: key.requestsPerMinute,
    tokens_per_minute: key.tokensPerMinute,
    concurrency_max: key.concurrencyMax,
    expires_at: isoOrNull(key.expiresAtMs),
    created_at: iso(key.createdAtMs),
    last_used_at: isoOrNull(key.lastUsedAtMs),
    revoked_at: isoOrNull(key.revokedAtMs),
  })
  return {
    list: (slug: string): AdminGatewayKey[] =>
      listGatewayKeys(directory.db, organizationBySlug(directory.db, slug).id).map(key => view(key, slug)),
    create: (slug: string, terms: AdminGatewayKeyCreate): AdminGatewayKeyCreated => {
      const nowMs = clock.nowMs()
      const { organizationId, key, prefix, expiresAtMs } = directory.transact(tx => {
        const organizationId = organizationBySlug(tx, slug).id
        const expiresAtMs = terms.expires_at === null ? null : expiry(terms.expires_at, nowMs)
        for (let attempt = 1; attempt <= mintAttemptsMax; attempt += 1) {
          const { key, prefix, secretSha256 } = mintKey(random)
          const inserted = insertGatewayKey(tx, {
            prefix,
            organizationId,
            instanceId: null,
            secretSha256,
            requestsPerMinute: terms.requests_per_minute,
            tokensPerMinute: terms.tokens_per_minute,
            concurrencyMax: terms.concurrency_max,
            expiresAtMs,
            nowMs,
          })
          if (inserted) return { organizationId, key, prefix, expiresAtMs }
        }
        throw new Fault('internal', `no free gateway key prefix in ${mintAttemptsMax} attempts`)
      })
      append({ nowMs, kind: 'gateway_key.created', subject: organizationId, detail: { slug, prefix } })
      return {
        ...terms,
        key,
        prefix,
        organization: slug,
        expires_at: isoOrNull(expiresAtMs),
        created_at: iso(nowMs),
      }
    },
    /** Idempotent; the first revocation's time stays. */
    revoke: (prefix: string): AdminGatewayKey => {
      const nowMs = clock.nowMs()
      const { key, slug, changed } = directory.transact(tx => {
        const before = findGatewayKey(tx, prefix)
        if (before === null) {
          throw new Fault('not_found', `there is no gateway key with prefix ${prefix}`, { param: 'prefix' })
        }
        const changed = before.revokedAtMs === null
        if (changed) revokeGatewayKey(tx, { prefix, nowMs })
        const { slug } = present(organizationById(tx, before.organizationId), 'a key has an organization')
        return { key: present(findGatewayKey(tx, prefix), 'a revoked key stays'), slug, changed }
      })
      if (changed) append({ nowMs, kind: 'gateway_key.revoked', subject: key.organizationId, detail: { prefix } })
      return view(key, slug)
    },
  }
}

function stateOf(key: GatewayKey, nowMs: number): AdminGatewayKey['state'] {
  if (key.revokedAtMs !== null) return 'revoked'
  return key.expiresAtMs !== null && key.expiresAtMs <= nowMs ? 'expired' : 'active'
}

/** A day (it expires as the day begins, UTC) or a time in UTC. Fault invalid_request. */
function expiry(text: string, nowMs: number): number {
  const time = /^(\d{4}-\d{2}-\d{2})(T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?Z)?$/.exec(text)
  const atMs = time === null ? Number.NaN : Date.parse(time[2] === undefined ? `${text}T00:00Z` : text)
  // The 30th of February is parsed as a day in March.
  if (Number.isNaN(atMs) || iso(atMs).slice(0, 10) !== time?.[1]) {
    throw new Fault(
      'invalid_request',
      `${JSON.stringify(text)} is no date (2027-01-31) or time in UTC (2027-01-31T12:00:00Z)`,
      {
        param: 'expires_at',
      },
    )
  }
  if (atMs <= nowMs) throw new Fault('invalid_request', `${text} is not in the future`, { param: 'expires_at' })
  return atMs
}
