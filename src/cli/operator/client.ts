// The daemon, as commands see it: requests over the admin socket, answers checked against the contract. Effects: one socket.

import type { Static, TSchema } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { Fault, messageOf } from '../../base/fault.ts'
import { AdminProblem } from '../../contract/admin.ts'
import { isFaultCode } from '../exit.ts'

export type AdminRequest<T extends TSchema> = {
  readonly method?: 'GET' | 'POST' | 'DELETE'
  /** Fixed text and encoded parts: see `path`. */
  readonly path: string
  readonly query?: { readonly [name: string]: string | number | boolean | undefined }
  readonly body?: unknown
  readonly answer: T
  readonly timeoutMs?: number
}

export type AdminClient = {
  /** Faults: admin.unreachable, internal (an answer of another version), and what the daemon says. */
  readonly ask: <T extends TSchema>(request: AdminRequest<T>) => Promise<Static<T>>
  /** Bytes as they come; the end of the connection is the end. */
  readonly stream: (request: Pick<AdminRequest<TSchema>, 'path' | 'query'>) => AsyncIterable<Uint8Array>
}

const answerTimeoutMs = 30_000

export function createClient(socketPath: string): AdminClient {
  const send = async (
    request: Omit<AdminRequest<TSchema>, 'answer'>,
    signal: AbortSignal | null,
  ): Promise<Response> => {
    const url = new URL(request.path, 'http://strongroom')
    for (const [name, value] of Object.entries(request.query ?? {})) {
      if (value !== undefined) url.searchParams.set(name, String(value))
    }
    const body = request.body === undefined ? {} : { body: JSON.stringify(request.body) }
    try {
      const response = await fetch(url, {
        unix: socketPath,
        method: request.method ?? 'GET',
        headers: { 'content-type': 'application/json' },
        ...body,
        signal,
        // Bun's own limit of five minutes would end a console that is followed.
        timeout: false,
      } as BunFetchRequestInit)
      if (response.ok) return response
      throw await refusal(response)
    } catch (error) {
      throw error instanceof Fault ? error : unreachable(error, socketPath)
    }
  }
  return {
    ask: async request => {
      const response = await send(request, AbortSignal.timeout(request.timeoutMs ?? answerTimeoutMs))
      const answer: unknown = await response.json().catch(() => null)
      if (!Value.Check(request.answer, answer)) {
        const where = Value.Errors(request.answer, answer).First()?.path || '/'
        throw new Fault(
          'internal',
          `the daemon's answer does not fit at ${where}; is it of the same version as this executable?`,
        )
      }
      return answer
    },
    stream: request => bytesOf(send(request, null), socketPath),
  }
}

async function* bytesOf(sent: Promise<Response>, socketPath: string): AsyncGenerator<Uint8Array> {
  const { body } = await sent
  if (body === null) return
  try {
    for await (const chunk of body) yield chunk
  } catch (error) {
    throw unreachable(error, socketPath)
  }
}

/** What the daemon answered instead. */
async function refusal(response: Response): Promise<Fault> {
  const body: unknown = await response.json().catch(() => null)
  if (!Value.Check(AdminProblem, body))
    return new Fault('internal', `the daemon answered with status ${response.status}`)
  const { code, message, param } = body.error
  return new Fault(isFaultCode(code) ? code : 'internal', message, param === undefined ? {} : { param })
}

function unreachable(error: unknown, socketPath: string): Fault {
  const code = String(Reflect.get(Object(error), 'code'))
  const why = REASONS[code] ?? (isTimeout(error) ? 'no answer in time' : messageOf(error))
  return new Fault('admin.unreachable', `no daemon answers at ${socketPath}: ${why}`, { cause: error })
}

function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.name === 'TimeoutError'
}

const REASONS: { readonly [code: string]: string } = {
  ENOENT: 'there is no such socket',
  ECONNREFUSED: 'nobody listens',
  EACCES: 'permission denied; only root may use it',
  ECONNRESET: 'the connection was cut',
}
