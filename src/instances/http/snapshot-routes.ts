// The handlers of snapshots. A request for an instance of another host of the fleet is forwarded to that host.

import { Fault } from '../../base/fault.ts'
import { checked } from '../../contract/check.ts'
import { principalOf } from '../../contract/http/forwarded-principal.ts'
import { RestoreRequest } from '../../contract/http/snapshot.ts'
import type { EdgeContext } from '../../http/edge.ts'
import { fileResponse } from '../../http/files/ranged-file.ts'
import type { Principal } from '../service.ts'
import { Reply } from './envelope.ts'
import type { InstanceApi, InstanceHandler, InstancePeer } from './handler.ts'

type SnapshotOperation =
  | 'createSnapshot'
  | 'listInstanceSnapshots'
  | 'listSnapshots'
  | 'retrieveSnapshot'
  | 'deleteSnapshot'
  | 'restoreSnapshot'

export const SNAPSHOT_HANDLERS: Readonly<Record<SnapshotOperation, InstanceHandler>> = {
  createSnapshot: async (api, context) => {
    const by = api.caller(context, 'write')
    const begun = await api.snapshots.take(by, nameIn(context))
    return 'otherHostId' in begun ? forward(api, context, by, begun) : new Reply(begun, { status: 202 })
  },
  listInstanceSnapshots: async (api, context) => {
    const by = api.caller(context, 'read')
    const list = await api.snapshots.listOf(by, nameIn(context))
    return 'otherHostId' in list ? forward(api, context, by, list) : new Reply(list)
  },
  listSnapshots: (api, context) => new Reply(api.snapshots.list(api.caller(context, 'read'))),
  retrieveSnapshot: async (api, context) => {
    const by = api.caller(context, 'read')
    const found = await api.snapshots.find(by, snapshotIn(context))
    if ('otherHostId' in found) return await forward(api, context, by, found)
    const { path, bytes: sizeBytes, instanceId, number } = found
    const headers = { ETag: `"${instanceId}-${number}"`, 'Accept-Ranges': 'bytes' }
    return fileResponse(context.request, { path, sizeBytes, headers, contentHeaders: { 'Content-Type': contentType } })
  },
  deleteSnapshot: async (api, context) => {
    const by = api.caller(context, 'write')
    const removed = await api.snapshots.remove(by, snapshotIn(context))
    return 'otherHostId' in removed ? forward(api, context, by, removed) : new Reply(removed)
  },
  restoreSnapshot: async (api, context) => {
    const by = api.caller(context, 'write')
    const { request } = context
    // The body is read here and forwarded as it is.
    const from = checked(RestoreRequest, await api.json(request.clone() as Request), {
      what: 'body',
      code: 'invalid_request',
    })
    const openElsewhere = async (otherHostId: string) => {
      const path = `/v1/instances/${from.instance}/snapshots/${from.number}`
      const response = await forwarded(api, context, by, otherHostId, new Request(new URL(path, request.url).href))
      if (!response.ok || response.body === null)
        throw new Fault('fleet.unavailable', `host ${otherHostId} answers ${response.status} for a snapshot`)
      return response.body
    }
    const begun = await api.snapshots.restore(by, nameIn(context), { from, openElsewhere })
    return 'otherHostId' in begun ? forward(api, context, by, begun) : new Reply(begun, { status: 202 })
  },
}

/** Media type of the ciphertext; age has none of its own. */
const contentType = 'application/octet-stream'

function forward(
  api: Pick<InstanceApi, 'peers'>,
  context: InstancePeer & EdgeContext,
  by: Principal,
  { otherHostId }: { readonly otherHostId: string },
): Promise<Response> {
  return forwarded(api, context, by, otherHostId, context.request)
}

function forwarded(
  { peers }: Pick<InstanceApi, 'peers'>,
  context: InstancePeer & EdgeContext,
  by: Principal,
  hostId: string,
  request: Request,
): Promise<Response> {
  const principal = principalOf({ organizationId: by.organization.id, keyPrefix: by.keyPrefix }, request.method)
  return peers.forward(hostId, request, { service: 'instances', clientAddress: context.address(), principal })
}

/** A name that no instance has is unknown, like any other. */
function nameIn({ params: { name = '' } }: EdgeContext): string {
  return name
}

function snapshotIn({ params: { name = '', number = '' } }: EdgeContext): RestoreRequest {
  if (!/^[1-9][0-9]{0,8}$/.test(number)) throw new Fault('not_found', 'There is no snapshot of this number.')
  return { instance: name, number: Number(number) }
}
