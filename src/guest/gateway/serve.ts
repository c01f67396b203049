// Role `gateway`: serves the endpoint until it is ended. Effects: a port on loopback, the network. It runs as its own
// user, out of reach of the owner's programs, and logs to a file of root's.

import { systemClock } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import { createLogger, type Logger } from '../../base/log.ts'
import { endpointPort } from './address.ts'
import { Endpoint, type EndpointDeps, endpointLimits } from './endpoint.ts'
import { type ExpectationPaths, expectationStamp, readExpectation } from './expectation-files.ts'
import { createSender } from './sender.ts'

export function serveGateway(paths: ExpectationPaths): void {
  // Standard error is a file of root's, which the agent keeps small.
  const sink = (line: string) => void process.stderr.write(`${line}\n`)
  const log = createLogger({ level: 'info', sink, nowMs: systemClock.nowMs, name: 'gateway' })
  serveEndpoint({ paths, port: endpointPort, log })
  log.info('gateway endpoint ready')
}

export type ServedEndpoint = AsyncDisposable & { readonly port: number }

/** Idle limit of a connection before its request; a response may take as long as the gateway does. */
const idleSeconds = 120

/** Fault host.unsupported when the port is taken. */
export function serveEndpoint({
  paths,
  port,
  log,
}: {
  readonly paths: ExpectationPaths
  readonly port: number
  readonly log: Logger
}): ServedEndpoint {
  const endpoint = new Endpoint({ access: createAccess(paths), log })
  try {
    const server = Bun.serve({
      hostname: '127.0.0.1',
      port,
      reusePort: false,
      development: false,
      idleTimeout: idleSeconds,
      maxRequestBodySize: endpointLimits.bodyBytesMax,
      fetch: (request, bun) => endpoint.handle(request, () => bun.timeout(request, 0)),
    })
    return { port: server.port ?? port, [Symbol.asyncDispose]: () => server.stop(true) }
  } catch (error) {
    throw new Fault('host.unsupported', `listen on 127.0.0.1 port ${port}: ${messageOf(error)}`, { cause: error })
  }
}

/** The expectation in force, read again when a document changed; the gateway then proves itself again. */
export function createAccess(paths: ExpectationPaths): EndpointDeps['access'] {
  let kept: { readonly stamp: string; readonly access: ReturnType<EndpointDeps['access']> } | null = null
  return () => {
    const stamp = expectationStamp(paths)
    if (kept?.stamp === stamp) return kept.access
    kept?.access?.sender.close()
    kept = null
    const expectation = readExpectation(paths)
    const access = expectation === null ? null : { expectation, sender: createSender(expectation) }
    kept = { stamp, access }
    return access
  }
}
