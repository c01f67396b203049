// The body of a response: opens it if it is sealed, and reports a premature end as an error. Pure except for reading.

import type { ResponseOpener } from '../../attest/ehbp/client.ts'
import type { WholeCheck } from '../../attest/ehbp/whole.ts'
import { Malformed } from '../../attest/malformed.ts'
import { concat } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import { AttestedFetchError, ConnectionError, EncryptionError, IncompleteResponseError } from './errors.ts'

type Bytes = Uint8Array<ArrayBuffer>

export type Judging = {
  /** `opener` and `whole` detect whether the body is complete; null if only the connection can. */
  readonly by: { readonly opener: ResponseOpener } | { readonly whole: WholeCheck | null }
  readonly signal: AbortSignal | null
  readonly status: number
}

/** Returns the checked body. Reads at the caller's pace. */
export function judgedBody(body: ReadableStream<Bytes>, judging: Judging): ReadableStream<Bytes> {
  const { by, signal } = judging
  const reader = body.getReader()
  /** Returns the next bytes for the caller; null at the end. */
  const next = async (): Promise<Bytes | null> => {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      if ('whole' in by) {
        by.whole?.push(read.value)
        return read.value
      }
      const bytes = (await by.opener.push(read.value)) as Bytes
      if (bytes.length > 0) return bytes
    }
    if (isWhole(by)) return null
    throw new IncompleteResponseError(
      'the response was cut: its stream ended without [DONE], or its JSON is not whole; what came may lack its last part: ask again',
    )
  }
  return new ReadableStream<Bytes>(
    {
      pull: async controller => {
        try {
          const bytes = await next()
          if (bytes === null) controller.close()
          else controller.enqueue(bytes)
        } catch (error) {
          const reason = signal?.aborted ? signal.reason : failureOf(error, judging)
          controller.error(reason)
          await reader.cancel(reason).catch(() => {})
        }
      },
      cancel: reason => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  )
}

function isWhole(by: Judging['by']): boolean {
  if ('whole' in by) return by.whole === null || by.whole.isWhole()
  try {
    by.opener.finish()
    return true
  } catch (error) {
    if (error instanceof Malformed) return false
    throw error
  }
}

function failureOf(error: unknown, { by, status }: Judging): unknown {
  if (error instanceof AttestedFetchError) return error
  if ('opener' in by && error instanceof Malformed) {
    return new EncryptionError(`a response with status ${status} cannot be opened: ${messageOf(error)}`, {
      status,
      cause: error,
    })
  }
  return new ConnectionError(`the response ended early: ${messageOf(error)}`, { cause: error })
}

/** Reads a small body completely. Throws ConnectionError if it exceeds `bytesMax`. */
export async function bodyAtOnce(body: ReadableStream<Bytes> | null, bytesMax: number): Promise<Bytes> {
  if (body === null) return new Uint8Array(0)
  const reader = body.getReader()
  const chunks: Bytes[] = []
  let sizeBytes = 0
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    sizeBytes += next.value.length
    if (sizeBytes > bytesMax) {
      await reader.cancel().catch(() => {})
      throw new ConnectionError(`the response is larger than ${bytesMax} bytes`)
    }
    chunks.push(next.value)
  }
  return concat(...chunks) as Bytes
}
