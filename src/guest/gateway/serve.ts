// Role `gateway`: serves the endpoint until it is stopped. Effects: a port on loopback, the network. It runs as its
// own user, out of reach of the owner's programs, and logs to a file owned by root.

import { systemClock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { createLogger, type Logger } from '../../base/log.ts'
import { Endpoint, type GatewayAccess } from '../../verifier/fetch/endpoint/endpoint.ts'
import { type Listening, listenOnLoopback } from '../../verifier/fetch/endpoint/listen.ts'
import type { Advice } from '../../verifier/fetch/endpoint/refusal.plan.ts'
import { readEgress, spentReason } from '../egress/count.ts'
import type { GuestPaths } from '../paths.ts'
import { endpointPort } from './address.ts'
import { type ExpectationPaths, expectationStamp, readExpectation } from './expectation-files.ts'
import { createSender } from './sender.ts'

type EndpointPaths = ExpectationPaths & Pick<GuestPaths, 'egress'>

export function serveGateway(paths: EndpointPaths): void {
  // Standard error is a file of root's, which the agent keeps small.
  const sink = (line: string) => void process.stderr.write(`${line}\n`)
  const log = createLogger({ level: 'info', sink, nowMs: systemClock.nowMs, name: 'gateway' })
  serveEndpoint({ paths, port: endpointPort, log })
  log.info('gateway endpoint ready')
}

type EndpointSettings = { readonly paths: EndpointPaths; readonly port: number; readonly log: Logger }

/** Serves the endpoint. Throws Fault host.unsupported if the port is taken. */
export function serveEndpoint({ paths, port, log }: EndpointSettings): Listening {
  const noRoute = () => spentReason(readEgress(paths))
  const endpoint = new Endpoint({ access: createAccess(paths), advice: { ...instanceAdvice, noRoute }, log })
  return listenOnLoopback(endpoint, { hostname: '127.0.0.1', port })
}

export const instanceAdvice: Advice = {
  verify: 'run strongroom-verify, which shows the result of every check',
  change:
    'if its operator changed it on purpose, get the SHA-256 of workload.json from the operator over a channel that you trust, then accept it: strongroom-gateway accept SHA256 NAME=URL, or strongroom-gateway set for a new measurement or setting',
  where: 'inside this instance',
}

/** The expectation in force, read again when a document changed; the gateway then proves itself again. */
export function createAccess(paths: ExpectationPaths): () => GatewayAccess {
  let kept: { readonly stamp: string; readonly access: GatewayAccess | null } | null = null
  return () => {
    const stamp = expectationStamp(paths)
    if (kept?.stamp !== stamp) {
      kept?.access?.sender.close()
      kept = null
      const expectation = readExpectation(paths)
      const access = expectation && { baseUrl: expectation.baseUrl, sender: createSender(expectation) }
      kept = { stamp, access }
    }
    if (kept.access === null) throw new Fault('invalid_request', 'this instance has no inference gateway')
    return kept.access
  }
}
