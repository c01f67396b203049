// Keys of the inference gateway in the admin interface. Effects: the store. A change commits in the directory; its
// event follows in this host's journal.

import { Elysia } from 'elysia'
import { present } from '../base/assert.ts'
import { iso, isoOrNull } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import {
  AdminGatewayKey,
  AdminGatewayKeyAdd,
  AdminGatewayKeyCreate,
  AdminGatewayKeyCreated,
  AdminGatewayKeyList,
  AdminGatewayKeySet,
} from '../contract/admin/admin.ts'
import type { KeyRegistration } from '../contract/admin/key-registration.ts'
import { nanoUsdText } from '../contract/http/usd.ts'
import type { KeyMaker, KeyRules, OfferedModels } from '../contract/key-rules.ts'
import { rulesProblem } from '../contract/key-rules-problem.ts'
import { documentBytesMax } from '../contract/vm/enclave.ts'
import { mintUnused } from '../http/bearer.ts'
import type { DirectoryDb } from '../store/db.ts'
import {
  findGatewayKey,
  type GatewayKeyTerms,
  gatewayKeyRulesBytes,
  insertGatewayKey,
  listGatewayKeys,
  prefixOfGatewayKeyName,
  revokeGatewayKey,
  setGatewayKeyTerms,
} from '../store/directory/gateway-key.query.ts'
import type { GatewayKey } from '../store/directory/gateway-key.table.ts'
import { organizationById } from '../store/directory/organization.query.ts'
import { monthOf } from '../store/directory/usage/periods.ts'
import { prepareMonthSum } from '../store/directory/usage/usage-month.query.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import { budgetView, checkPriced, hasUsdBudget, keyBudgetTerms, userBudgetView } from './budget.ts'
import type { AdminDeps, ReadBody } from './deps.ts'
import { putInForce } from './in-force.ts'
import { byPrefix, checkNameIsFree, prefixTaken, readNamedBody, readRegistrationBody, registrationOf } from './keys.ts'
import { bySlug, organizationBySlug, presentOrganization } from './organizations.ts'

/** Half of the maximum size of a control snapshot (contract/vm/enclave.ts). */
const rulesBytesMax = documentBytesMax.control / 2

type GatewayKeysDeps = Pick<
  AdminDeps,
  'store' | 'clock' | 'log' | 'random' | 'mintGatewayKey' | 'gateway' | 'offeredModels' | 'unpricedModels' | 'fleet'
>

export function gatewayKeyRoutes(deps: GatewayKeysDeps, readBody: ReadBody) {
  return new Elysia({ normalize: false })
    .get('/organizations/:slug/gateway-keys', async ({ params }) => ({ keys: await list(deps, params.slug) }), {
      params: bySlug,
      response: AdminGatewayKeyList,
    })
    .post(
      '/organizations/:slug/gateway-keys',
      async ({ params, body, set }) => {
        const created = await create(deps, params.slug, body)
        await putInForce(deps)
        set.status = 201
        return created
      },
      {
        params: bySlug,
        body: AdminGatewayKeyCreate,
        parse: readNamedBody(readBody),
        response: { 201: AdminGatewayKeyCreated },
      },
    )
    .post(
      '/organizations/:slug/gateway-keys/add',
      async ({ params, body, set }) => {
        const added = await add(deps, params.slug, body)
        await putInForce(deps)
        set.status = 201
        return added
      },
      {
        params: bySlug,
        body: AdminGatewayKeyAdd,
        parse: readNamedBody(readRegistrationBody(readBody, 'gw')),
        response: { 201: AdminGatewayKey },
      },
    )
    .post(
      '/gateway-keys/:prefix/terms',
      async ({ params, body }) => {
        const changed = await setTerms(deps, params.prefix, body)
        await putInForce(deps)
        return changed
      },
      { params: byPrefix, body: AdminGatewayKeySet, parse: readBody, response: AdminGatewayKey },
    )
    .post(
      '/gateway-keys/:prefix/revoke',
      async ({ params }) => {
        const revoked = await revoke(deps, params.prefix)
        await putInForce(deps)
        return revoked
      },
      { params: byPrefix, response: AdminGatewayKey },
    )
}

