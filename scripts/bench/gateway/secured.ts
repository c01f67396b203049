// Cost of TLS and of signed receipts: requests and chunks of the gateway with either, with both and with neither, and
// of nginx with TLS. Every request asks for its receipt. Effects: starts gateways and nginx.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { receiptHeader } from '../../../src/attest/receipt/response.ts'
import { selfSigned } from '../../rigs/gateway/raw-upstream.ts'
import type { Figure, Figures } from '../bench-report.ts'
import { type CostRig, type Costs, costsInTurns, round, type Served } from './cost.ts'
import { type Running, startNginx, startOurs, startStreamingNginx } from './processes.ts'
import type { PairFiles } from './wire.ts'

export async function measureSecured(rig: CostRig): Promise<Figures> {
  const { folder, stub } = rig
  const pair = await writePair(folder)
  await using plain = await startOurs(folder, stub, { processes: 1, pair: null })
  await using tls = await startOurs(folder, stub, { processes: 1, pair })
  await using nginx = await startNginx(folder, stub, pair)
  await using streaming = await startStreamingNginx(folder, stub, pair)
  const served = (name: string, forRequests: Running, forChunks = forRequests): Served => {
    return { name, forRequests, forChunks }
  }
  const costs = await costsInTurns(rig, [
    served('plain', plain),
    served('receipts', withReceipts(plain)),
    served('tls', tls),
    served('tlsReceipts', withReceipts(tls)),
    served('nginxTls', nginx, streaming),
  ])
  return figuresOf(costs)
}

/** Each beside `plain`, and with TLS beside nginx with TLS. A receipt costs others the serving thread's time. */
function figuresOf(costs: ReadonlyMap<string, Costs>): Figures {
  const recorded = (value: number, unit: string, baseline: string | null = null): Figure => {
    return { value: round(value), unit, aim: null, ...(baseline === null ? {} : { baseline }) }
  }
  const rows = [...costs].flatMap(([name, { perSecond, cpuUs, servingCpuUs, chunkUs }]): [string, Figure][] => {
    const beside = (figure: string) => (name === 'plain' || name === 'nginxTls' ? null : `plain${figure}`)
    return [
      [`${name}RpsC64`, recorded(Math.round(perSecond), '/s', beside('RpsC64'))],
      [`${name}RequestCpuUs`, recorded(cpuUs, 'µs', beside('RequestCpuUs'))],
      [`${name}ServingCpuUs`, recorded(servingCpuUs, 'µs', beside('ServingCpuUs'))],
      [`${name}ChunkCpuUs`, recorded(chunkUs, 'µs', beside('ChunkCpuUs'))],
    ]
  })
  const of = (name: string) => costs.get(name)?.servingCpuUs ?? Number.NaN
  const ratio = (key: 'perSecond' | 'chunkUs') => {
    return recorded((costs.get('tls')?.[key] ?? Number.NaN) / (costs.get('nginxTls')?.[key] ?? Number.NaN), '')
  }
  return {
    tlsRpsRatioNginxC64: ratio('perSecond'),
    chunkCpuRatioNginxTls: ratio('chunkUs'),
    receiptCpuRatio: { value: round(of('receipts') / of('plain')), unit: '', aim: { atMost: 2.5 } },
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
