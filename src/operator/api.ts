// The admin interface: one Elysia app of its nouns, and the only place that writes refusals and failures. Effects: the
// store; everything else is passed in as functions. Every request has the ids of its caller (access/socket.ts); its
// route determines the required right, before the body is read. A change is recorded before it begins. It commits in
// the directory first; its event follows in this host's journal.

import { Elysia, ParseError, ValidationError } from 'elysia'
import { Fault, messageOf, systemErrorCode } from '../base/fault.ts'
import { family, metricsContentType, metricsText } from '../base/prometheus.ts'
import { createDeadlines } from '../base/work/deadlines.ts'
import { AdminLeaks, type AdminProblem, AdminStatus } from '../contract/admin/admin.ts'
import { operationOf } from '../contract/admin/roles.ts'
import { readJson } from '../http/edge.ts'
import { retryAfterOf, storageFault } from '../http/limited.ts'
import { failureHeaders, isInternal } from '../http/problem.ts'
import { type Caller, type IdentifiedCaller, knownCaller, personOf, refusalOf, strangerFault } from './access/caller.ts'
import type { ConsolePerson } from './access/console-control.ts'
import type { AskedAdmin } from './access/socket.ts'
import { alertRoutes } from './alerts/routes.ts'
import { billingRoutes } from './billing.ts'
import { buildRoutes } from './builds.ts'
import { clockRoutes } from './clock.ts'
import { consoleRoutes } from './console.ts'
import { deletionRoutes } from './deletion.ts'
import type { AdminDeps, ReadBody } from './deps.ts'
import { egressRoutes } from './egress.ts'
import { chipRoutes, fleetRoutes } from './fleet.ts'
import { gatewayKeyRoutes } from './gateway-keys.ts'
import { inferenceRoutes } from './inference.ts'
import { instanceRoutes } from './instances.ts'
import { keyRoutes } from './keys.ts'
import { logRoutes } from './log.ts'
import { maintenanceRoutes } from './maintenance/routes.ts'
import { organizationRoutes } from './organizations.ts'
import { Audit, type Command } from './record/audit.ts'
import { eventRoutes } from './record/events.ts'
import { usageRoutes } from './usage.ts'
import { instanceUsageRoutes } from './views/instance-usage.ts'
import { searchRoutes } from './views/search.ts'

/** The admin interface, for `listenAdmin`. */
export type Admin = AskedAdmin & {
  /** Records a change that a person makes at the console outside of these routes. Throws if it cannot be recorded. */
  readonly record: (command: Command) => void
  /** Returns the person behind an actor of the console; null if the configuration has no such person. */
  readonly personOf: (actor: string) => ConsolePerson | null
  readonly status: AdminDeps['status']
  /** Prometheus text of all collectors. */
  readonly metrics: () => string
  /** Methods and paths of all routes, for tests. */
  readonly routes: readonly string[]
}

const BODY_LIMITS = { bytesMax: 65_536, timeoutMs: 10_000, depthMax: 16 } as const

/** A running request. */
type OperatorRequest = {
  readonly by: IdentifiedCaller
  readonly isChange: boolean
  /** Set once its route is known. */
  command: Command | null
  /** The body, parsed and checked against its schema before the change begins. */
  body: unknown
  /** Number of the row that was written before the change began; null if there is none. */
  seq: number | null
  /** A fault code; null if there was no failure. */
  failure: string | null
}

export function createAdmin(deps: AdminDeps): Admin {
  const audit = new Audit({ ledger: deps.store.ledger, clock: deps.clock, log: deps.log })
  audit.start()
  deps.takeHostCommands()
  const asked = new WeakMap<Request, OperatorRequest>()
  const app = adminApp(deps, { audit, asked })
  const knownOf = (caller: Caller) => knownCaller(caller, deps)
  return {
    routes: app.routes.map(({ method, path }) => `${method} ${path}`),
    record: command => {
      const seq = audit.begin(command)
      audit.end(command, { seq, result: 'ok' })
    },
    personOf: actor => personOf(actor, deps),
    status: deps.status,
    metrics: () => metricsOf(deps),
    turnAway: caller => {
      const by = knownOf(caller)
      if (by.role !== null) return null
      const fault = strangerFault(by)
      audit.refuse({ by, operation: 'connect', arguments: {} }, fault.code)
      return toProblem(fault)
    },
    handle: async (request, caller) => {
      const isChange = request.method !== 'GET' && request.method !== 'HEAD'
      const pending: OperatorRequest = {
        by: knownOf(caller),
        isChange,
        command: null,
        body: null,
        seq: null,
        failure: null,
      }
      asked.set(request, pending)
      // Includes the changes of other hosts, because an operator must see them.
      const response = await deps.store.directory.read(null, () => app.fetch(request))
      settle(audit, pending)
      return response
    },
  }
}