/** Returns an organization's keys. Throws Fault not_found. */
async function list(deps: GatewayKeysDeps, slug: string): Promise<AdminGatewayKey[]> {
  const { db } = deps.store.directory
  const { id } = organizationBySlug(db, slug)
  await deps.store.directory.refreshSamples('gateway_key_uses', id)
  const parts = await viewParts(deps, id)
  return listGatewayKeys(db, id).map(key => gatewayKeyView(key, { slug, ...parts }))
}

async function viewParts({ store, clock, fleet }: GatewayKeysDeps, organizationId: string) {
  const nowMs = clock.nowMs()
  const held = await fleet.held({ month: monthOf(nowMs), organizationId })
  return { nowMs, held, monthSum: prepareMonthSum(store.directory.db) }
}

/** Creates a key. Faults: those of `insertChosen`, and internal (no free prefix). */
async function create(
  deps: GatewayKeysDeps,
  slug: string,
  terms: AdminGatewayKeyCreate,
): Promise<AdminGatewayKeyCreated> {
  const { random, mintGatewayKey } = deps
  const { chosen, row } = await insertChosen(deps, { slug, terms, madeBy: 'host' }, insert =>
    mintUnused(() => mintGatewayKey(random), insert),
  )
  return {
    ...terms,
    models: row.models,
    aliases: row.aliases,
    budget_usd: row.budgetNanoUsd === null ? null : nanoUsdText(BigInt(row.budgetNanoUsd)),
    budget_tokens: row.budgetTokens,
    key: chosen.key,
    prefix: row.prefix,
    name: row.name,
    organization: slug,
    expires_at: isoOrNull(row.expiresAtMs),
    created_at: iso(row.createdAtMs),
  }
}

/**
 * Adds a registered key. Faults: those of `insertChosen`, invalid_request (the line), conflict (the prefix is taken).
 */
async function add(
  deps: GatewayKeysDeps,
  slug: string,
  { registration, ...terms }: AdminGatewayKeyAdd,
): Promise<AdminGatewayKey> {
  const registered = registrationOf(registration, 'gw')
  const { row } = await insertChosen(deps, { slug, terms, madeBy: 'client' }, insert => {
    if (!insert(registered)) throw prefixTaken(registered.prefix)
    return registered
  })
  return gatewayKeyView(row, { slug, ...(await viewParts(deps, row.organizationId)) })
}

type NewKey = { readonly slug: string; readonly terms: AdminGatewayKeyCreate; readonly madeBy: KeyMaker }

/**
 * Inserts the key that `choose` selects; its argument returns false if the prefix is taken. Faults: not_found,
 * invalid_request (the end, the rules), conflict (too many rules, the name is taken), and those of `choose`.
 */
async function insertChosen<Chosen extends KeyRegistration>(
  { store, clock, log, offeredModels, unpricedModels }: GatewayKeysDeps,
  { slug, terms, madeBy }: NewKey,
  choose: (insert: (key: KeyRegistration) => boolean) => Chosen,
): Promise<{ readonly chosen: Chosen; readonly row: GatewayKey }> {
  const nowMs = clock.nowMs()
  const name = terms.name ?? null
  const rules = checkedRules({ models: terms.models ?? null, aliases: terms.aliases ?? null }, offeredModels)
  checkPriced(terms, { models: rules.models, unpriced: unpricedModels })
  const budget = keyBudgetTerms(terms, { budgetNanoUsd: null, budgetTokens: null, shortBudgets: null })
  const inserted = await store.directory.change(tx => {
    const { id: organizationId } = presentOrganization(tx, slug)
    if (name !== null) checkNameIsFree(name, prefixOfGatewayKeyName(tx, { organizationId, name, nowMs }))
    const expiresAtMs = terms.expires_at === null ? null : parseExpiry(terms.expires_at, nowMs)
    const chosen = choose(({ prefix, secretSha256 }) =>
      insertGatewayKey(tx, {
        prefix,
        organizationId,
        instanceId: null,
        secretSha256,
        isClientMade: madeBy === 'client',
        name,
        requestsPerMinute: terms.requests_per_minute,
        tokensPerMinute: terms.tokens_per_minute,
        concurrencyMax: terms.concurrency_max,
        expiresAtMs,
        ...rules,
        ...budget,
        nowMs,
      }),
    )
    if (rules.models !== null || rules.aliases !== null) checkRulesBytes(tx)
    return { chosen, row: keyByPrefix(tx, chosen.prefix) }
  })
  const { prefix, organizationId } = inserted.row
  const detail = { slug, prefix, name, made_by: madeBy }
  noteEvent(store.ledger.db, log, { nowMs, kind: 'gateway_key.created', subject: organizationId, detail })
  return inserted
}

