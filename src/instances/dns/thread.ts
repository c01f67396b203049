// A thread of the DNS server: sockets of one transport, rate limits, answers. A packet flood delays neither the main
// thread nor the other transport. Effects: listens. server.ts starts it with one message; it replies with its address
// or its failure.

import { constants, setPriority } from 'node:os'
import { parentPort } from 'node:worker_threads'
import { systemClock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { silentLogger } from '../../base/log.ts'
import { compileAsUsual } from '../../base/work/compiler.ts'
import { type DnsSocket, type DnsTransport, listenDns } from '../../host/network/dns-socket.ts'
import type { ChallengeText } from '../../http/acme/challenges.ts'
import { type NameTableMemory, NameTableReader } from './name-table.ts'
import { prefixOf, RateLimiter, type RateSettings } from './rate.plan.ts'
import { answerSlot, createResponder, type Responder, type Standing } from './responder.ts'

export type ThreadStart = {
  readonly transport: DnsTransport
  readonly address: string
  readonly port: number
  readonly except: readonly string[]
  readonly domain: string
  readonly publishes: boolean
  readonly rates: Readonly<Record<Standing, RateSettings>>
  readonly seed: number
  readonly cookieSecret: Uint8Array
  readonly names: NameTableMemory
  readonly texts: readonly ChallengeText[]
  /** One Int32: number of messages that were not answered in full. */
  readonly limited: SharedArrayBuffer
  /** One Int32 for each of ANSWERS: number of messages with this outcome. */
  readonly answers: SharedArrayBuffer
}

/** TXT records from now on. The thread reports `turn` when it uses them. */
export type ThreadTexts = { readonly turn: number; readonly texts: readonly ChallengeText[] }

export type ThreadReport =
  | { readonly kind: 'shown'; readonly turn: number }
  | { readonly kind: 'listening'; readonly port: number }
  | { readonly kind: 'refused'; readonly reason: string }

let texts: ReadonlyMap<string, readonly string[]> = new Map()

function take(rows: readonly ChallengeText[]): void {
  texts = new Map([...Map.groupBy(rows, row => row.name)].map(([name, own]) => [name, own.map(row => row.text)]))
}

/** Starts listening. Exported for the benchmark, which compares it on the main thread. Fault host.unsupported. */
export function listenFrom(start: ThreadStart): Promise<DnsSocket> {
  take(start.texts)
  const { transport, address, port, except, domain, publishes, rates, seed, cookieSecret } = start
  const limited = new Int32Array(start.limited)
  const answers = new Int32Array(start.answers)
  const respond = createResponder({
    domain,
    publishes,
    names: new NameTableReader(start.names),
    limiters: {
      forgeable: new RateLimiter(rates.forgeable, seed),
      cookie: new RateLimiter(rates.cookie, seed),
      tcp: new RateLimiter(rates.tcp, seed),
    },
    cookieSecret,
    texts: () => texts,
    clock: systemClock,
    onLimited: () => void Atomics.add(limited, 0, 1),
  })
  const handler: Responder = (message, from) => {
    const response = respond(message, from)
    Atomics.add(answers, answerSlot(response), 1)
    return response
  }
  return listenDns({ transport, address, port, except, handler, log: silentLogger, limits: { networkOf: prefixOf } })
}

async function serve(start: ThreadStart): Promise<ThreadReport> {
  compileAsUsual()
  try {
    // On Linux this only affects the calling thread: if processors are scarce, the other one takes precedence.
    setPriority(0, constants.priority.PRIORITY_BELOW_NORMAL)
  } catch {
    // Setting the priority may be forbidden; the thread then competes like others.
  }
  try {
    return { kind: 'listening', port: (await listenFrom(start)).port }
  } catch (error) {
    return { kind: 'refused', reason: messageOf(error) }
  }
}

// parentPort is null on the main thread.
parentPort?.once('message', async (start: ThreadStart) => {
  parentPort?.on('message', (next: ThreadTexts) => {
    take(next.texts)
    parentPort?.postMessage({ kind: 'shown', turn: next.turn } satisfies ThreadReport)
  })
  parentPort?.postMessage(await serve(start))
})
