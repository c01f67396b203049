// The daemon's client: requests over the admin socket, responses checked against the contract. Effects: one socket. A
// user other than root uses the read-only socket for its operations, if the user can open it.

import type { Static, TSchema } from '@sinclair/typebox'
import { Fault, messageOf, systemErrorCode } from '../base/fault.ts'
import { AdminProblem } from '../contract/admin/admin.ts'
import { isLook } from '../contract/admin/roles.ts'
import { checkValue } from '../contract/check.ts'
import { AdvisedFault, isFaultCode } from '../terminal/exit.ts'

export type AdminRequest<T extends TSchema> = {
  readonly method?: 'GET' | 'POST' | 'DELETE'
  /** Made with `path` where it has variable parts. */
  readonly path: string
  readonly query?: { readonly [name: string]: string | number | boolean | undefined }
  readonly body?: unknown
  /** Schema of the response's body. */
  readonly response: T
  readonly timeoutMs?: number
}

export type AdminClient = {
  /** Sends a request. Faults: admin.unreachable, internal (a response of another version), and the daemon's own. */
  readonly request: <T extends TSchema>(request: AdminRequest<T>) => Promise<Static<T>>
  /** The body's bytes as they arrive, until the connection ends. Faults as above. */
  readonly stream: (request: Pick<AdminRequest<TSchema>, 'path' | 'query'>) => AsyncIterable<Uint8Array>
}

const responseTimeoutMs = 30_000

/** `lookPath`: the read-only socket; null for the admin socket alone. */
export function createClient(socketPath: string, lookPath: string | null = null): AdminClient {
  const send = async (
    request: Omit<AdminRequest<TSchema>, 'response'>,
    signal: AbortSignal | null,
  ): Promise<Response> => {
    if (lookPath !== null && (request.method ?? 'GET') === 'GET' && isLook(request.path)) {
      try {
        return await sendTo(lookPath, request, signal)
      } catch (error) {
        if (!(error instanceof Fault) || error.code !== 'admin.unreachable') throw error
      }
    }
    return sendTo(socketPath, request, signal)
  }
  const sendTo = async (
    path: string,
    request: Omit<AdminRequest<TSchema>, 'response'>,
    signal: AbortSignal | null,
  ): Promise<Response> => {
    const url = new URL(request.path, 'http://strongroom')
    for (const [name, value] of Object.entries(request.query ?? {})) {
      if (value !== undefined) url.searchParams.set(name, String(value))
    }
    const body = request.body === undefined ? {} : { body: JSON.stringify(request.body) }
    try {
      const response = await fetch(url, {
        unix: path,
        method: request.method ?? 'GET',
        headers: { 'content-type': 'application/json' },
        ...body,
        signal,
        // Bun's own limit of five minutes would cut off `console --follow`.
        timeout: false,
      } as BunFetchRequestInit)
      if (response.ok) return response
      throw await readFault(response)
    } catch (error) {
      throw error instanceof Fault ? error : unreachable(error, path)
    }
  }
  return {
    request: async request => {
      const response = await send(request, AbortSignal.timeout(request.timeoutMs ?? responseTimeoutMs))
      const body: unknown = await response.json().catch(() => null)
      const result = checkValue(request.response, body)
      if (result.ok) return result.value
      const message = `the daemon's response is not as expected: ${result.problem}; is it of the same version as this executable?`
      throw new Fault('internal', message)
    },
    stream: request => readChunks(send(request, null), socketPath),
  }
}

async function* readChunks(sent: Promise<Response>, socketPath: string): AsyncGenerator<Uint8Array> {
  const { body } = await sent
  if (body === null) return
  try {
    for await (const chunk of body) yield chunk
  } catch (error) {
    throw unreachable(error, socketPath)
  }
}

/** The daemon's error, as a Fault with its code. */
async function readFault(response: Response): Promise<Fault> {
  const body: unknown = await response.json().catch(() => null)
  const result = checkValue(AdminProblem, body)
  if (!result.ok) return new Fault('internal', `the daemon responded with status ${response.status} and no known error`)
  const { code, message, param } = result.value.error
  return new Fault(isFaultCode(code) ? code : 'internal', message, param === undefined ? {} : { param })
}

function unreachable(error: unknown, socketPath: string): Fault {
  if (systemErrorCode(error) === 'EACCES') {
    const message = `permission denied at ${socketPath}: only root and [[operator.admins]] may use this socket`
    return new AdvisedFault('admin.unreachable', message, { remedy: 'run the command as root (sudo)', cause: error })
  }
  const why = REASONS[systemErrorCode(error) ?? ''] ?? (isTimeout(error) ? 'no response in time' : messageOf(error))
  return new Fault('admin.unreachable', `no daemon answers at ${socketPath}: ${why}`, { cause: error })
}

function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.name === 'TimeoutError'
}

const REASONS: { readonly [code: string]: string } = {
  ENOENT: 'there is no such socket',
  ECONNREFUSED: 'nothing listens on it',
  ECONNRESET: 'the connection was cut',
}
