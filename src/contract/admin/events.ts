// The record of operators' commands, as `strongroom events` shows it. Pure.

import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'

export const commandListMax = 1_000

export const AdminCommand = Closed({
  seq: Type.Integer({ minimum: 1, description: 'Grows with each command; gaps are refused ones that were dropped.' }),
  at: Type.String({ description: 'ISO 8601 UTC' }),
  uid: Type.Integer({ description: '-1: no user of the host, but a person of the identity provider.' }),
  gid: Type.Integer({ description: '-1: by the console.' }),
  pid: Type.Integer({
    description: 'The process that connected; its number may belong to another one by now. 0: by the console.',
  }),
  actor: Type.String({ description: 'The name of an administrator, `root`, `uid N`, or `oidc:` and a subject' }),
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

/** An action of one host that concerns all hosts of the fleet: the directory notes it, not the host. */
export const HostAction = Closed({
  seq: Type.Integer({ minimum: 1 }),
  at: Type.String({ description: 'ISO 8601 UTC, by the clock of the database' }),
  host: OrNull(Type.String(), { description: 'Its name; null: the role that owns the database' }),
  database_role: Type.String(),
  action: Type.String({ description: 'Such as `gateway_key.added`' }),
  subject: Type.String({ description: 'Such as the prefix of the key' }),
  organization: OrNull(Type.String(), { description: 'Its slug' }),
  detail: Type.Record(Type.String(), Type.Unknown()),
})
export type HostAction = Static<typeof HostAction>

/** `problem`: why the directory could not be read; null if it was. */
export const HostActionList = Closed({ actions: Type.Array(HostAction), problem: OrNull(Type.String()) })
export type HostActionList = Static<typeof HostActionList>

/** Oldest first. `fleet`: of all its hosts; absent on a standalone host, and if an actor or a number is requested. */
export const AdminCommandList = Closed({
  commands: Type.Array(AdminCommand),
  fleet: Type.Optional(HostActionList),
})
