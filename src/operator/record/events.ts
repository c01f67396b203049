// The record of operators' commands in the admin interface. Effects: reads the store.

import { Type } from '@sinclair/typebox'
import { Elysia, t } from 'elysia'
import { AdminCommandList, commandListMax } from '../../contract/admin/events.ts'
import type { Audit } from './audit.ts'

export function eventRoutes(audit: Pick<Audit, 'list'>) {
  return new Elysia({ normalize: false }).get(
    '/events',
    ({ query: { after, since, actor, limit } }) => ({
      commands: audit.list({
        after: after ?? null,
        sinceMs: since ?? null,
        actor: actor ?? null,
        limit,
      }),
    }),
    {
      query: Type.Object({
        after: Type.Optional(t.Integer({ minimum: 0 })),
        /** Milliseconds since 1970. */
        since: Type.Optional(t.Integer({ minimum: 0 })),
        actor: Type.Optional(Type.String({ maxLength: 64 })),
        limit: t.Integer({ default: 50, minimum: 1, maximum: commandListMax }),
      }),
      response: AdminCommandList,
    },
  )
}
