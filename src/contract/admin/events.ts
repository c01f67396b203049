// The record of operators' commands, as `strongroom events` shows it. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { Closed, OrNull } from '../forms.ts'

export const commandListMax = 1_000

export const AdminCommand = Closed({
  seq: Type.Integer({ minimum: 1, description: 'Grows with each command; gaps are refused ones that were dropped.' }),
  at: Type.String({ description: 'ISO 8601 UTC' }),
  uid: Type.Integer(),
  gid: Type.Integer({ description: '-1: by the console.' }),
  pid: Type.Integer({
    description: 'The process that connected; its number may belong to another one by now. 0: by the console.',
  }),
  actor: Type.String({ description: 'The name of an administrator, `root`, or `uid N`' }),
  role: OrNull(Type.String(), { description: 'null: none' }),
  socket: Type.String({ description: '`admin`, `monitor` or `console`' }),
  operation: Type.String(),
  arguments: Type.Record(Type.String(), Type.Unknown()),
  result: OrNull(Type.String(), {
    description: '`ok`, a fault code, `interrupted` (the daemon ended before the result was known); null: it runs',
  }),
  ended_at: OrNull(Type.String()),
  times: Type.Integer({ minimum: 1, description: 'How often a refused command was tried within a minute.' }),
})
export type AdminCommand = Static<typeof AdminCommand>

/** Oldest first. */
export const AdminCommandList = Closed({ commands: Type.Array(AdminCommand) })
