// Configuration of who may ask the admin interface besides root, of the console and of the metrics. Pure.

import { Type } from '@sinclair/typebox'
import { Count, Entry, PathOrNone, Section } from './fields.ts'

/** The rights of each: contract/admin/roles.ts. */
const ADMIN_ROLES = ['admin', 'operator', 'auditor'] as const

const accountPattern = '[a-z_][a-z0-9_.-]{0,31}'
const accountAllowed =
  'a name of this host: 1 to 32 lowercase letters, digits, dots, hyphens and underscores, no digit first'

const Administrator = Entry({
  user: Type.String({
    pattern: `^${accountPattern}$`,
    allowed: accountAllowed,
    description: 'A user of this host. Commands are recorded under this name.',
  }),
  role: Type.Union(
    ADMIN_ROLES.map(role => Type.Literal(role)),
    {
      description:
        '"admin" may do everything; "operator" shows, suspends, revokes, cancels, deletes instances and updates the gateway, but gives nothing to anybody; "auditor" shows states, usage and the record of commands.',
    },
  ),
})

export const OperatorConfig = Section({
  admins: Type.Array(Administrator, {
    default: [],
    maxItems: 64,
    description:
      'Users who may ask admin.sock in the state directory, each with a role. Root may always, and alone where this is empty.',
  }),
  monitor_group: Type.String({
    default: '',
    pattern: `^$|^${accountPattern}$`,
    allowed: `"" or ${accountAllowed}`,
    description:
      'Group whose members may ask monitor.sock in the state directory, which only shows states: no usage, consoles, record of commands or secrets. "" for no such socket.',
  }),
  events_days: Count(
    [400, 30, 3650],
    'How long the record of commands is kept (`strongroom events`): of its newest 100,000 commands and 10,000 refusals.',
  ),
})

export const ConsoleConfig = Section({
  names: Type.Array(Type.String({ minLength: 1, maxLength: 253 }), {
    default: [],
    maxItems: 16,
    description:
      'DNS names and IP addresses by which browsers reach the console besides localhost, 127.0.0.1, [::1] and the address in `listen.console`. A request that names another host is refused. Passkeys belong to a name: an IP address has none.',
  }),
  session_idle_minutes: Count([30, 1, 1440], 'A session of the console ends after this time without a request.'),
  session_hours: Count([12, 1, 168], 'A session of the console ends after this time, whatever happens in it.'),
})

export const MetricsConfig = Section({
  token_file: PathOrNone(
    'File with the token that a scrape of `listen.metrics` must send as a Bearer token: 16 characters or more, read again for each scrape. "" for `metrics-token` in the state directory, which the daemon makes.',
  ),
})