/** Records the end of a request. A failed read was no attempt to change anything; a forbidden one is recorded. */
function settle(audit: Audit, { command, seq, failure, isChange }: OperatorRequest): void {
  if (command === null) return
  if (seq !== null) audit.end(command, { seq, result: failure ?? 'ok' })
  else if (failure !== null && (isChange || failure === 'forbidden')) audit.refuse(command, failure)
}

/** Routes that show or change what organizations own. */
const ofDirectory = /^\/(organizations|keys|gateway-keys|instances?|search)\b/

type Recording = { readonly audit: Audit; readonly asked: WeakMap<Request, OperatorRequest> }

function adminApp(deps: AdminDeps, recording: Recording) {
  const { log } = deps
  const { audit, asked } = recording
  const deadlines = createDeadlines(deps.clock)
  const admit = ({ request, route }: { readonly request: Request; readonly route: string }) => {
    const pending = admitted(asked.get(request), { method: request.method, route, admitChange: deps.admitChange })
    if (ofDirectory.test(route)) deps.store.directory.admit()
    return pending
  }
  const readBody: ReadBody = async context => {
    const pending = admit(context)
    pending.body = await readJson(context.request, BODY_LIMITS, deadlines)
    return pending.body
  }
  return (
    new Elysia({ normalize: false })
      .onError(({ error, set, request }) => {
        const fault = toFault(error, request)
        const pending = asked.get(request)
        if (pending !== undefined) pending.failure = fault.code
        if (isInternal(fault)) log.error('admin request failed', { error })
        set.status = fault.status
        const retryAfterSeconds = retryAfterOf(fault)
        Object.assign(set.headers, failureHeaders(fault.status))
        if (retryAfterSeconds !== null) set.headers['retry-after'] = String(retryAfterSeconds)
        return toProblem(fault)
      })
      // Before anything is checked; `readBody` has done the same before a body was read. Takes single fields, without
      // `body`: Elysia reads the source of these functions, and parses a body if they use one.
      .onTransform(({ request, route }) => {
        admit({ request, route })
      })
      .onBeforeHandle(({ request, params, query }) => {
        const pending = asked.get(request)
        if (pending?.command === null || pending?.command === undefined)
          throw new Fault('internal', 'the request was not admitted')
        pending.command = { ...pending.command, arguments: argumentsOf([params, query, pending.body]) }
        if (pending.isChange) pending.seq = audit.begin(pending.command)
      })
      .get('/status', () => deps.status(), { response: AdminStatus })
      .get('/leaks', async () => ({ leaks: [...(await deps.leaks())] }), { response: AdminLeaks })
      .get('/metrics', () => new Response(metricsOf(deps), { headers: { 'content-type': metricsContentType } }))
      .use(eventRoutes(audit, deps))
      .use(organizationRoutes(deps, readBody))
      .use(deletionRoutes(deps))
      .use(keyRoutes(deps, readBody))
      .use(gatewayKeyRoutes(deps, readBody))
      .use(instanceRoutes(deps))
      .use(instanceUsageRoutes(deps))
      .use(searchRoutes(deps))
      .use(egressRoutes(deps, readBody))
      .use(buildRoutes(deps))
      .use(inferenceRoutes(deps))
      .use(alertRoutes(deps))
      .use(clockRoutes(deps))
      .use(maintenanceRoutes(deps, readBody))
      .use(logRoutes(deps.transparency, readBody))
      .use(chipRoutes(deps, readBody))
      .use(fleetRoutes(deps))
      .use(usageRoutes(deps))
      .use(billingRoutes(deps))
      .use(consoleRoutes({ ...deps, knownOf: request => knownIn(asked, request) }, readBody))
  )
}

