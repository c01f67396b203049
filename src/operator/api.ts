// The admin interface: one Elysia app of its nouns, and the only place that words refusals and failures. Effects: the
// store; the rest comes in as functions. Only root reaches the socket, so nothing here authenticates. Every change
// commits in the directory first; its event follows in this host's journal.

import { Elysia, ParseError, ValidationError } from 'elysia'
import { Fault, messageOf, systemErrorCode } from '../base/fault.ts'
import { metricsContentType } from '../base/prometheus.ts'
import { createDeadlines } from '../base/work/deadlines.ts'
import { AdminLeaks, type AdminProblem, AdminStatus } from '../contract/admin/admin.ts'
import { readJson } from '../http/body.ts'
import { retryAfterOf, storageFault } from '../http/limited.ts'
import { failureHeaders, isInternal } from '../http/problem.ts'
import { buildRoutes } from './builds.ts'
import { clockRoutes } from './clock.ts'
import type { AdminDeps, ReadBody } from './deps.ts'
import { egressRoutes } from './egress.ts'
import { gatewayKeyRoutes } from './gateway-keys.ts'
import { inferenceRoutes } from './inference.ts'
import { instanceRoutes } from './instances.ts'
import { keyRoutes } from './keys.ts'
import { organizationRoutes } from './organizations.ts'
import { usageRoutes } from './usage.ts'

/** A request handler for `listenAdmin`. */
export type AdminHandler = (request: Request) => Response | Promise<Response>

const BODY_LIMITS = { bytesMax: 65_536, timeoutMs: 10_000, depthMax: 16 } as const

export function createAdmin(deps: AdminDeps): AdminHandler {
  const { log, collectors } = deps
  const deadlines = createDeadlines(deps.clock)
  const readBody: ReadBody = ({ request }) => readJson(request, BODY_LIMITS, deadlines)
  const app = new Elysia({ normalize: false })
    .onError(({ error, set }) => {
      const fault = toFault(error)
      if (isInternal(fault)) log.error('admin request failed', { error })
      set.status = fault.status
      const retryAfterSeconds = retryAfterOf(fault)
      Object.assign(set.headers, failureHeaders(fault.status))
      if (retryAfterSeconds !== null) set.headers['retry-after'] = String(retryAfterSeconds)
      return toProblem(fault)
    })
    .get('/status', () => deps.status(), { response: AdminStatus })
    .get('/leaks', async () => ({ leaks: [...(await deps.leaks())] }), { response: AdminLeaks })
    .get('/metrics', () => {
      const text = collectors.map(collector => collector.render()).join('')
      return new Response(text, { headers: { 'content-type': metricsContentType } })
    })
    .use(organizationRoutes(deps, readBody))
    .use(keyRoutes(deps, readBody))
    .use(gatewayKeyRoutes(deps, readBody))
    .use(instanceRoutes(deps))
    .use(egressRoutes(deps, readBody))
    .use(buildRoutes(deps))
    .use(inferenceRoutes(deps))
    .use(clockRoutes(deps))
    .use(usageRoutes(deps))
  return request => app.fetch(request)
}

/** Anything thrown in a handler, as a fault. */
function toFault(error: unknown): Fault {
  const stored = storageFault(error, `nothing was changed: the database says: ${messageOf(error)}`)
  if (stored !== null) return stored
  if (error instanceof Fault) return error
  // Elysia wraps what `parse` throws.
  if (error instanceof ParseError && error.cause instanceof Fault) return error.cause
  if (error instanceof ValidationError) {
    const [first] = error.all
    const path = first !== undefined && 'path' in first ? String(first.path).slice(1) : ''
    // Our own responses are checked too; a wrong one is our failure, not the caller's.
    if (error.type === 'response')
      return new Fault('internal', `the response does not fit its schema at ${path || '/'}`)
    return new Fault('invalid_request', `${error.type} does not fit its schema at ${path || '/'}`, {
      ...(path === '' ? {} : { param: path }),
    })
  }
  if (systemErrorCode(error) === 'NOT_FOUND') {
    return new Fault('not_found', 'there is no such route; the daemon may be of another version')
  }
  return new Fault('internal', messageOf(error), { cause: error })
}

function toProblem(fault: Fault): AdminProblem {
  // Operators see the whole message, internal ones too: nobody else reaches this socket.
  const param = fault.param === undefined ? {} : { param: fault.param }
  return { error: { code: fault.code, message: fault.message, ...param } }
}
