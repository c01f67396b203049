// The record of operators' commands in the admin interface, with actions of the hosts of a fleet that concern all of
// them. Effects: reads the store and the fleet's directory.

import { Type } from '@sinclair/typebox'
import { Elysia, t } from 'elysia'
import { actorCharsMax } from '../../contract/admin/console.ts'
import { AdminCommandList, commandListMax } from '../../contract/admin/events.ts'
import type { FleetAdmin } from '../../fleet/hosts/fleet-admin.ts'
import type { Audit } from './audit.ts'

type EventsDeps = {
  readonly fleet: Pick<FleetAdmin, 'actions'>
  readonly takeHostCommands: () => void
}

export function eventRoutes(audit: Pick<Audit, 'list'>, { fleet, takeHostCommands }: EventsDeps) {
  return new Elysia({ normalize: false }).get(
    '/events',
    async ({ query: { after, since, actor, limit } }) => {
      takeHostCommands()
      const sinceMs = since ?? null
      const commands = audit.list({ after: after ?? null, sinceMs, actor: actor ?? null, limit })
      if (after !== undefined || actor !== undefined) return { commands }
      return { commands, ...(await fleet.actions({ sinceMs, limit })) }
    },
    {
      query: Type.Object({
        after: Type.Optional(t.Integer({ minimum: 0 })),
        /** Milliseconds since 1970. */
        since: Type.Optional(t.Integer({ minimum: 0 })),
        actor: Type.Optional(Type.String({ maxLength: actorCharsMax })),
        limit: t.Integer({ default: 50, minimum: 1, maximum: commandListMax }),
      }),
      response: AdminCommandList,
    },
  )
}
