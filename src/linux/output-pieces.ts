// Output of processes in small pieces, with other work of this thread in between. Effects: reads a stream, gives the thread away.

const pieceBytes = 4 * 1024
const turnMs = 2

/**
 * For who writes as fast as it is read, a stream never waits: read by itself, `yes` kept the timers and sockets of this thread waiting for minutes.
 * Whoever stops early leaves the stream cancelled.
 */
export async function* piecesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void> {
  let sinceMs = performance.now()
  for await (const chunk of stream) {
    for (let at = 0; at < chunk.length; at += pieceBytes) {
      yield chunk.subarray(at, at + pieceBytes)
      if (performance.now() - sinceMs < turnMs) continue
      await new Promise<void>(resolve => setImmediate(resolve))
      sinceMs = performance.now()
    }
  }
}
