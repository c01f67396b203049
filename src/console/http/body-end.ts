// Bodies that end with a session or at a limit, and report their end. Effects: through functions.

/** Returns the response with a body that `ended` aborts. Calls `release` once, however the body ends. */
export function endedBy(response: Response, ended: AbortSignal, release: () => void): Response {
  const { body, status, headers } = response
  if (body === null) {
    release()
    return response
  }
  const reader = body.getReader()
  const cut = () => void reader.cancel().catch(() => {})
  const finish = () => {
    ended.removeEventListener('abort', cut)
    release()
  }
  if (ended.aborted) cut()
  else ended.addEventListener('abort', cut, { once: true })
  const stream = new ReadableStream<Uint8Array>({
    pull: async controller => {
      try {
        const next = await reader.read()
        if (!next.done) return controller.enqueue(next.value)
        finish()
        controller.close()
      } catch (error) {
        finish()
        controller.error(error)
      }
    },
    cancel: async () => {
      finish()
      await reader.cancel().catch(() => {})
    },
  })
  return new Response(stream, { status, headers })
}

type BodyBounds = {
  readonly bytesMax: number
  /** The body fails with this error if it exceeds `bytesMax`. */
  readonly fault: Error
  /** Aborting it makes the body fail with its reason. */
  readonly signal: AbortSignal
  /** Called once, however the body ends. */
  readonly end: () => void
}

/** Returns the body within its limits. It fails beyond them, so that a truncated body never looks complete. */
export function boundedBody(
  body: ReadableStream<Uint8Array>,
  { bytesMax, fault, signal, end }: BodyBounds,
): ReadableStream<Uint8Array> {
  const reader = body.getReader()
  let readBytes = 0
  let abort = () => {}
  let isOver = false
  const finish = () => {
    signal.removeEventListener('abort', abort)
    if (!isOver) end()
    isOver = true
  }
  return new ReadableStream<Uint8Array>({
    start: controller => {
      abort = () => {
        finish()
        controller.error(signal.reason)
        void reader.cancel().catch(() => {})
      }
      if (signal.aborted) abort()
      else signal.addEventListener('abort', abort, { once: true })
    },
    pull: async controller => {
      try {
        const next = await reader.read()
        if (next.done) {
          finish()
          controller.close()
          return
        }
        readBytes += next.value.length
        if (readBytes > bytesMax) throw fault
        controller.enqueue(next.value)
      } catch (error) {
        finish()
        controller.error(error)
        void reader.cancel().catch(() => {})
      }
    },
    cancel: async () => {
      finish()
      await reader.cancel().catch(() => {})
    },
  })
}
