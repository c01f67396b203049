// Starts programs through the starter, for a daemon whose unit forbids it namespaces. Effects: sockets.

import { closeSync } from 'node:fs'
import { Fault, type FaultCode } from '../../base/fault.ts'
import { checkedJson } from '../../contract/check.ts'
import { connectedUnix, sendWithDescriptors } from '../../host/descriptors.ts'
import { type Sandbox, type StartSandboxed, startSandboxed } from '../../host/sandbox.ts'
import { type StartSchemaProcess, startOwnSchemaProcess } from '../../inference/schema-check/child.ts'
import { adoptSocket } from '../../linux/libc/sockets.ts'
import { createLineSplitter } from '../../linux/lines.ts'
import { type JailedStart, type StartJailed, startJailed } from '../../vm/launch/jailed.driver.ts'
import { requestBytesMax, StarterEvent } from './wire.ts'

export type Starter = {
  readonly startJailed: StartJailed
  readonly startSandboxed: StartSandboxed
  readonly startSchemaProcess: StartSchemaProcess
}

/** Starts them as children of this process, where nothing forbids it. */
export const ownStarter: Starter = { startJailed, startSandboxed, startSchemaProcess: startOwnSchemaProcess }

/** `path`: its socket (strongroom-starter.socket). */
export function createStarter(path: string): Starter {
  return {
    startJailed: async (start, fds) => {
      const answered = Promise.withResolvers<Extract<StarterEvent, { kind: 'started' }>>()
      const refuse = (message: string) => answered.reject(failure('host.command_failed', message))
      callStarter(path, { kind: 'jailed', start }, fds, {
        onEvent: event => {
          if (event.kind === 'started') answered.resolve(event)
          else if (event.kind === 'failed') refuse(event.message)
        },
        onClose: () => refuse('ended without an answer'),
      })
      const late = () => answered.reject(failure('host.command_timeout', `no answer within ${answerTimeoutMs} ms`))
      const timer = setTimeout(late, answerTimeoutMs)
      try {
        const { pid, startTicks } = await answered.promise
        return { pid, startTicks, uuid: start.uuid }
      } finally {
        clearTimeout(timer)
      }
    },
    startSandboxed: (sandbox, command, { onLine, lineBytesMax }) => {
      let pid = 0
      const { exited, end } = attend(path, { kind: 'sandboxed', sandbox, command, lineBytesMax }, [], {
        onStarted: started => {
          pid = started
        },
        onLine,
      })
      return {
        get pid() {
          return pid
        },
        exited,
        kill: async () => {
          end()
          await exited
        },
      }
    },
    startSchemaProcess: async fd => {
      const started = Promise.withResolvers<number>()
      const { exited, end } = attend(path, { kind: 'schema-check' }, [fd], {
        onStarted: started.resolve,
        onLine: () => {},
      })
      void exited.then(() => started.reject(failure('host.command_failed', 'the check of schemas does not start')))
      return { pid: await started.promise, exited, kill: end }
    },
  }
}

/** A `StarterRequest`, before it is written. */
type Request =
  | { readonly kind: 'jailed'; readonly start: JailedStart }
  | {
      readonly kind: 'sandboxed'
      readonly sandbox: Sandbox
      readonly command: readonly string[]
      readonly lineBytesMax: number
    }
  | { readonly kind: 'schema-check' }

type Attended = { readonly onStarted: (pid: number) => void; readonly onLine: (line: string) => void }

/** Starts a program whose parent the starter stays. `exited` resolves in every case. Fault host.command_failed. */
function attend(path: string, request: Request, fds: readonly number[], { onStarted, onLine }: Attended) {
  const exited = Promise.withResolvers<number>()
  const { end } = callStarter(path, request, fds, {
    onEvent: event => {
      if (event.kind === 'started') onStarted(event.pid)
      else if (event.kind === 'exited') exited.resolve(event.exitCode)
      else onLine(event.kind === 'line' ? event.text : event.message)
    },
    onClose: () => exited.resolve(killedExitCode),
  })
  return { exited: exited.promise, end }
}

type Call = {
  readonly onEvent: (event: StarterEvent) => void
  /** Once, also where nothing could be sent. */
  readonly onClose: () => void
}

/** The request is sent on return, so that the caller may close the descriptors. Fault host.command_failed. */
function callStarter(path: string, request: Request, fds: readonly number[], { onEvent, onClose }: Call) {
  const bytes = Buffer.from(`${JSON.stringify(request)}\n`)
  if (bytes.length > requestBytesMax) throw failure('host.command_failed', 'the request is too long')
  const fd = connectedUnix(path)
  try {
    sendWithDescriptors(fd, bytes, fds)
  } catch (error) {
    closeSync(fd)
    throw error
  }
  const lines = createLineSplitter({
    lineBytesMax: eventBytesMax,
    onLine: line => onEvent(checkedJson(StarterEvent, line, { what: 'starter', code: 'host.command_failed' })),
    onOverlong: () => {},
  })
  const connected = adoptSocket({
    fd,
    socket: { data: (_socket, chunk) => lines.push(chunk), close: onClose, error: onClose },
  })
  connected.catch(onClose)
  return {
    /** The starter then ends what it is the parent of. */
    end: () => void connected.then(socket => socket.write('end\n')).catch(() => {}),
  }
}

/** Longer than the starter waits for a program to enter its jail. */
const answerTimeoutMs = 30_000
/** Exit code of a process killed by SIGKILL. */
const killedExitCode = 137
const eventBytesMax = 1_048_576

function failure(code: FaultCode, message: string): Fault {
  return new Fault(code, `starter: ${message}; see journalctl --unit='strongroom-starter@*'`)
}
