// Host side of the agent channel (contract/agent.ts) over the UNIX socket of QEMU's virtio-serial port. Effects: one connection.
//
// The guest is hostile: whatever it sends, memory and reading rate are bounded and only a checked answer to our own question counts.
// A question may be asked before the guest opens its port: it waits in the socket.

import { type Static, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { Fault } from '../../base/fault.ts'
import { type Logger, silentLogger } from '../../base/log.ts'
import {
  type AgentRequest,
  AgentResponse,
  agentLineBytesMax,
  type Claimed,
  type Hello,
  type Network,
  type SealedClaim,
} from '../../contract/agent.ts'
import { createLineSplitter } from '../../linux/lines.ts'
import { createPending } from './pending.ts'
import { connectUnix } from './unix-socket.ts'

type WithoutId<T> = T extends unknown ? Omit<T, 'id'> : never
export type AgentQuestion = WithoutId<AgentRequest>
export type AgentAnswer = Extract<Static<typeof AgentResponse>, { ok: true }>

/** Every method's Faults: channel.timeout (the connection lives on), channel.refused (the guest's code begins the message), channel.closed. */
export type Channel = {
  readonly request: (question: AgentQuestion, timeoutMs: number) => Promise<AgentAnswer>
  readonly hello: (timeoutMs: number) => Promise<Hello>
  readonly network: (network: Network, timeoutMs: number) => Promise<void>
  readonly claim: (sealed: SealedClaim, timeoutMs: number) => Promise<Claimed>
  readonly shutdown: (timeoutMs: number) => Promise<void>
  /** Lines that were no answer to a waiting question. */
  readonly ignored: () => ChannelIgnored
  readonly close: () => void
}

/** Counts by kind: not of the wire, over the line limit, and answers that nobody waits for (late, twice, to an earlier connection). */
export type ChannelIgnored = { readonly garbage: number; readonly overlong: number; readonly unasked: number }

export type ChannelOptions = {
  /** Drawn anew for each connection, so that answers to an earlier one are recognized; at most 40 characters. */
  readonly idPrefix: string
  /** For the socket to appear. */
  readonly timeoutMs: number
  /** Once, when QEMU or an error ends the connection; never after our own `close`. */
  readonly onClose: (reason: string) => void
  readonly signal?: AbortSignal
  readonly log?: Logger
}

/** Connects; the guest need not be there yet. Faults: channel.closed (no socket), host.unsupported (path too long). */
export async function connectChannel(path: string, options: ChannelOptions): Promise<Channel> {
  const log = options.log ?? silentLogger
  const pending = createPending<AgentAnswer>({
    countMax: pendingCountMax,
    late: 'channel.timeout',
    full: 'channel.refused',
  })
  const ignored = { garbage: 0, overlong: 0, unasked: 0 }
  const ignore = (kind: keyof typeof ignored) => {
    ignored[kind] += 1
    // A flood must not become a flood of log lines.
    if (Number.isInteger(Math.log10(ignored[kind]))) log.warn('line from the guest ignored', { kind, ...ignored })
  }
  const receive = (line: Uint8Array) => {
    if (line.length === 0) return
    const message = parseLine(line)
    if (message === null) return ignore('garbage')
    // Before the schema: it costs the most, and a flood has no id that waits.
    if (!pending.waits(message.id)) return ignore('unasked')
    if (!Value.Check(AgentResponse, message)) return ignore('garbage')
    if (message.ok) pending.answer(message.id, message)
    else pending.refuse(message.id, new Fault('channel.refused', `${message.code}: ${message.message}`))
  }
  const splitter = createLineSplitter({
    lineBytesMax: agentLineBytesMax,
    onLine: receive,
    onOverlong: () => ignore('overlong'),
  })
  const socket = await connectUnix(path, {
    timeoutMs: options.timeoutMs,
    ...(options.signal === undefined ? {} : { signal: options.signal }),
    code: 'channel.closed',
    bytesPerSecondMax: 4 * agentLineBytesMax,
    queuedBytesMax: 4 * agentLineBytesMax,
    onData: chunk => {
      splitter.push(chunk)
      return undefined
    },
    onClose: reason => {
      pending.refuseAll(new Fault('channel.closed', reason))
      options.onClose(reason)
    },
  })
  // Ends whatever half line an earlier connection left with the guest.
  socket.write(Buffer.from('\n'))

  let count = 0
  const request = (question: AgentQuestion, timeoutMs: number): Promise<AgentAnswer> => {
    count += 1
    const id = `${options.idPrefix}-${count}`
    const line = Buffer.from(`${JSON.stringify({ id, ...question })}\n`)
    const answer = pending.ask(id, timeoutMs, `agent ${question.op}`)
    if (line.length > agentLineBytesMax + 1) {
      pending.refuse(id, new Fault('channel.refused', `agent ${question.op}: longer than ${agentLineBytesMax} bytes`))
    } else if (!socket.write(line)) {
      // Full: the guest has not read for long; earlier questions still wait in the socket.
      pending.refuse(id, new Fault('channel.closed', `agent ${question.op}: the connection takes no more`))
    }
    return answer
  }
  return {
    request,
    hello: async timeoutMs => {
      const answer = await request({ op: 'hello' }, timeoutMs)
      if (!('hello' in answer)) throw new Fault('channel.refused', 'agent hello: answered without hello')
      return answer.hello
    },
    network: async (network, timeoutMs) => void (await request({ op: 'network', network }, timeoutMs)),
    claim: async (sealed, timeoutMs) => {
      const answer = await request({ op: 'claim', sealed }, timeoutMs)
      if (!('claimed' in answer)) throw new Fault('channel.refused', 'agent claim: answered without claimed')
      return answer.claimed
    },
    shutdown: async timeoutMs => void (await request({ op: 'shutdown' }, timeoutMs)),
    ignored: () => ({ ...ignored }),
    close: () => {
      socket.close()
      pending.refuseAll(new Fault('channel.closed', 'closed by us'))
    },
  }
}

const pendingCountMax = 8

function parseLine(line: Uint8Array): { id: string } | null {
  try {
    const message: unknown = JSON.parse(Buffer.from(line).toString('utf8'))
    return Value.Check(Identified, message) ? message : null
  } catch {
    return null
  }
}

const Identified = Type.Object({ id: Type.String() })
