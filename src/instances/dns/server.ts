// The DNS server for `{domain}`: its thread, started and kept up. Effects: a thread that listens; timers.

import { present } from '../../base/assert.ts'
import { type Clock, pause } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import type { NameTableMemory } from './name-table.ts'
import type { RateSettings } from './rate.plan.ts'
import { type Standing, standingRates } from './responder.ts'
import type { ThreadReport, ThreadStart } from './thread.ts'

export type DnsDeps = {
  readonly address: string
  /** 0: any free port. */
  readonly port: number
  readonly domain: string
  /** What it answers from; names.ts keeps it. */
  readonly names: NameTableMemory
  readonly clock: Pick<Clock, 'sleep'>
  readonly random: RandomBytes
  readonly log: Logger
  /** For benchmarks that measure what the limits would hide. */
  readonly rates?: Readonly<Record<Standing, RateSettings>>
}

export type DnsServer = { readonly port: number; readonly close: () => Promise<void> }

const startTimeoutMs = 10_000
const restartPauseMs = 1_000
const watchIntervalMs = 60_000
const cookieSecretBytes = 32

/** Fault host.unsupported when the address or port cannot be had. Tests of its end `launch` something else than a thread. */
export async function startDns(deps: DnsDeps, launch: typeof startThread = startThread): Promise<DnsServer> {
  const stopping = new AbortController()
  const limited = new SharedArrayBuffer(4)
  const seed = new DataView(deps.random(4).buffer).getInt32(0)
  const cookieSecret = deps.random(cookieSecretBytes)
  const start = ({ port }: { port: number }) =>
    launch({
      address: deps.address,
      port,
      domain: deps.domain,
      rates: deps.rates ?? standingRates,
      seed,
      cookieSecret,
      names: deps.names,
      limited,
    })
  let thread = await start(deps)
  const { port } = thread
  const ended = keepUp()
  const watched = watchLimited({ ...deps, limited }, stopping.signal)
  return {
    port,
    close: async () => {
      stopping.abort()
      thread.worker.terminate()
      await Promise.all([thread.closed, ended, watched])
    },
  }

  /** A thread that ends by itself is followed by another one on the same port. */
  async function keepUp(): Promise<void> {
    for (;;) {
      const reason = await thread.closed
      if (stopping.signal.aborted) return
      deps.log.error('the DNS thread ended; it is started again', { reason })
      while (!stopping.signal.aborted) {
        await pause(deps.clock, restartPauseMs, stopping.signal)
        if (stopping.signal.aborted) return
        try {
          thread = await start({ port })
          break
        } catch (error) {
          deps.log.error('the DNS thread could not be started; it will be tried again', { error })
        }
      }
      if (stopping.signal.aborted) thread.worker.terminate()
    }
  }
}

type Thread = {
  readonly worker: Pick<Worker, 'terminate'>
  readonly port: number
  /** With the reason, when it ends. */
  readonly closed: Promise<string>
}

async function startThread(start: ThreadStart): Promise<Thread> {
  const worker = new Worker(threadUrl(), { name: 'dns', smol: true })
  let reason = 'it gave no reason'
  const closed = new Promise<string>(resolve => worker.addEventListener('close', () => resolve(reason)))
  const answered = Promise.withResolvers<ThreadReport>()
  const refuse = (why: string) => answered.resolve({ kind: 'refused', reason: why })
  worker.addEventListener('message', (event: MessageEvent<ThreadReport>) => answered.resolve(event.data))
  worker.addEventListener('error', event => {
    reason = event.message
    refuse(reason)
    // It would go on with whatever is left of it.
    worker.terminate()
  })
  const timer = setTimeout(() => refuse(`no answer within ${startTimeoutMs} ms`), startTimeoutMs)
  worker.postMessage(start)
  const report = await answered.promise
  clearTimeout(timer)
  if (report.kind === 'listening') return { worker, port: report.port, closed }
  worker.terminate()
  throw new Fault('host.unsupported', report.reason)
}

/** The executable holds its second entry point by its path from src, transpiled (scripts/build/recipes.ts). */
function threadUrl(): URL {
  const isCompiled = import.meta.url.includes('/$bunfs/')
  return new URL(isCompiled ? './instances/dns/thread.js' : './thread.ts', import.meta.url)
}

/** One line a minute at most: anyone may send packets. */
async function watchLimited(
  deps: Pick<DnsDeps, 'clock' | 'log'> & { limited: SharedArrayBuffer },
  signal: AbortSignal,
) {
  const limited = new Int32Array(deps.limited)
  let known = 0
  while (!signal.aborted) {
    await pause(deps.clock, watchIntervalMs, signal)
    const now = present(limited[0], 'the counter is there')
    if (now !== known)
      deps.log.warn('DNS queries came faster than they are answered', { unanswered: (now - known) >>> 0 })
    known = now
  }
}
