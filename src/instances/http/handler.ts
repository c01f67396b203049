// The handlers of service A: what they get, and what they return. Pure: types.

import type { ForwardedPrincipal } from '../../contract/http/forwarded-principal.ts'
import type { Peers } from '../../fleet/peers/peers.ts'
import type { EdgeContext } from '../../http/edge.ts'
import type { Attestations } from '../attestation.ts'
import type { InstancesService, Principal } from '../service.ts'
import type { Snapshots } from '../snapshots/snapshots.ts'
import type { Reply } from './envelope.ts'

export type InstanceApi = {
  readonly service: InstancesService
  readonly attestations: Pick<Attestations, 'show'>
  readonly snapshots: Pick<Snapshots, 'take' | 'listOf' | 'list' | 'find' | 'remove' | 'restore'>
  /** Other hosts of the fleet. */
  readonly peers: Pick<Peers, 'forward'>
  /** JSON text of the operator's files for clients. */
  readonly published: () => string
}

/** The connection of a request. */
export type InstancePeer = {
  /** The client's address; a function because it costs a system call. */
  readonly address: () => string
  /** The caller authenticated by another host of the fleet, which forwarded the request. */
  readonly principal?: ForwardedPrincipal | null
}

/** Functions that the HTTP server provides to handlers. */
export type Edge = {
  /** Authenticates from the headers only. Faults: unauthenticated, forbidden, rate_limited. */
  readonly caller: (context: InstancePeer & EdgeContext, need: 'read' | 'write') => Principal
  /** Reads the body as strict JSON within all limits. Faults: invalid_request, body_too_large, body_timeout. */
  readonly json: (request: Request) => Promise<unknown>
  /** Text of /openapi.json. */
  readonly openapi: string
}

/** A handler. If it returns a Response, that is sent without an envelope. */
export type InstanceHandler = (
  api: InstanceApi & Edge,
  context: InstancePeer & EdgeContext,
) => HandlerResult | Promise<HandlerResult>
type HandlerResult = Reply | Response
