// Cost of TLS and of signed receipts: requests and chunks of the gateway with either, with both and with neither, and
// of nginx with TLS. Every request asks for its receipt. Effects: starts gateways and nginx.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { receiptHeader } from '../../../src/attest/receipt/response.ts'
import { selfSigned } from '../../rigs/gateway/raw-upstream.ts'
import type { Figure, Figures } from '../bench-report.ts'
import { type CostRig, costsInTurns, round, type Served, type TurnCost, type TurnCosts } from './cost.ts'
import { type Running, startNginx, startOurs, startRelay, startStreamingNginx } from './processes.ts'
import type { PairFiles } from './wire.ts'

export async function measureSecured(rig: CostRig): Promise<Figures> {
  const { folder, stub } = rig
  const pair = await writePair(folder)
  await using plain = await startOurs(folder, stub, { processes: 1, pair: null })
  await using tls = await startOurs(folder, stub, { processes: 1, pair })
  await using nginx = await startNginx(folder, stub, pair)
  await using streaming = await startStreamingNginx(folder, stub, pair)
  await using relay = await startRelay(stub, pair)
  const served = (name: string, forRequests: Running, forChunks = forRequests): Served => {
    return { name, forRequests, forChunks }
  }
  const costs = await costsInTurns(rig, [
    served('plain', plain),
    served('receipts', withReceipts(plain)),
    served('tls', tls),
    served('tlsReceipts', withReceipts(tls)),
    served('nginxTls', nginx, streaming),
    { name: 'relayTls', forRequests: relay, forChunks: null },
  ])
  return figuresOf(costs)
}

/**
 * Compares each with `plain`, and the gateway with TLS with nginx and the bare relay with TLS. A receipt costs other
 * requests the time of the serving thread.
 */
function figuresOf(costs: TurnCosts<TurnCost>): Figures {
  const recorded = (value: number, unit: string, baseline: string | null = null): Figure => {
    return { value: round(value), unit, aim: null, ...(baseline === null ? {} : { baseline }) }
  }
  const rows = costs.names().flatMap((name): [string, Figure][] => {
    const beside = (figure: string) => {
      return name === 'plain' || name === 'nginxTls' || name === 'relayTls' ? null : `plain${figure}`
    }
    const of = (key: keyof TurnCost) => costs.median(name, key)
    const requests: [string, Figure][] = [
      [`${name}RpsC64`, recorded(Math.round(of('perSecond')), '/s', beside('RpsC64'))],
      [`${name}RequestCpuUs`, recorded(of('cpuUs'), 'µs', beside('RequestCpuUs'))],
      [`${name}ServingCpuUs`, recorded(of('servingCpuUs'), 'µs', beside('ServingCpuUs'))],
    ]
    if (name === 'relayTls') return requests
    return [...requests, [`${name}ChunkCpuUs`, recorded(of('chunkUs'), 'µs', beside('ChunkCpuUs'))]]
  })
  const judged = (value: number, atMost: number): Figure => ({ value: round(value), unit: '', aim: { atMost } })
  return {
    tlsRpsRatioNginxC64: recorded(costs.ratio('tls', 'nginxTls', 'perSecond'), ''),
    requestCpuRatioRelayTls: judged(costs.ratio('tls', 'relayTls', 'cpuUs'), 1.45),
    chunkCpuRatioNginxTls: judged(costs.ratio('tls', 'nginxTls', 'chunkUs'), 1.15),
    receiptCpuRatio: judged(costs.ratio('receipts', 'plain', 'servingCpuUs'), 2.5),
    ...Object.fromEntries(rows),
  }
}

function withReceipts({ target, pid }: Running): Running {
  const asks = { ...target, name: `${target.name} with receipts`, headers: { ...target.headers, [receiptHeader]: '1' } }
  // It is ended by whoever started it.
  return { pid, target: asks, [Symbol.asyncDispose]: async () => {} }
}

async function writePair(folder: string): Promise<PairFiles> {
  const { cert, key } = await selfSigned('127.0.0.1')
  const pair = { certFile: join(folder, 'cert.pem'), keyFile: join(folder, 'key.pem') }
  writeFileSync(pair.certFile, cert)
  writeFileSync(pair.keyFile, key, { mode: 0o600 })
  return pair
}
