// Host side of the agent channel (contract/vm/agent.ts) over the UNIX socket of QEMU's virtio-serial port. Effects: one
// connection.
//
// The guest is hostile: memory and reading rate are bounded, and only a checked response to an open request counts. A
// request may be sent before the guest opens its port; it waits in the socket.

import { type Static, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { fromUtf8, toBase64Url } from '../../base/bytes.ts'
import { systemClock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { nestsDeeper } from '../../base/json.ts'
import { type Logger, silentLogger } from '../../base/log.ts'
import { resultOr } from '../../base/result-or.ts'
import { TokenBucket } from '../../base/work/token-bucket.ts'
import type { SignedSnapshot } from '../../contract/snapshot.ts'
import {
  type AgentRequest,
  agentLineBytesMax,
  type EgressCount,
  type IdlePoll,
  type IssuedCertificate,
  type SealedClaim,
  type SimulatedLaunch,
  type Transfer,
} from '../../contract/vm/agent.ts'
import {
  AgentResponse,
  type Claimed,
  type GuestEvidence,
  type Hello,
  type IdleAnswer,
} from '../../contract/vm/agent-responses.ts'
import { BUILD_RESPONSES, type BuildAgentRequest } from '../../contract/vm/build-agent.ts'
import type { EnclaveRequest } from '../../contract/vm/enclave.ts'
import { ENCLAVE_RESPONSES } from '../../contract/vm/enclave-responses.ts'
import type { Network } from '../../contract/vm/network.ts'
import { createLineSplitter } from '../../linux/lines.ts'
import { Pending } from './pending.ts'
import { connectUnix, type UnixSocket } from './unix-socket.ts'

type WithoutId<T> = T extends unknown ? Omit<T, 'id'> : never
export type AgentOperation = WithoutId<AgentRequest | BuildAgentRequest | EnclaveRequest>
export type AgentSuccess = Extract<Static<typeof Response>, { ok: true }>

/**
 * Counts of ignored lines: malformed, too long, or responses without an open request (late, repeated, of an earlier
 * connection).
 */
export type ChannelIgnored = { readonly garbage: number; readonly overlong: number; readonly unasked: number }

/** How many bytes a guest may send, and how many requests may wait for it at the same time. */
export type ChannelLimits = { readonly readBytesPerSecondMax: number; readonly pendingCountMax: number }

/** The guest may send two of the longest lines per second. */
export const usualLimits: ChannelLimits = { readBytesPerSecondMax: 2 * agentLineBytesMax, pendingCountMax: 8 }

export type ChannelOptions = {
  /** Different for each connection, so that responses to an earlier one are recognized; at most 40 characters. */
  readonly idPrefix: string
  /** Time for the socket to appear. */
  readonly timeoutMs: number
  /** Called once when QEMU or an error ends the connection; never after our own `close`. */
  readonly onClose: (reason: string) => void
  readonly signal?: AbortSignal
  readonly log?: Logger
  /** Default: `usualLimits`. */
  readonly limits?: ChannelLimits
}

/**
 * Connects; the guest need not be running yet. Faults: channel.closed (no socket), host.unsupported (path too long).
 */
export async function connectChannel(path: string, options: ChannelOptions): Promise<Channel> {
  const channel = new AgentChannel(options)
  await channel.connect(path)
  return channel
}

type FieldOf<T> = T extends unknown ? keyof T : never

/** Sends a request and returns the field of its response that it is made for. Faults as for every request. */
export async function ask<Field extends FieldOf<AgentSuccess>>(
  channel: Pick<Channel, 'request'>,
  operation: AgentOperation,
  field: Field,
  timeoutMs: number,
): Promise<Extract<AgentSuccess, Record<Field, unknown>>[Field]> {
  const response = await channel.request(operation, timeoutMs)
  if (field in response) return (response as Extract<AgentSuccess, Record<Field, unknown>>)[field]
  throw new Fault('channel.refused', `agent ${operation.op}: a response without ${field}`)
}

/** The shortest lines cost the most for their bytes; this many take a few per cent of the only thread. */
const readLinesPerSecondMax = 20_000

/**
 * Faults of every request: channel.timeout (the channel stays open), channel.refused (with the guest's code),
 * channel.closed.
 */
export type Channel = Omit<AgentChannel, 'connect'>

class AgentChannel {
  readonly #options: ChannelOptions
  readonly #log: Logger
  readonly #pending: Pending<AgentSuccess>
  readonly #ignored = { garbage: 0, overlong: 0, unasked: 0 }
  #socket: UnixSocket | null = null
  #count = 0

  constructor(options: ChannelOptions) {
    this.#options = options
    this.#log = options.log ?? silentLogger
    const { pendingCountMax: countMax } = options.limits ?? usualLimits
    this.#pending = new Pending({ countMax, late: 'channel.timeout', full: 'channel.refused' })
  }

  /** Called once, by `connectChannel`. */
  async connect(path: string): Promise<void> {
    const { timeoutMs, signal, onClose, limits = usualLimits } = this.#options
    const allowance = new TokenBucket(readLinesPerSecondMax, systemClock)
    let lines = 0
    const splitter = createLineSplitter({
      lineBytesMax: agentLineBytesMax,
      onLine: line => {
        lines += 1
        this.#receive(line)
      },
      onOverlong: () => this.#ignore('overlong'),
    })
    this.#socket = await connectUnix(path, {
      timeoutMs,
      signal,
      code: 'channel.closed',
      bytesPerSecondMax: limits.readBytesPerSecondMax,
      queuedBytesMax: 4 * agentLineBytesMax,
      onData: chunk => {
        lines = 0
        splitter.push(chunk)
        const pauseMs = allowance.take(lines)
        return pauseMs === 0 ? undefined : systemClock.sleep(pauseMs)
      },
      onClose: reason => {
        this.#pending.rejectAll(new Fault('channel.closed', reason))
        onClose(reason)
      },
    })
    // Ends the incomplete line that an earlier connection may have left with the guest.
    this.#socket.write(Buffer.from('\n'))
  }

  request(operation: AgentOperation, timeoutMs: number): Promise<AgentSuccess> {
    this.#count += 1
    const id = `${this.#options.idPrefix}-${this.#count}`
    const what = `agent ${operation.op}`
    const line = Buffer.from(`${JSON.stringify({ id, ...operation })}\n`)
    const response = this.#pending.add(id, timeoutMs, what)
    // Refused, because too many wait; the guest must not act on it either.
    if (!this.#pending.has(id)) return response
    if (line.length > agentLineBytesMax + 1) {
      this.#pending.reject(id, new Fault('channel.refused', `${what}: longer than ${agentLineBytesMax} bytes`))
    } else if (!this.#socket?.write(line)) {
      // Full: the guest has not read for a long time; earlier requests still wait in the socket.
      this.#pending.reject(id, new Fault('channel.closed', `${what}: the connection takes no more`))
    }
    return response
  }

  hello(timeoutMs: number): Promise<Hello> {
    return ask(this, { op: 'hello' }, 'hello', timeoutMs)
  }

  async network(network: Network, timeoutMs: number): Promise<void> {
    await this.request({ op: 'network', network }, timeoutMs)
  }

  claim(sealed: SealedClaim, timeoutMs: number): Promise<Claimed> {
    return ask(this, { op: 'claim', sealed }, 'claimed', timeoutMs)
  }

  /**
   * Requests evidence. `simulated`: what a simulated platform reports of the launch; null if the guest has a report
   * device.
   */
  evidence(nonce: Uint8Array, simulated: SimulatedLaunch | null, timeoutMs: number): Promise<GuestEvidence> {
    return ask(this, { op: 'evidence', nonce: toBase64Url(nonce), simulated }, 'evidence', timeoutMs)
  }

  /** Sends a receipt, given as JSON. */
  async receipt(receipt: string, timeoutMs: number): Promise<void> {
    await this.request({ op: 'receipt', receipt }, timeoutMs)
  }

  async egress(egress: EgressCount, timeoutMs: number): Promise<void> {
    await this.request({ op: 'egress', egress }, timeoutMs)
  }

  /** Returns whether the idle time is over, and whether a snapshot is due; see `AgentRequest`. */
  async idle(poll: IdlePoll, timeoutMs: number): Promise<IdleAnswer> {
    const response = await this.request({ op: 'idle', ...poll }, timeoutMs)
    if ('isIdle' in response) return response
    throw new Fault('channel.refused', 'agent idle: a response without isIdle')
  }

  async certificate(certificate: IssuedCertificate, timeoutMs: number): Promise<void> {
    await this.request({ op: 'certificate', ...certificate }, timeoutMs)
  }

  /** Requests a snapshot. Responds once it is sent. `ifChanged`: see `AgentRequest`. */
  snapshot(to: Transfer, timeoutMs: number, options: { readonly ifChanged?: string }): Promise<SignedSnapshot> {
    return ask(this, { op: 'snapshot', to, ...options }, 'snapshot', timeoutMs)
  }

  async restore(from: Transfer, pipe: string, timeoutMs: number): Promise<void> {
    await this.request({ op: 'restore', from, pipe }, timeoutMs)
  }

  async shutdown(timeoutMs: number): Promise<void> {
    await this.request({ op: 'shutdown' }, timeoutMs)
  }

  /** Returns the counts of lines that were not a response to a waiting request. */
  ignored(): ChannelIgnored {
    return { ...this.#ignored }
  }

  close(): void {
    this.#socket?.close()
    this.#pending.rejectAll(new Fault('channel.closed', 'closed by us'))
  }

  #receive(line: Uint8Array): void {
    if (line.length === 0) return
    const message = parseLine(line)
    if (message === null) this.#ignore('garbage')
    // Before the schema, which costs the most: in a flood, no id is that of a waiting request.
    else if (!this.#pending.has(message.id)) this.#ignore('unasked')
    else if (!Value.Check(Response, message)) this.#ignore('garbage')
    else if (message.ok) this.#pending.resolve(message.id, message)
    else this.#pending.reject(message.id, new Fault('channel.refused', `${message.code}: ${message.message}`))
  }

  #ignore(kind: keyof ChannelIgnored): void {
    this.#ignored[kind] += 1
    // Logs the 1st, 10th, 100th, …, because a flood must not become a flood of log lines.
    if (!Number.isInteger(Math.log10(this.#ignored[kind]))) return
    this.#log.warn('line from the guest ignored', { kind, ...this.#ignored })
  }
}

/** More than the deepest message needs. */
const depthMax = 16

function parseLine(line: Uint8Array): { id: string } | null {
  const message: unknown = resultOr(() => {
    const text = fromUtf8(line)
    return nestsDeeper(text, depthMax) ? null : JSON.parse(text)
  }, null)
  return Value.Check(Identified, message) ? message : null
}

const Response = Type.Union([...AgentResponse.anyOf, ...BUILD_RESPONSES, ...ENCLAVE_RESPONSES])

const Identified = Type.Object({ id: Type.String() })