/**
 * Changes a key's terms. Only a change causes an event. Faults: not_found, invalid_request, conflict (a revoked key,
 * too many rules).
 */
async function setTerms(deps: GatewayKeysDeps, prefix: string, asked: AdminGatewayKeySet): Promise<AdminGatewayKey> {
  const { store, clock, log } = deps
  const nowMs = clock.nowMs()
  const { key, slug, changed } = await store.directory.change(tx => {
    const before = keyByPrefix(tx, prefix)
    if (before.revokedAtMs !== null)
      throw new Fault('conflict', `gateway key ${prefix} is revoked`, { param: 'prefix' })
    const terms = changedTerms(before, { asked, nowMs, offered: deps.offeredModels })
    // Other models bring a present budget in dollars to models that may have no price.
    const isWidened = asked.models !== undefined && hasUsdBudget(terms)
    checkPriced(asked, { models: terms.models, unpriced: deps.unpricedModels, isWidened })
    const names = Object.keys(terms) as (keyof typeof terms)[]
    const changed = names.filter(name => JSON.stringify(terms[name]) !== JSON.stringify(before[name]))
    if (changed.length > 0) {
      setGatewayKeyTerms(tx, prefix, terms)
      if (changed.includes('models') || changed.includes('aliases')) checkRulesBytes(tx)
    }
    const { slug } = present(organizationById(tx, before.organizationId), 'a key has an organization')
    return { key: keyByPrefix(tx, prefix), slug, changed }
  })
  if (changed.length > 0) {
    const detail = { prefix, name: key.name, changed }
    noteEvent(store.ledger.db, log, { nowMs, kind: 'gateway_key.changed', subject: key.organizationId, detail })
  }
  return gatewayKeyView(key, { slug, ...(await viewParts(deps, key.organizationId)) })
}

/** Null means the configured limit, or no expiry; absent fields stay unchanged. Fault invalid_request. */
type TermsAsked = { readonly asked: AdminGatewayKeySet; readonly nowMs: number; readonly offered: OfferedModels }

function changedTerms(before: GatewayKey, { asked, nowMs, offered }: TermsAsked): GatewayKeyTerms {
  const kept = <T>(value: T | undefined, known: T): T => (value === undefined ? known : value)
  const { expires_at: expiry } = asked
  return {
    requestsPerMinute: kept(asked.requests_per_minute, before.requestsPerMinute),
    tokensPerMinute: kept(asked.tokens_per_minute, before.tokensPerMinute),
    concurrencyMax: kept(asked.concurrency_max, before.concurrencyMax),
    expiresAtMs: expiry === undefined ? before.expiresAtMs : expiry === null ? null : parseExpiry(expiry, nowMs),
    ...checkedRules(
      { models: kept(asked.models, before.models), aliases: kept(asked.aliases, before.aliases) },
      offered,
    ),
    ...keyBudgetTerms(asked, before),
  }
}

/** Returns the rules. Throws Fault invalid_request. */
function checkedRules(rules: KeyRules, offered: OfferedModels): KeyRules {
  const problem = rulesProblem(rules, offered)
  if (problem !== null) throw new Fault('invalid_request', problem.message, { param: problem.param })
  return rules
}

/**
 * Checks the size of all rules, because all keys are sent to the gateway's VM in one bounded document. Throws Fault
 * conflict.
 */
