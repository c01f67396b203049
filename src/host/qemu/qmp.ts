// QEMU Machine Protocol over a UNIX socket (QEMU docs/interop/qmp-spec.rst). Effects: one connection.
//
// QEMU is not trusted more than its guest: lines, questions and reading rate are bounded and every answer is checked.
// Events sent while nobody is connected are lost, so query the status after connecting.

import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { Fault } from '../../base/fault.ts'
import { type Logger, silentLogger } from '../../base/log.ts'
import { createLineSplitter } from '../../linux/lines.ts'
import { createPending, type Pending } from './pending.ts'
import { connectUnix, type UnixSocket } from './unix-socket.ts'

/** How long an answer may take: queries; commands that wait for the main loop; commands that do work. */
export const qmpTimeoutMs = { default: 500, blocking: 5_000, heavy: 30_000 } as const
export const qmpLineBytesMax = 1_048_576

/** RunState of qapi/run-state.json. */
const RunState = Type.Union([
  Type.Literal('debug'),
  Type.Literal('inmigrate'),
  Type.Literal('internal-error'),
  Type.Literal('io-error'),
  Type.Literal('paused'),
  Type.Literal('postmigrate'),
  Type.Literal('prelaunch'),
  Type.Literal('finish-migrate'),
  Type.Literal('restore-vm'),
  Type.Literal('running'),
  Type.Literal('save-vm'),
  Type.Literal('shutdown'),
  Type.Literal('suspended'),
  Type.Literal('watchdog'),
  Type.Literal('guest-panicked'),
  Type.Literal('colo'),
])
export type RunState = Static<typeof RunState>

/** The commands we use and what each returns. Newer QEMU may add fields. */
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

export type Qmp = {
  /** Faults: qmp.timeout (the connection lives on), qmp.refused (QEMU's error, or an answer of the wrong shape), qmp.closed. */
  readonly command: <C extends QmpCommand>(name: C, timeoutMs: number) => Promise<QmpResult<C>>
  readonly close: () => void
}

export type QmpOptions = {
  /** For the socket to appear, the greeting and the capabilities together. A socket with another client gives no greeting. */
  readonly timeoutMs: number
  readonly onEvent: (event: QmpEvent) => void
  /** Once, when QEMU or an error ends the connection; never after our own `close`. */
  readonly onClose: (reason: string) => void
  /** Stops waiting for the socket, for example because QEMU has exited. */
  readonly signal?: AbortSignal
  readonly log?: Logger
}

/** Connects and negotiates. Faults: qmp.closed (no socket, or gone), qmp.timeout (no greeting), qmp.refused, host.unsupported (path too long). */
export async function connectQmp(path: string, options: QmpOptions): Promise<Qmp> {
  const log = options.log ?? silentLogger
  const startedMs = performance.now()
  const pending = createPending<unknown>({ countMax: pendingCountMax, late: 'qmp.timeout', full: 'qmp.refused' })
  const greeting = pending.ask(greetingId, options.timeoutMs, 'QMP greeting')
  greeting.catch(() => {})
  let open = false
  let connected: UnixSocket | undefined
  const closed = (reason: string) => {
    pending.refuseAll(new Fault('qmp.closed', reason))
    if (open) options.onClose(reason)
    open = false
  }
  const receive = createReceiver({ pending, onEvent: event => options.onEvent(event), log })
  const splitter = createLineSplitter({
    lineBytesMax: qmpLineBytesMax,
    onLine: receive,
    onOverlong: () => {
      // There is no way to tell what the line was an answer to.
      connected?.close()
      closed(`QEMU sent a line of more than ${qmpLineBytesMax} bytes`)
    },
  })
  const socket = await connectUnix(path, {
    timeoutMs: options.timeoutMs,
    ...(options.signal === undefined ? {} : { signal: options.signal }),
    code: 'qmp.closed',
    bytesPerSecondMax: 4 * qmpLineBytesMax,
    queuedBytesMax: 65_536,
    onData: chunk => {
      splitter.push(chunk)
      return undefined
    },
    onClose: closed,
  }).catch(error => {
    pending.refuseAll(new Fault('qmp.closed', 'never connected'))
    throw error
  })
  connected = socket

  let count = 0
  const execute = (name: string, timeoutMs: number): Promise<unknown> => {
    count += 1
    const id = `c-${count}`
    const answer = pending.ask(id, timeoutMs, `QMP ${name}`)
    if (!socket.write(Buffer.from(`${JSON.stringify({ execute: name, id })}\n`))) {
      pending.refuse(id, new Fault('qmp.closed', `QMP ${name}: the connection has ended or does not take more`))
    }
    return answer
  }
  try {
    await greeting
    await execute('qmp_capabilities', Math.max(1, options.timeoutMs - (performance.now() - startedMs)))
  } catch (error) {
    socket.close()
    throw error
  }
  open = true
  return {
    command: async (name, timeoutMs) => parseResult(name, await execute(name, timeoutMs)),
    close: () => {
      open = false
      socket.close()
      pending.refuseAll(new Fault('qmp.closed', 'closed by us'))
    },
  }
}

const pendingCountMax = 32
const greetingId = 'greeting'

function parseResult<C extends QmpCommand>(name: C, result: unknown): QmpResult<C> {
  const schema: (typeof QMP_RESULTS)[C] = QMP_RESULTS[name]
  if (!Value.Check(schema, result)) {
    throw new Fault('qmp.refused', `QMP ${name}: answer of the wrong shape: ${JSON.stringify(result).slice(0, 200)}`)
  }
  return result
}

const Greeting = Type.Object({ QMP: Type.Object({}) })
const Return = Type.Object({ id: Type.String(), return: Type.Unknown() })
const Refusal = Type.Object({ id: Type.String(), error: Type.Object({ class: Type.String(), desc: Type.String() }) })

type Receiver = { pending: Pending<unknown>; onEvent: (event: QmpEvent) => void; log: Logger }

function createReceiver({ pending, onEvent, log }: Receiver): (line: Uint8Array) => void {
  return line => {
    let message: unknown
    try {
      message = JSON.parse(Buffer.from(line).toString('utf8'))
    } catch {
      log.warn('QEMU sent a line that is not JSON', { bytes: line.length })
      return
    }
    if (Value.Check(QmpEvent, message)) return onEvent(message)
    // Nobody waits: QEMU may answer late, after the deadline, or twice.
    if (Value.Check(Return, message)) return void pending.answer(message.id, message.return)
    if (Value.Check(Refusal, message)) {
      return void pending.refuse(message.id, new Fault('qmp.refused', `${message.error.class}: ${message.error.desc}`))
    }
    if (Value.Check(Greeting, message)) pending.answer(greetingId, message)
  }
}
