// A client of service C: submit, follow, download, cancel. Effects: the network, one file.

import { createHash } from 'node:crypto'
import { constants as fsConstants, renameSync, rmSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { utf8 } from '../../base/bytes.ts'
import { type Clock, pause } from '../../base/clock.ts'
import { Fault, type FaultCode } from '../../base/fault.ts'
import { parseJson } from '../../base/json.ts'
import { resultOr } from '../../base/result-or.ts'
import { checkValue } from '../../contract/check.ts'
import { BuildEvent } from '../../contract/http/build.ts'
import { BuildAccepted } from '../../contract/http/build-api.ts'
import { fetchReason } from '../../linux/net/proxy.plan.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import { oneLine } from '../../terminal/render.ts'

export type BuildClientOptions = {
  /** Base address: https://HOST:PORT. */
  readonly api: URL
  /** Null if the service is open. */
  readonly key: string | null
  /** Certificate authority in PEM. */
  readonly ca: string | undefined
  readonly clock: Clock
}

export type SeenEvent = { readonly id: number; readonly data: BuildEvent }

const answerTimeoutMs = 60_000
const uploadTimeoutMs = 900_000
/** Longest gap between two pieces of a stream; the service pings four times within it. */
const silenceMs = 60_000
const attemptsMax = 10
const retryMs = 1_000
const answerBytesMax = 1_048_576
const eventBytesMax = 262_144
/** Limit on the events of one build, including repeated ones. */
const eventsBytesMax = 1_073_741_824

export class BuildClient {
  readonly #options: BuildClientOptions
  #eventBytes = 0

  constructor(options: BuildClientOptions) {
    this.#options = options
  }

  /**
   * Submits a build and returns its id. Faults: api.unreachable, invalid_request, unauthenticated, forbidden, conflict,
   * rate_limited, internal.
   */
  async submit(body: object, signal: AbortSignal): Promise<string> {
    const response = await this.#send('/build', {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { 'content-type': 'application/json' },
      signal: AbortSignal.any([signal, AbortSignal.timeout(uploadTimeoutMs)]),
    })
    const parsed = checkValue(BuildAccepted, await jsonOf(response))
    if (!parsed.ok) throw this.#strange(`its answer to a build is not as expected: ${parsed.problem}`)
    return parsed.value.job_id
  }

  /** Cancels a build, with a short timeout because the user has pressed Ctrl-C. */
  async cancel(jobId: string): Promise<void> {
    await this.#send(`/build/${jobId}`, { method: 'DELETE', signal: AbortSignal.timeout(10_000) })
  }

  /**
   * Yields each event once, in order, up to `complete`. Resumes a broken stream after the last event. Faults: see
   * `submit`.
   */
  async *events(jobId: string, signal: AbortSignal): AsyncGenerator<SeenEvent> {
    let lastId = 0
    let failures = 0
    for (;;) {
      try {
        for await (const event of this.#stream(jobId, lastId, signal)) {
          if (event.id <= lastId) continue
          lastId = event.id
          failures = 0
          yield event
          if (event.data.type === 'complete') return
        }
      } catch (error) {
        const isFinal = error instanceof Fault && error.code !== 'api.unreachable'
        if (signal.aborted || isFinal) throw error
      }
      failures += 1
      if (failures >= attemptsMax) throw this.#unreachable(new Error('its events break off again and again'))
      await pause(this.#options.clock, retryMs * failures, signal)
      signal.throwIfAborted()
    }
  }

  /**
   * Downloads into a new file of at most `bytesMax`, resuming after interruptions. Returns the SHA-256 in hexadecimal.
   */
  async download(
    jobId: string,
    path: string,
    { bytesMax, signal }: { readonly bytesMax: number; readonly signal: AbortSignal },
  ): Promise<string> {
    const part = `${path}.part`
    rmSync(part, { force: true })
    const { O_WRONLY, O_CREAT, O_EXCL } = fsConstants
    const file = await open(part, O_WRONLY | O_CREAT | O_EXCL, 0o644)
    const hash = createHash('sha256')
    let sizeBytes = 0
    let etag: string | null = null
    try {
      for (let failures = 0; ; failures += 1) {
        try {
          const headers: Record<string, string> =
            sizeBytes === 0 ? {} : { range: `bytes=${sizeBytes}-`, 'if-range': etag ?? '' }
          using silence = new Silence()
          const either = AbortSignal.any([signal, silence.signal])
          const response = await this.#send(`/build/${jobId}/result`, { headers, signal: either })
          if (sizeBytes > 0 && response.status !== 206)
            throw this.#strange('its result changed in the middle of the download')
          etag = response.headers.get('etag')
          for await (const bytes of response.body ?? []) {
            silence.heard()
            if (sizeBytes + bytes.length > bytesMax) throw this.#tooLarge(bytesMax)
            hash.update(bytes)
            await file.write(bytes)
            sizeBytes += bytes.length
          }
          break
        } catch (error) {
          const isFinal = error instanceof Fault && error.code !== 'api.unreachable'
          if (signal.aborted || isFinal || failures >= attemptsMax)
            throw error instanceof Fault ? error : this.#unreachable(error)
          await pause(this.#options.clock, retryMs, signal)
        }
      }
      await file.sync()
    } catch (error) {
      rmSync(part, { force: true })
      throw error
    } finally {
      await file.close()
    }
    const sha256 = hash.digest('hex')
    if (etag !== null && etag !== `"${sha256}"`) {
      rmSync(part, { force: true })
      throw this.#strange('the result that arrived has another digest than it said')
    }
    renameSync(part, path)
    return sha256
  }

  async *#stream(jobId: string, afterId: number, signal: AbortSignal): AsyncGenerator<SeenEvent> {
    using silence = new Silence()
    const response = await this.#send(`/build/${jobId}/events`, {
      headers: { accept: 'text/event-stream', ...(afterId === 0 ? {} : { 'last-event-id': String(afterId) }) },
      signal: AbortSignal.any([signal, silence.signal]),
    })
    const decoder = new TextDecoder()
    let held = ''
    for await (const bytes of response.body ?? []) {
      silence.heard()
      this.#eventBytes += bytes.length
      if (this.#eventBytes > eventsBytesMax) throw this.#strange('it sends events without an end')
      held += decoder.decode(bytes, { stream: true })
      const blocks = held.split('\n\n')
      held = blocks.pop() ?? ''
      if (held.length > eventBytesMax) throw this.#strange('one of its events has no end')
      for (const block of blocks) {
        const event = eventOf(block)
        if (event !== null) yield event
      }
    }
  }

  async #send(path: string, init: RequestInit): Promise<Response> {
    const { api, key, ca } = this.#options
    let response: Response
    try {
      response = await fetch(new URL(path, api), {
        signal: AbortSignal.timeout(answerTimeoutMs),
        ...init,
        redirect: 'error',
        headers: {
          ...(key === null ? {} : { authorization: `Bearer ${key}` }),
          ...(init.headers as Record<string, string>),
        },
        ...(ca === undefined ? {} : { tls: { ca } }),
        // Bun's default limit of five minutes would abort a build that emits no events.
        timeout: false,
      } as BunFetchRequestInit)
    } catch (error) {
      throw init.signal?.aborted === true ? error : this.#unreachable(error)
    }
    if (response.ok) return response
    throw toFault(response.status, response.headers.get('retry-after'), await jsonOf(response), api.host)
  }

  #unreachable(error: unknown): Fault {
    return new AdvisedFault('api.unreachable', `${this.#options.api.host}: ${oneLine(fetchReason(error))}`, {
      remedy: 'check the address (--api), its certificate (--ca), the network, and that the service is up',
      cause: error,
    })
  }

  #tooLarge(bytesMax: number): Fault {
    return new AdvisedFault('internal', `${this.#options.api.host}: its result has more than ${bytesMax} bytes`, {
      remedy: 'build less, or take larger results with --download-mib',
    })
  }

  #strange(what: string): Fault {
    return new AdvisedFault('internal', `${this.#options.api.host}: ${oneLine(what)}`, {
      remedy: 'check that --api is a build service, of a version that this client supports',
    })
  }
}

