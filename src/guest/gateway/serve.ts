// Role `gateway`: serves the endpoint until it is ended. Effects: a port on loopback, the network. Runs as a user of its own, so that what the owner's
// programs do cannot reach into it; its words go to a log of root's.

import { systemClock } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import { createLogger, type Logger } from '../../base/log.ts'
import { endpointPort } from './address.ts'
import { Endpoint, type EndpointDeps, endpointLimits } from './endpoint.ts'
import { type ExpectationPaths, expectationStamp, readExpectation } from './expectation-files.ts'
import { createSender } from './sender.ts'

/** Of the guest. */
export function serveGateway(paths: ExpectationPaths): void {
  // Standard error is a file of root's, which the agent keeps small.
  const sink = (line: string) => void process.stderr.write(`${line}\n`)
  const log = createLogger({ level: 'info', sink, nowMs: systemClock.nowMs, name: 'gateway' })
  serveEndpoint({ paths, port: endpointPort, log })
  log.info('gateway endpoint ready')
}

export type ServedEndpoint = AsyncDisposable & { readonly port: number }

/** Of a connection that says nothing; once its request is there, that may take as long as the gateway does. */
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

/** What is in force, read anew when a document of it has changed: then the gateway proves itself anew, too. */
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
