// Output of processes in small pieces, other work of this thread in between. Effects: reads a stream, yields.

const pieceBytes = 4 * 1024
const turnMs = 2

/**
 * A stream whose writer keeps up never waits: read by itself, `yes` blocked the timers and sockets of this thread for
 * minutes. Stopping early cancels the stream.
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