function checkRulesBytes(tx: DirectoryDb): void {
  const bytes = gatewayKeyRulesBytes(tx)
  if (bytes <= rulesBytesMax) return
  const message = `the models and aliases of all gateway keys would be ${bytes} bytes, at most ${rulesBytesMax}; shorten them, or revoke keys`
  throw new Fault('conflict', message, { param: 'models' })
}

/** Returns the key. Throws Fault not_found. */
function keyByPrefix(db: DirectoryDb, prefix: string): GatewayKey {
  const key = findGatewayKey(db, prefix)
  if (key !== null) return key
  throw new Fault('not_found', `there is no gateway key with prefix ${prefix}`, { param: 'prefix' })
}

/** Revokes a key. Idempotent; the time of the first revocation stays. Throws Fault not_found. */
async function revoke(deps: GatewayKeysDeps, prefix: string): Promise<AdminGatewayKey> {
  const { store, clock, log } = deps
  const nowMs = clock.nowMs()
  const { key, slug, isChanged } = await store.directory.change(tx => {
    const before = keyByPrefix(tx, prefix)
    const isChanged = before.revokedAtMs === null
    if (isChanged) revokeGatewayKey(tx, { prefix, nowMs })
    const { slug } = present(organizationById(tx, before.organizationId), 'a key has an organization')
    return { key: keyByPrefix(tx, prefix), slug, isChanged }
  })
  if (isChanged) {
    noteEvent(store.ledger.db, log, {
      nowMs,
      kind: 'gateway_key.revoked',
      subject: key.organizationId,
      detail: { prefix, name: key.name },
    })
  }
  return gatewayKeyView(key, { slug, ...(await viewParts(deps, key.organizationId)) })
}

type ViewParts = { slug: string } & Awaited<ReturnType<typeof viewParts>>

function gatewayKeyView(key: GatewayKey, { slug, nowMs, monthSum, held }: ViewParts): AdminGatewayKey {
  const { organizationId, prefix: keyPrefix } = key
  return {
    prefix: key.prefix,
    name: key.name,
    organization: slug,
    instance: key.instanceId,
    state: stateOf(key, nowMs),
    made_by: key.isClientMade ? 'client' : 'host',
    requests_per_minute: key.requestsPerMinute,
    tokens_per_minute: key.tokensPerMinute,
    concurrency_max: key.concurrencyMax,
    models: key.models,
    aliases: key.aliases,
    ...budgetView(
      key,
      { nowMs, sumOf: month => monthSum({ organizationId, keyPrefix, month }) },
      held(organizationId, keyPrefix),
    ),
    ...userBudgetView(key),
    expires_at: isoOrNull(key.expiresAtMs),
    created_at: iso(key.createdAtMs),
    last_used_at: isoOrNull(key.lastUsedAtMs),
    revoked_at: isoOrNull(key.revokedAtMs),
  }
}

function stateOf(key: GatewayKey, nowMs: number): AdminGatewayKey['state'] {
  if (key.revokedAtMs !== null) return 'revoked'
  return key.expiresAtMs !== null && key.expiresAtMs <= nowMs ? 'expired' : 'active'
}

/** Parses a day (the key expires as the day begins, UTC) or a time in UTC. Throws Fault invalid_request. */
function parseExpiry(text: string, nowMs: number): number {
  const time = /^(\d{4}-\d{2}-\d{2})(T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?Z)?$/.exec(text)
  const atMs = time === null ? Number.NaN : Date.parse(time[2] === undefined ? `${text}T00:00Z` : text)
  // Refuses dates such as 30 February, which is parsed as a day in March.
  if (Number.isNaN(atMs) || iso(atMs).slice(0, 10) !== time?.[1]) {
    const message = `${JSON.stringify(text)} is no date (2027-01-31) or time in UTC (2027-01-31T12:00:00Z)`
    throw new Fault('invalid_request', message, { param: 'expires_at' })
  }
  if (atMs <= nowMs) throw new Fault('invalid_request', `${text} is not in the future`, { param: 'expires_at' })
  return atMs
}
