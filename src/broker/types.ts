// Types that the parts of the broker share. Pure.
//
// The broker carries the connections of an instance's programs to the destinations that its owner allows. Root's filter
// refuses all other packets of theirs.

import type { Socket } from 'node:net'
import type { Secret } from '../contract/vm/orders/secret.ts'

/** One destination of `strongroom egress log`. */
export type LogEntry = {
  readonly atMs: number
  readonly verdict: 'allowed' | 'refused'
  /** Lower case, without a dot at its end. */
  readonly host: string
  /** 0 for a question to the resolver. */
  readonly port: number
  /** Null for an allowed connection. Never contains a secret. */
  readonly reason: string | null
}

export type EgressLog = { readonly add: (entry: Omit<LogEntry, 'atMs'>) => void }

/** A connection of a program to a host with secrets, which begins with a ClientHello for this host. */
export type Terminated = {
  /** Lower case. The server name of the ClientHello equals it. */
  readonly hostname: string
  readonly port: number
  /** Paused. Its first bytes, a whole ClientHello, are in `first` alone. */
  readonly client: Socket
  readonly first: Uint8Array
  /** Opens a TCP connection to a checked address of `hostname`. Rejects with a sentence for the log. */
  readonly openUpstream: () => Promise<Socket>
  /** Secrets of this host; at least one. */
  readonly secrets: readonly Secret[]
  readonly log: EgressLog
}

/** Resolves when both sides are closed. Destroys both when `client` is destroyed. */
export type ServeTerminated = (connection: Terminated) => Promise<void>
