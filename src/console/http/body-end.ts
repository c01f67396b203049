// Bodies of responses that end with a session, and that say when they have ended. Effects: through functions.

/** `ended`: cuts the body off. `release` is called once, at its end however it comes. */
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
