// Which operation of the admin interface needs which right, and which role has it. Pure. The daemon refuses a route
// that does not stand here; `test/operator/access/roles.test.ts` walks all routes.

/**
 * `look`: states without secrets or customers' output. `audit`: the record of commands, and usage. `operate`: takes
 * away or starts again, and shows consoles. `administer`: grants access or resources, or changes terms.
 */
export const RIGHTS = ['look', 'audit', 'operate', 'administer'] as const
export type Right = (typeof RIGHTS)[number]

/** Roles that the configuration may give. */
export const ADMIN_ROLES = ['admin', 'operator', 'auditor'] as const
export type AdminRole = (typeof ADMIN_ROLES)[number]

/** `monitor`: every user of the read-only socket, including root. */
export type Role = AdminRole | 'monitor'

export const RIGHTS_OF = {
  monitor: ['look'],
  auditor: ['look', 'audit'],
  operator: ['look', 'audit', 'operate'],
  admin: ['look', 'audit', 'operate', 'administer'],
} as const satisfies Record<Role, readonly Right[]>

type Operation = { readonly name: string; readonly right: Right }

/** By method and route. The name stands in the record of commands. */
export const OPERATIONS: Readonly<Record<string, Operation>> = {
  'GET /status': { name: 'status', right: 'look' },
  'GET /search': { name: 'search', right: 'look' },
  'GET /leaks': { name: 'leaks', right: 'look' },
  'GET /metrics': { name: 'metrics', right: 'look' },
  'GET /events': { name: 'events', right: 'audit' },
  'GET /organizations': { name: 'org.list', right: 'look' },
  'POST /organizations': { name: 'org.create', right: 'administer' },
  'GET /organizations/:slug': { name: 'org.show', right: 'look' },
  'GET /organizations/:slug/deletion': { name: 'org.deletion', right: 'look' },
  'DELETE /organizations/:slug': { name: 'org.delete', right: 'administer' },
  'POST /organizations/:slug/budget': { name: 'org.budget', right: 'administer' },
  'POST /organizations/:slug/quotas': { name: 'org.quota', right: 'administer' },
  'POST /organizations/:slug/suspend': { name: 'org.suspend', right: 'operate' },
  'POST /organizations/:slug/resume': { name: 'org.resume', right: 'administer' },
  'GET /organizations/:slug/keys': { name: 'key.list', right: 'look' },
  'POST /organizations/:slug/keys': { name: 'key.create', right: 'administer' },
  'POST /organizations/:slug/keys/add': { name: 'key.add', right: 'administer' },
  'POST /keys/:prefix/revoke': { name: 'key.revoke', right: 'operate' },
  'GET /organizations/:slug/gateway-keys': { name: 'gateway-key.list', right: 'look' },
  'POST /organizations/:slug/gateway-keys': { name: 'gateway-key.create', right: 'administer' },
  'POST /organizations/:slug/gateway-keys/add': { name: 'gateway-key.add', right: 'administer' },
  'POST /gateway-keys/:prefix/terms': { name: 'gateway-key.set', right: 'administer' },
  'POST /gateway-keys/:prefix/revoke': { name: 'gateway-key.revoke', right: 'operate' },
  'GET /organizations/:slug/usage': { name: 'usage', right: 'audit' },
  'GET /organizations/:slug/usage.csv': { name: 'usage.csv', right: 'audit' },
  'GET /billing/instance-hours': { name: 'billing', right: 'audit' },
  'GET /billing/instance-hours.csv': { name: 'billing.csv', right: 'audit' },
  'GET /instances': { name: 'instance.list', right: 'look' },
  'GET /instance': { name: 'instance.show', right: 'look' },
  'DELETE /instance': { name: 'instance.delete', right: 'operate' },
  'GET /instance/usage': { name: 'instance.usage', right: 'look' },
  'GET /instance/events': { name: 'instance.events', right: 'look' },
  'GET /instance/console': { name: 'instance.console', right: 'operate' },
  'POST /instance/egress-limit': { name: 'instance.egress-raise', right: 'administer' },
  'GET /builds': { name: 'builds.list', right: 'look' },
  'GET /builds/:id': { name: 'builds.show', right: 'look' },
  'GET /builds/:id/log': { name: 'builds.logs', right: 'operate' },
  'POST /builds/:id/cancel': { name: 'builds.cancel', right: 'operate' },
  'GET /inference': { name: 'inference.show', right: 'look' },
  'POST /inference/update': { name: 'inference.update', right: 'operate' },
  'POST /alerts/test': { name: 'alerts.test', right: 'operate' },
  'GET /clock': { name: 'clock', right: 'look' },
  // Allows records to be deleted.
  'POST /clock/confirm': { name: 'clock.confirm', right: 'administer' },
  'GET /maintenance': { name: 'maintenance', right: 'look' },
  'POST /maintenance/begin': { name: 'maintenance.begin', right: 'operate' },
  'POST /maintenance/end': { name: 'maintenance.end', right: 'operate' },
  'GET /log': { name: 'log.status', right: 'look' },
  'GET /log/entries': { name: 'log.show', right: 'look' },
  'POST /log/cosign': { name: 'log.cosign', right: 'operate' },
  // Presents this policy to relying parties as the operator's.
  'POST /log/policy': { name: 'log.publish-policy', right: 'administer' },
  // Presents these chips to relying parties as the operator's.
  'POST /chips/export': { name: 'chips.export', right: 'administer' },
  'POST /chips/publish': { name: 'chips.publish', right: 'administer' },
  'GET /fleet/hosts': { name: 'fleet.list', right: 'look' },
  'GET /fleet/hosts/:name': { name: 'fleet.show', right: 'look' },
  'POST /fleet/hosts/:name/drain': { name: 'fleet.drain', right: 'operate' },
  'POST /fleet/hosts/:name/undrain': { name: 'fleet.undrain', right: 'operate' },
  'POST /fleet/hosts/:name/remove': { name: 'fleet.remove', right: 'administer' },
  // Ends instances and builds of owners on that host.
  'POST /fleet/hosts/:name/forget': { name: 'fleet.forget', right: 'administer' },
  'GET /inference/log': { name: 'inference.log', right: 'operate' },
  // Every role may use it for the caller's own link, sessions and passkeys; those of others require `administer`
  // (operator/console.ts).
  'POST /console/links': { name: 'console.open', right: 'audit' },
  'GET /console/sessions': { name: 'console.sessions', right: 'audit' },
  'POST /console/close': { name: 'console.close', right: 'audit' },
  'GET /console/passkeys': { name: 'passkey.list', right: 'audit' },
  'DELETE /console/passkeys/:id': { name: 'passkey.remove', right: 'audit' },
}

/** Null if there is no such operation; then it is forbidden. HEAD needs what GET needs. */
export function operationOf(method: string, route: string): Operation | null {
  const key = `${method === 'HEAD' ? 'GET' : method} ${route}`
  return Object.hasOwn(OPERATIONS, key) ? (OPERATIONS[key] ?? null) : null
}

export function mayDo(role: Role, right: Right): boolean {
  const rights: readonly Right[] = RIGHTS_OF[role]
  return rights.includes(right)
}

/** The roles that have a right, for messages. */
export function rolesWith(right: Right): string {
  return ADMIN_ROLES.filter(role => mayDo(role, right)).join(' or ')
}

/** Whether the read-only socket answers this path, by which a client chooses its socket. The daemon decides again. */
export function isLook(path: string): boolean {
  const parts = path.split('/')
  const fits = (route: string) => {
    const wanted = route.split('/')
    return wanted.length === parts.length && wanted.every((part, at) => part.startsWith(':') || part === parts[at])
  }
  const found = Object.entries(OPERATIONS).filter(([key]) => key.startsWith('GET ') && fits(key.slice(4)))
  return found.length > 0 && found.every(([, { right }]) => right === 'look')
}