/** A collector that fails, as with a damaged database, leaves the others: the alarm depends on them. */
function metricsOf({ collectors, log }: Pick<AdminDeps, 'collectors' | 'log'>): string {
  let failures = 0
  const texts = collectors.map(collector => {
    try {
      return collector.render()
    } catch (error) {
      failures += 1
      log.error('some metrics could not be collected', { error })
      return ''
    }
  })
  const help = 'Collectors of metrics that failed in this scrape.'
  return texts.join('') + metricsText([family('strongroom_metrics_failures', help, 'gauge', [[{}, failures]])])
}

function knownIn(asked: Recording['asked'], request: Request): IdentifiedCaller {
  const pending = asked.get(request)
  if (pending === undefined) throw new Fault('internal', 'a request without a caller')
  return pending.by
}

/**
 * Admits a request; called more than once for each. Faults: forbidden, attestation_unavailable (an upgrade is on
 * trial).
 */
function admitted(
  pending: OperatorRequest | undefined,
  { method, route, admitChange }: { method: string; route: string } & Pick<AdminDeps, 'admitChange'>,
): OperatorRequest {
  if (pending === undefined) throw new Fault('internal', 'a request without a caller')
  if (pending.command !== null) return pending
  pending.command = { by: pending.by, operation: operationOf(method, route)?.name ?? 'unknown', arguments: {} }
  const refusal = refusalOf(pending.by, method, route)
  if (refusal !== null) throw refusal
  if (pending.isChange) admitChange()
  return pending
}

/** Returns the fields in their checked form; values that did not match the schema are not recorded. */
function argumentsOf(parts: readonly unknown[]): Record<string, unknown> {
  const all: Record<string, unknown> = {}
  for (const part of parts) {
    if (typeof part === 'object' && part !== null) Object.assign(all, part)
  }
  return all
}

/** Converts anything thrown in a handler to a fault. */
function toFault(error: unknown, request: Request): Fault {
  const stored = storageFault(error, `nothing was changed; error of the database: ${messageOf(error)}`)
  if (stored !== null) return stored
  if (error instanceof Fault) return error
  // Elysia wraps errors thrown by `parse`.
  if (error instanceof ParseError && error.cause instanceof Fault) return error.cause
  if (error instanceof ValidationError) return mismatch(error, request)
  if (systemErrorCode(error) === 'NOT_FOUND') {
    return new Fault('not_found', 'there is no such route; the daemon may be of another version')
  }
  return new Fault('internal', messageOf(error), { cause: error })
}

const namedFields = 5

/** Names each field that does not match, with the reason; `param` is the first of them. */
function mismatch(error: ValidationError, request: Request): Fault {
  const faults = new Map<string, string>()
  for (const found of error.all) {
    const path = 'path' in found ? String(found.path).slice(1).replaceAll('/', '.') : ''
    const name = path === '' && error.type === 'property' ? parameterOf(error, request) : path
    if (!faults.has(name)) faults.set(name, 'message' in found ? String(found.message) : 'does not fit')
  }
  const named = [...faults].slice(0, namedFields).map(([name, why]) => (name === '' ? why : `${name}: ${why}`))
  const more = faults.size > named.length ? `; and ${faults.size - named.length} more` : ''
  const what = error.type === 'property' ? 'query' : error.type
  const message = `the ${what} does not fit its schema: ${named.join('; ')}${more}`
  // Our own responses are also checked; a wrong one is our failure, not the caller's.
  if (error.type === 'response') return new Fault('internal', message)
  const [param = ''] = faults.keys()
  return new Fault('invalid_request', message, param === '' ? {} : { param })
}

/** Returns the parameter's name. For a number in the query, Elysia reports only the value. */
function parameterOf({ value }: ValidationError, request: Request): string {
  const asked = [...new URL(request.url).searchParams]
  return asked.find(([, text]) => text !== '' && Number(text) === value)?.[0] ?? ''
}

function toProblem(fault: Fault): AdminProblem {
  // Administrators see the whole message, even of internal faults.
  const param = fault.param === undefined ? {} : { param: fault.param }
  return { error: { code: fault.code, message: fault.message, ...param } }
}
