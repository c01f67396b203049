// Snapshots at service A, as the client's commands use them. Effects: the network. The service is not trusted: what it
// answers is bounded and checked, and what proves a snapshot is its signature.

import { RestoreBegun, Snapshot, SnapshotAttempt, SnapshotList } from '../../contract/http/snapshot.ts'
import { ageHeaderBytesMax } from '../snapshots/age-header.ts'
import type { InstanceSource } from '../verify/instance-source.ts'
import { receive, send, sendRaw, strange, unlessMissing } from './service.ts'

export type SnapshotName = { readonly instance: string; readonly number: number }

export type SnapshotService = {
  /** HOST:PORT, for messages. */
  readonly host: string
  readonly take: (instance: string) => Promise<SnapshotAttempt>
  /** Snapshots of an instance, or of the organization (null). Null if there is no such instance. */
  readonly list: (instance: string | null) => Promise<SnapshotList | null>
  /** The first bytes of a ciphertext. Null if there is no such snapshot. */
  readonly head: (snapshot: SnapshotName) => Promise<Uint8Array | null>
  /** Receives a whole ciphertext. */
  readonly download: (snapshot: Snapshot, write: (chunk: Uint8Array) => Promise<void>) => Promise<void>
  /** Null if there is no such snapshot. */
  readonly remove: (snapshot: SnapshotName) => Promise<Snapshot | null>
  readonly restore: (into: string, snapshot: SnapshotName) => Promise<RestoreBegun>
}

const downloadMs = 6 * 60 * 60 * 1_000
const listBytesMax = 64 * 1024 * 1024

/** Faults as those of `createService`. */
export function createSnapshotService(source: InstanceSource): SnapshotService {
  const pathOf = ({ instance, number }: SnapshotName) => `/v1/instances/${instance}/snapshots/${number}`
  const own = (list: SnapshotList, instance: string | null): SnapshotList => {
    const names = [...list.snapshots, ...list.attempts].map(({ instance: name }) => name)
    if (instance === null || names.every(name => name === instance)) return list
    throw strange(source, `its snapshots of ${instance} are of another instance`)
  }
  return {
    host: source.api.host,
    take: instance => send(source, `/v1/instances/${instance}/snapshots`, SnapshotAttempt, { method: 'POST' }),
    list: instance => {
      const path = instance === null ? '/v1/snapshots' : `/v1/instances/${instance}/snapshots`
      return unlessMissing(async () =>
        own(await send(source, path, SnapshotList, { bytesMax: listBytesMax }), instance),
      )
    },
    head: snapshot =>
      unlessMissing(() =>
        sendRaw(source, pathOf(snapshot), {
          headers: { range: `bytes=0-${ageHeaderBytesMax - 1}` },
          bytesMax: ageHeaderBytesMax,
        }),
      ),
    download: (snapshot, write) =>
      receive(source, pathOf(snapshot), { bytesMax: snapshot.bytes, timeoutMs: downloadMs, write }),
    remove: snapshot => unlessMissing(() => send(source, pathOf(snapshot), Snapshot, { method: 'DELETE' })),
    restore: (into, snapshot) => {
      const headers = { 'content-type': 'application/json' }
      const init = { method: 'POST', headers, body: JSON.stringify(snapshot) } as const
      return send(source, `/v1/instances/${into}/restore`, RestoreBegun, init)
    },
  }
}
