// QEMU Machine Protocol over a UNIX socket (QEMU docs/interop/qmp-spec.rst). Effects: one connection.
//
// QEMU is trusted no more than its guest: lines, waiting commands and reading rate are bounded, and every response is
// checked. Events sent without a connection are lost, so query the status after connecting.

import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { Fault } from '../../base/fault.ts'
import { type Logger, silentLogger } from '../../base/log.ts'
import { checked, OneOf } from '../../contract/check.ts'
import { createLineSplitter } from '../../linux/lines.ts'
import { Pending } from './pending.ts'
import { connectUnix, type UnixSocket } from './unix-socket.ts'

/** Maximum time for a response: queries; commands that wait for the main loop; commands that do work. */
export const qmpTimeoutMs = { default: 500, blocking: 5_000, heavy: 30_000 } as const
export const qmpLineBytesMax = 1_048_576

/** RunState of qapi/run-state.json. */
const RunState = OneOf([
  'debug',
  'inmigrate',
  'internal-error',
  'io-error',
  'paused',
  'postmigrate',
  'prelaunch',
  'finish-migrate',
  'restore-vm',
  'running',
  'save-vm',
  'shutdown',
  'suspended',
  'watchdog',
  'guest-panicked',
  'colo',
])
export type RunState = Static<typeof RunState>

/** The commands we use and their results. Newer QEMU may add fields. */
export const QMP_RESULTS = {
  'query-status': Type.Object({ running: Type.Boolean(), status: RunState }),
  'query-name': Type.Object({ name: Type.Optional(Type.String()) }),
  'query-uuid': Type.Object({ UUID: Type.String() }),
  system_powerdown: Type.Object({}),
  stop: Type.Object({}),
  cont: Type.Object({}),
  quit: Type.Object({}),
} as const satisfies Record<string, TSchema>
export type QmpCommand = keyof typeof QMP_RESULTS
export type QmpResult<C extends QmpCommand> = Static<(typeof QMP_RESULTS)[C]>

/** The events we act upon (qapi/run-state.json, qapi/block-core.json); others are dropped. */
export const QmpEvent = Type.Union([
  Type.Object({ event: Type.Literal('STOP') }),
  Type.Object({
    event: Type.Literal('SHUTDOWN'),
    data: Type.Object({ guest: Type.Boolean(), reason: Type.String() }),
  }),
  Type.Object({ event: Type.Literal('RESET'), data: Type.Object({ guest: Type.Boolean(), reason: Type.String() }) }),
  Type.Object({ event: Type.Literal('GUEST_PANICKED'), data: Type.Object({ action: Type.String() }) }),
  Type.Object({
    event: Type.Literal('BLOCK_IO_ERROR'),
    data: Type.Object({
      device: Type.String(),
      'node-name': Type.Optional(Type.String()),
      operation: Type.String(),
      action: Type.String(),
      nospace: Type.Optional(Type.Boolean()),
    }),
  }),
])
export type QmpEvent = Static<typeof QmpEvent>

export type QmpOptions = {
  /** Time for socket, greeting and capabilities together. A socket with another client sends no greeting. */
  readonly timeoutMs: number
  readonly onEvent: (event: QmpEvent) => void
  /** Called once when QEMU or an error ends the connection; never after our own `close`. */
  readonly onClose: (reason: string) => void
  /** Stops waiting for the socket, for example because QEMU has exited. */
  readonly signal?: AbortSignal
  readonly log?: Logger
}

/**
 * Connects and negotiates. Faults: qmp.closed, qmp.timeout (no greeting), qmp.refused, host.unsupported (path length).
 */
export async function connectQmp(path: string, options: QmpOptions): Promise<Qmp> {
  const qmp = new QmpConnection(options)
  await qmp.connect(path)
  return qmp
}

/** No share: limits each VM, and only the daemon sends commands. */
const pendingCountMax = 32
const greetingId = 'greeting'

/** Methods of a connection after negotiation. */
export type Qmp = Omit<QmpConnection, 'connect'>

