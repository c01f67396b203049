// What clients pay for TLS and for signed receipts: requests and chunks of the gateway with either and with both, beside it without, and beside nginx with
// TLS. Every request asks for its receipt. Effects: starts gateways and nginx.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { receiptHeader } from '../../src/attest/receipt/response.ts'
import { selfSigned } from '../../test/rigs/raw-upstream.ts'
import type { Figure, Figures } from './bench-report.ts'
import { chunkCost, median, type RequestCost, requestCost, round } from './gateway-cost.ts'
import { type Load, type Running, startNginx, startOurs, startStreamingNginx } from './gateway-processes.ts'
import type { PairFiles } from './gateway-wire.ts'

const rounds = 3
const rate = { connections: 64, ms: 2_000 }
const pacedStreams = 100

export type SecuredRig = {
  readonly folder: string
  readonly load: Load
  readonly stub: Running
  readonly say: (line: string) => void
}

type Measured = {
  readonly name: string
  readonly forRequests: Running
  readonly forChunks: Running
  readonly requests: RequestCost[]
  readonly chunksUs: number[]
}

export async function measureSecured({ folder, load, stub, say }: SecuredRig): Promise<Figures> {
  const pair = await writePair(folder)
  await using plain = await startOurs(folder, stub, { processes: 1 })
  await using tls = await startOurs(folder, stub, { processes: 1, pair })
  await using nginx = await startNginx(folder, stub, pair)
  await using streaming = await startStreamingNginx(folder, stub, pair)
  const measured = (name: string, forRequests: Running, forChunks = forRequests): Measured => {
    return { name, forRequests, forChunks, requests: [], chunksUs: [] }
  }
  const all = [
    measured('plain', plain),
    measured('receipts', withReceipts(plain)),
    measured('tls', tls),
    measured('tlsReceipts', withReceipts(tls)),
    measured('nginxTls', nginx, streaming),
  ]
  for (const { forRequests } of all) await requestCost(load, forRequests, rate)
  for (let turn = 0; turn < rounds; turn += 1) {
    for (const { forRequests, forChunks, requests, chunksUs } of all) {
      requests.push(await requestCost(load, forRequests, rate))
      chunksUs.push((await chunkCost(load, stub, forChunks, pacedStreams)).cpuUs)
    }
    const latest = ({ name, requests, chunksUs }: Measured) =>
      `${name} ${round(requests.at(-1)?.cpuUs ?? 0)} and ${round(chunksUs.at(-1) ?? 0)} µs`
    say(`CPU of a request and of a chunk: ${all.map(latest).join(', ')}`)
  }
  return figuresOf(Object.fromEntries(all.map(one => [one.name, one])))
}

/** Each beside `plain`, and with TLS beside nginx with TLS. */
function figuresOf(all: Readonly<Record<string, Measured>>): Figures {
  const perSecond = (name: string) => median(all[name]?.requests.map(one => one.perSecond) ?? [])
  const requestUs = (name: string) => median(all[name]?.requests.map(one => one.cpuUs) ?? [])
  const chunkUs = (name: string) => median(all[name]?.chunksUs ?? [])
  const recorded = (value: number, unit: string, baseline?: string): Figure => {
    return { value: round(value), unit, aim: null, ...(baseline === undefined ? {} : { baseline }) }
  }
  const rows = Object.keys(all).flatMap((name): [string, Figure][] => {
    const isBaseline = name === 'plain' || name === 'nginxTls'
    const beside = (figure: string) => (isBaseline ? undefined : `plain${figure}`)
    return [
      [`${name}RpsC64`, recorded(Math.round(perSecond(name)), '/s', beside('RpsC64'))],
      [`${name}RequestCpuUs`, recorded(requestUs(name), 'µs', beside('RequestCpuUs'))],
      [`${name}ChunkCpuUs`, recorded(chunkUs(name), 'µs', beside('ChunkCpuUs'))],
    ]
  })
  return {
    tlsRpsRatioNginxC64: recorded(perSecond('tls') / perSecond('nginxTls'), ''),
    tlsChunkCpuRatioNginx: recorded(chunkUs('tls') / chunkUs('nginxTls'), ''),
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
