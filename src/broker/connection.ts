// Carries one connection of a program to the host and port that it was made to. Effects: sockets.
//
// The upstream is opened at once, because servers of some protocols speak first. Nothing of the program's reaches it
// before its first bytes have been read: a ClientHello or a plain HTTP request must name the host of the connection.

import type { Socket } from 'node:net'
import { pipeline } from 'node:stream/promises'
import { messageOf } from '../base/fault.ts'
import type { Secret } from '../contract/vm/orders/secret.ts'
import { type FirstBytes, readFirstBytes } from './first-bytes.plan.ts'
import type { EgressLog, ServeTerminated } from './types.ts'

export type Carried = {
  readonly client: Socket
  readonly host: string
  readonly port: number
  /** Secrets of this host and port; its TLS is terminated if there are any. */
  readonly secrets: readonly Secret[]
}

export type CarryDeps = {
  readonly openUpstream: (host: string, port: number) => Promise<Socket>
  readonly serveTerminated: ServeTerminated
  readonly egressLog: EgressLog
  /** Time until the first bytes of a program whose server is silent, too. */
  readonly firstBytesTimeoutMs: number
}

/** Resolves when both sides are closed. Never rejects. */
export async function carryConnection(carried: Carried, deps: CarryDeps): Promise<void> {
  const { client, host, port, secrets } = carried
  const { egressLog } = deps
  const refuse = (reason: string) => egressLog.add({ verdict: 'refused', host, port, reason })
  let upstream: Socket | null = null
  try {
    if (secrets.length > 0) {
      const first = await firstBytesOf(client, deps.firstBytesTimeoutMs)
      const reason = mismatchOf(first, { host, port })
      if (reason !== null) return refuse(reason)
      if (first.read.kind !== 'tls') return refuse('it is no TLS, and a secret is for this host and port')
      egressLog.add({ verdict: 'allowed', host, port, reason: null })
      const openUpstream = () => deps.openUpstream(host, port)
      const terminated = { hostname: host, port, client, first: first.bytes, openUpstream, secrets, log: egressLog }
      return await deps.serveTerminated(terminated)
    }
    upstream = await deps.openUpstream(host, port)
    egressLog.add({ verdict: 'allowed', host, port, reason: null })
    await splice(carried, upstream, deps, refuse)
  } catch (error) {
    if (upstream === null) refuse(messageOf(error))
  } finally {
    upstream?.destroy()
    client.destroy()
  }
}

async function splice(carried: Carried, upstream: Socket, deps: CarryDeps, refuse: (reason: string) => void) {
  const { client } = carried
  const down = pipeline(upstream, client)
  down.catch(() => client.destroy())
  const first = await firstBytesOf(client, deps.firstBytesTimeoutMs, upstream)
  const reason = mismatchOf(first, carried)
  if (reason !== null) return refuse(reason)
  if (first.bytes.length > 0) upstream.write(first.bytes)
  if (first.hasEnded) upstream.end()
  await Promise.all([first.hasEnded ? null : pipeline(client, upstream), down])
}

/** Returns why the connection is refused, or null. */
function mismatchOf({ read }: First, { host, port }: Pick<Carried, 'host' | 'port'>): string | null {
  switch (read.kind) {
    case 'partial':
      return 'it ended before its first bytes named a host'
    case 'refused':
      return read.reason
    case 'other':
      return null
    case 'tls':
      return read.host === host ? null : `its ClientHello names another host: ${shown(read.host)}`
    case 'http':
      if (read.host !== host) return `its HTTP request names another host: ${shown(read.host)}`
      return read.port === null || read.port === port ? null : 'its HTTP request names another port'
  }
}

function shown(host: string): string {
  return host.replace(/[^a-z0-9._:-]/g, '?').slice(0, 253)
}

type First = { readonly read: FirstBytes; readonly bytes: Buffer; readonly hasEnded: boolean }

/** Reads until the first bytes are decided, the program ends, or time is up; then the client is paused. */
function firstBytesOf(client: Socket, timeoutMs: number, upstream: Socket | null = null): Promise<First> {
  return new Promise(resolve => {
    let bytes: Buffer = Buffer.alloc(0)
    let hasEnded = false
    const done = (read: FirstBytes) => {
      clearTimeout(timer)
      client.pause()
      client.off('data', take)
      client.off('end', end)
      client.off('close', end)
      resolve({ read, bytes, hasEnded })
    }
    const take = (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk])
      const read = readFirstBytes(bytes)
      if (read.kind !== 'partial') done(read)
    }
    /** A program that sends nothing, such as one that only reads, names no other host. */
    const end = () => {
      hasEnded = true
      done(bytes.length === 0 ? { kind: 'other' } : { kind: 'partial' })
    }
    // A program of a protocol whose server speaks first may be silent for long.
    const timer = setTimeout(() => {
      if (bytes.length === 0 && upstream !== null && upstream.bytesRead > 0) return
      done({ kind: 'refused', reason: `it sent nothing for ${timeoutMs / 1000} s that names a host` })
    }, timeoutMs)
    client.on('data', take)
    client.on('end', end)
    client.on('close', end)
    client.resume()
  })
}