/** Aborts its signal after a period without data, and when it is disposed. */
class Silence implements Disposable {
  readonly #controller = new AbortController()
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor() {
    this.heard()
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  heard(): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#controller.abort(new Error('nothing came for a minute')), silenceMs)
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer)
    this.#controller.abort()
  }
}

/** Parses an event; null for a comment or an event of an unknown kind. */
function eventOf(block: string): SeenEvent | null {
  const lines = block.split('\n')
  const field = (name: string) =>
    lines
      .find(line => line.startsWith(`${name}:`))
      ?.slice(name.length + 1)
      .trim()
  const data = field('data')
  if (data === undefined) return null
  const parsed = resultOr(() => checkValue(BuildEvent, parseJson(utf8(data), jsonLimits)), null)
  return parsed?.ok ? { id: Number(field('id') ?? 0), data: parsed.value } : null
}

const jsonLimits = { depthMax: 16 } as const

/** Reads JSON; null if the body is not JSON, or larger than any response. */
async function jsonOf(response: Response): Promise<unknown> {
  const pieces: Uint8Array[] = []
  let sizeBytes = 0
  try {
    for await (const piece of response.body ?? []) {
      sizeBytes += piece.length
      if (sizeBytes > answerBytesMax) return null
      pieces.push(piece)
    }
    return parseJson(Buffer.concat(pieces), jsonLimits)
  } catch {
    return null
  }
}

const CODES: { readonly [status: number]: readonly [FaultCode, string] } = {
  400: ['invalid_request', 'correct the option that the message names'],
  401: ['unauthenticated', 'name a file with a key by --key-file, or set STRONGROOM_API_KEY'],
  403: ['forbidden', 'use a key of an active organization that may write'],
  404: ['not_found', 'check that --api is a build service'],
  409: ['conflict', 'draw another nonce: leave out --nonce'],
  413: ['body_too_large', 'name what is no source in .gitignore'],
  429: ['rate_limited', 'try again later'],
}

function toFault(status: number, retryAfter: string | null, body: unknown, host: string): AdvisedFault {
  const said: unknown = Reflect.get(Object(Reflect.get(Object(body), 'error')), 'message')
  const words = typeof said === 'string' ? `: ${oneLine(said.slice(0, 500))}` : ''
  const [code, remedy] = CODES[status] ?? ['internal', 'try again; report the message if it fails again']
  const wait =
    status === 429 && retryAfter !== null && /^[0-9]{1,7}$/.test(retryAfter) ? `try again in ${retryAfter} s` : remedy
  return new AdvisedFault(code, `${host}: ${status}${words}`, { remedy: wait })
}
