// A VM that sends snapshots to service A, scripted. Effects: a TCP connection.

import { createHash } from 'node:crypto'
import { connect } from 'node:net'
import { Fault } from '../../../src/base/fault.ts'
import { snapshotText } from '../../../src/contract/snapshot.ts'
import type { Transfer } from '../../../src/contract/vm/agent.ts'
import type { Instance } from '../../../src/store/directory/instance.table.ts'
import type { GuestRequests } from '../../../src/vm/engine.ts'

/** Answers of a VM. */
export type FakeGuest = Partial<GuestRequests>

export const refusal = (message: string) => Promise.reject(new Fault('channel.refused', message))

/** Connects as the VM's program does. Resolves with what came back. */
export function dial(to: Transfer, bytes: Uint8Array): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port: to.port, host: '127.0.0.1', allowHalfOpen: true })
    const chunks: Buffer[] = []
    socket.on('data', chunk => chunks.push(chunk))
    socket.on('error', reject)
    socket.on('end', () => socket.end())
    socket.on('close', () => resolve(Buffer.concat(chunks)))
    socket.write(`${to.token}\n`)
    socket.end(bytes)
  })
}

export const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

export function signed(hostname: string, number: number, bytes: Uint8Array) {
  const facts = { hostname, number, previous: null, rootHash: null, ageHeader: sha256(bytes), sha256: sha256(bytes) }
  return { header: snapshotText({ format: 'strongroom/snapshot/v1', ...facts }), signature: 'signature' }
}

/** A VM that sends these bytes, then answers this. */
export function answering(bytes: Uint8Array, answer: () => ReturnType<GuestRequests['snapshot']>): FakeGuest {
  return {
    snapshot: async to => {
      await dial(to, bytes)
      return await answer()
    },
  }
}

/** A VM that sends these bytes, under numbers of its own. */
export function honest({ hostname }: Pick<Instance, 'hostname'>, bytes: Uint8Array) {
  let number = 0
  const snapshot: GuestRequests['snapshot'] = async to => {
    number += 1
    await dial(to, bytes)
    return signed(hostname, number, bytes)
  }
  return { snapshot }
}