class QmpConnection {
  readonly #options: QmpOptions
  readonly #log: Logger
  readonly #pending = new Pending<unknown>({ countMax: pendingCountMax, late: 'qmp.timeout', full: 'qmp.refused' })
  #socket: UnixSocket | null = null
  /** Whether the connection is negotiated, and has not been closed since. */
  #isOpen = false
  #count = 0

  constructor(options: QmpOptions) {
    this.#options = options
    this.#log = options.log ?? silentLogger
  }

  /** Called once, by `connectQmp`. */
  async connect(path: string): Promise<void> {
    const { timeoutMs, signal } = this.#options
    const startedMs = performance.now()
    const greeting = this.#pending.add(greetingId, timeoutMs, 'QMP greeting')
    greeting.catch(() => {})
    const splitter = createLineSplitter({
      lineBytesMax: qmpLineBytesMax,
      onLine: line => this.#receive(line),
      onOverlong: () => {
        // The line may respond to any of the commands.
        this.#socket?.close()
        this.#closed(`QEMU sent a line of more than ${qmpLineBytesMax} bytes`)
      },
    })
    try {
      this.#socket = await connectUnix(path, {
        timeoutMs,
        signal,
        code: 'qmp.closed',
        bytesPerSecondMax: 4 * qmpLineBytesMax,
        queuedBytesMax: 65_536,
        onData: chunk => {
          splitter.push(chunk)
          return undefined
        },
        onClose: reason => this.#closed(reason),
      })
      await greeting
      await this.#execute('qmp_capabilities', Math.max(1, timeoutMs - (performance.now() - startedMs)))
    } catch (error) {
      this.close()
      throw error
    }
    this.#isOpen = true
  }

  /**
   * Runs a command. Faults: qmp.timeout (the connection stays), qmp.refused (QEMU's error, or a malformed response),
   * qmp.closed.
   */
  async command<C extends QmpCommand>(name: C, timeoutMs: number): Promise<QmpResult<C>> {
    return parseResult(name, await this.#execute(name, timeoutMs))
  }

  close(): void {
    this.#isOpen = false
    this.#socket?.close()
    this.#pending.rejectAll(new Fault('qmp.closed', 'closed by us'))
  }

  #execute(name: string, timeoutMs: number): Promise<unknown> {
    this.#count += 1
    const id = `c-${this.#count}`
    const response = this.#pending.add(id, timeoutMs, `QMP ${name}`)
    if (!this.#socket?.write(Buffer.from(`${JSON.stringify({ execute: name, id })}\n`))) {
      this.#pending.reject(id, new Fault('qmp.closed', `QMP ${name}: the connection has ended or does not take more`))
    }
    return response
  }

  #closed(reason: string): void {
    this.#pending.rejectAll(new Fault('qmp.closed', reason))
    if (this.#isOpen) this.#options.onClose(reason)
    this.#isOpen = false
  }

  #receive(line: Uint8Array): void {
    let message: unknown
    try {
      message = JSON.parse(Buffer.from(line).toString('utf8'))
    } catch {
      this.#log.warn('QEMU sent a line that is not JSON', { bytes: line.length })
      return
    }
    if (Value.Check(QmpEvent, message)) {
      this.#options.onEvent(message)
    } else if (Value.Check(Return, message)) {
      // The request may have ended: QEMU may respond after the deadline, or twice.
      this.#pending.resolve(message.id, message.return)
    } else if (Value.Check(Refusal, message)) {
      const { class: kind, desc } = message.error
      this.#pending.reject(message.id, new Fault('qmp.refused', `${kind}: ${desc}`))
    } else if (Value.Check(Greeting, message)) {
      this.#pending.resolve(greetingId, message)
    }
  }
}

function parseResult<C extends QmpCommand>(name: C, result: unknown): QmpResult<C> {
  const schema: (typeof QMP_RESULTS)[C] = QMP_RESULTS[name]
  return checked(schema, result, { what: `QMP ${name}: response of the wrong shape`, code: 'qmp.refused' })
}

const Greeting = Type.Object({ QMP: Type.Object({}) })
const Return = Type.Object({ id: Type.String(), return: Type.Unknown() })
const Refusal = Type.Object({ id: Type.String(), error: Type.Object({ class: Type.String(), desc: Type.String() }) })
