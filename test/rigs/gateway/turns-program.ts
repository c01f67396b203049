// A gateway as a process of its own that measures its turns: `bun turns-program.ts UPSTREAM`. Prints its address, that
// of its figures, and its keys. Effects: ports.

import { FFIType, ptr } from 'bun:ffi'
import { ehbpKeys } from '../../../scripts/rigs/gateway/ehbp.ts'
import { LIMITS, MODEL, startHostGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { createLogger } from '../../../src/base/log.ts'
import { gatewayHandler } from '../../../src/inference/gateway/handler.ts'
import { listenWith } from '../../../src/inference/relay/listen.ts'
import { libcOf } from '../../../src/linux/ffi.ts'

const libc = libcOf({ clock_gettime: { args: [FFIType.i32, FFIType.ptr], returns: FFIType.i32 } })
const threadCpuClock = 3

/** Model of embeddings. */
export const vectorModel = 'vectors'
const time = new BigInt64Array(2)

/** Milliseconds of the processor: getrusage(2) counts in steps of 4 ms. */
function threadCpuMs(): number {
  libc().clock_gettime(threadCpuClock, ptr(time))
  const [seconds = 0n, nanoseconds = 0n] = time
  return Number(seconds) * 1_000 + Number(nanoseconds) / 1e6
}

if (import.meta.main) {
  const [upstream = ''] = process.argv.slice(2)
  const upstreams = [
    target(upstream, {
      models: [MODEL, vectorModel],
      embeddingModels: [vectorModel],
      content: ['image', 'file'],
      engine: 'vllm',
    }),
  ]
  const limits = { ...LIMITS, bodyBytesMax: 33_554_432, usageLabels: true as const }
  const caller = { tokensPerMinute: 1_000_000_000, requestsPerMinute: 1_000_000 }
  const { gateway } = startHostGateway(upstreams, { limits, caller })
  const handler = gatewayHandler({ fetch: gateway.fetch, isDraining: () => false }, { connectionIdleSeconds: 120 })
  const { port } = listenWith(handler, {
    listen: { hostname: '127.0.0.1', port: 0 },
    tls: null,
    guestName: '',
    isShared: false,
    settings: { connectionIdleSeconds: 120 },
    log: createLogger({ level: 'error', sink: line => process.stderr.write(line), nowMs: Date.now }),
  })
  let longestMs = 0
  let last = threadCpuMs()
  const turn = () => {
    const now = threadCpuMs()
    longestMs = Math.max(longestMs, now - last)
    last = now
    setImmediate(turn)
  }
  turn()
  const figures = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: () => {
      const longest = longestMs
      longestMs = 0
      return Response.json(longest)
    },
  })
  const { x25519, mlkem768 } = ehbpKeys.publicKeys
  const keys = { x25519: toHex(x25519), mlkem768: toHex(mlkem768) }
  process.stdout.write(
    `${JSON.stringify({ url: `http://127.0.0.1:${port}`, figures: `http://127.0.0.1:${figures.port}`, keys })}\n`,
  )
}
