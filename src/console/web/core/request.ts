// Requests of the page to its own origin. Effects: the network. Failures are RequestProblems with the server's message.

/** The part of an error body that all services and the console share. */
type ErrorBody = {
  readonly error?: { readonly code?: unknown; readonly message?: unknown; readonly param?: unknown }
}

export class RequestProblem extends Error {
  readonly code: string
  /** The HTTP status; 0 if there was no response. */
  readonly status: number
  /** The invalid field; null if the error is not about one field. */
  readonly param: string | null

  constructor({
    code,
    message,
    status,
    param = null,
  }: Pick<RequestProblem, 'code' | 'message' | 'status'> & { param?: string | null }) {
    super(message)
    this.code = code
    this.status = status
    this.param = param
  }
}

export type RequestOptions = {
  readonly method?: 'GET' | 'POST' | 'DELETE'
  /** Body to send as JSON. */
  readonly body?: unknown
  /** A tenant's key, sent only with this request. */
  readonly key?: string | null
  readonly headers?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal | undefined
  /** No person made the request, so it does not keep the session alive. */
  readonly isBackground?: boolean
  readonly bytesMax?: number
}

/** Options of a request with which a component loads its content. */
export type LoadRequest = Pick<RequestOptions, 'signal' | 'isBackground'>

const backgroundHeader = 'x-strongroom-background'

const responseBytesMax = 33_554_432
const problemBytesMax = 65_536

/** Returns the JSON document of a response. Throws RequestProblem; an AbortError propagates. */
export async function requestJson<T>(path: string, options: RequestOptions = {}): Promise<T> {
  const bytes = await requestBytes(path, options)
  return bytes.length === 0 ? (null as T) : (JSON.parse(new TextDecoder().decode(bytes)) as T)
}

export async function requestText(path: string, options: RequestOptions = {}): Promise<string> {
  return new TextDecoder().decode(await requestBytes(path, options))
}

export async function requestBytes(path: string, options: RequestOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
  const response = await requestStream(path, options)
  return await boundedBytes(response, options.bytesMax ?? responseBytesMax)
}

/** Returns a response whose body the caller reads incrementally. */
export async function requestStream(path: string, options: RequestOptions = {}): Promise<Response> {
  const { method = 'GET', body, key = null, signal } = options
  const headers: Record<string, string> = { ...options.headers }
  if (body !== undefined || method !== 'GET') headers['content-type'] = 'application/json'
  if (options.isBackground === true) headers[backgroundHeader] = '1'
  if (key !== null) headers.authorization = `Bearer ${key}`
  const init: RequestInit = { method, headers, credentials: key === null ? 'same-origin' : 'omit', redirect: 'error' }
  if (body !== undefined) init.body = JSON.stringify(body)
  if (signal !== undefined) init.signal = signal
  const response = await fetch(path, init).catch((error: unknown) => {
    if (isAbort(error)) throw error
    throw new RequestProblem({ code: 'unreachable', message: 'the appliance does not respond', status: 0 })
  })
  if (!response.ok) throw await problemOf(response)
  return response
}

/** Converts any failure to a problem to show. */
export function problemFrom(error: unknown): RequestProblem {
  if (error instanceof RequestProblem) return error
  const message = error instanceof Error ? error.message : String(error)
  return new RequestProblem({ code: 'page', message, status: 0 })
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError'
}

async function problemOf(response: Response): Promise<RequestProblem> {
  const { status } = response
  try {
    const text = new TextDecoder().decode(await boundedBytes(response, problemBytesMax))
    const { error } = JSON.parse(text) as ErrorBody
    const param = typeof error?.param === 'string' ? error.param : null
    if (typeof error?.message === 'string') {
      return new RequestProblem({ code: String(error.code), message: error.message, status, param })
    }
  } catch {
    // The body is not one of our documents, so only the status is known.
  }
  return new RequestProblem({ code: 'status', message: `the appliance answered with status ${status}`, status })
}

async function boundedBytes(response: Response, bytesMax: number): Promise<Uint8Array<ArrayBuffer>> {
  if (response.body === null) return new Uint8Array(0)
  const parts: Uint8Array<ArrayBuffer>[] = []
  let sizeBytes = 0
  for await (const part of response.body) {
    sizeBytes += part.length
    if (sizeBytes > bytesMax) {
      const message = `the response has more than ${bytesMax} bytes`
      throw new RequestProblem({ code: 'too_large', message, status: response.status })
    }
    parts.push(part)
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer())
}
