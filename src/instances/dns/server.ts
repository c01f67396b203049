// The DNS server for `{domain}`: starts and restarts its two threads, for UDP and TCP. Effects: threads that listen;
// timers.

import { present } from '../../base/assert.ts'
import { type Clock, pause } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import type { ChallengeText, ShowTexts } from '../../http/acme/challenges.ts'
import type { NameTableMemory } from './name-table.ts'
import type { RateSettings } from './rate.plan.ts'
import { ANSWERS, type Standing, standingRates } from './responder.ts'
import type { ThreadReport, ThreadStart, ThreadTexts } from './thread.ts'

export type DnsDeps = {
  readonly address: string
  /** 0 selects any free port. */
  readonly port: number
  /** UDP: addresses of this host on which another program listens. */
  readonly except?: readonly string[]
  readonly domain: string
  /** Whether names one label below an instance have its addresses: those of published ports. Default: no. */
  readonly publishes?: boolean
  /** Table from which it answers; names.ts maintains it. */
  readonly names: NameTableMemory
  readonly clock: Pick<Clock, 'sleep'>
  readonly random: RandomBytes
  readonly log: Logger
  /** For benchmarks, which measure without limits. */
  readonly rates?: Readonly<Record<Standing, RateSettings>>
}

export type DnsServer = {
  readonly port: number
  /** Sets the TXT records. Rejects if a thread does not confirm them in time, for example because it is starting. */
  readonly showTexts: ShowTexts
  /** Returns the number of messages by outcome, since the start. */
  readonly answers: () => DnsAnswers
  readonly close: () => Promise<void>
}

export type DnsAnswers = readonly { readonly outcome: (typeof ANSWERS)[number]; readonly count: number }[]

function countsIn(answers: SharedArrayBuffer): DnsAnswers {
  const counts = new Uint32Array(answers)
  return ANSWERS.map((outcome, slot) => ({ outcome, count: Atomics.load(counts, slot) }))
}

const startTimeoutMs = 10_000
const textsTimeoutMs = 5_000
const restartPauseMs = 1_000
const watchIntervalMs = 60_000
const startAttemptsMax = 8
const cookieSecretBytes = 32

/** Starts the server. Fault host.unsupported if address or port cannot be used. Tests pass another `launch`. */
export async function startDns(deps: DnsDeps, launch: typeof startThread = startThread): Promise<DnsServer> {
  const limited = new SharedArrayBuffer(4)
  const answers = new SharedArrayBuffer(4 * ANSWERS.length)
  const common = {
    address: deps.address,
    except: deps.except ?? [],
    domain: deps.domain,
    publishes: deps.publishes ?? false,
    rates: deps.rates ?? standingRates,
    seed: new DataView(deps.random(4).buffer).getInt32(0),
    cookieSecret: deps.random(cookieSecretBytes),
    names: deps.names,
    texts: [],
    limited,
    answers,
  }
  // With port 0 the kernel chooses a free UDP port, which may be in use for TCP: try another.
  for (let attempt = 1; ; attempt += 1) {
    const udp = await keepUp({ ...common, transport: 'udp', port: deps.port }, deps, launch)
    try {
      const tcp = await keepUp({ ...common, transport: 'tcp', port: udp.port }, deps, launch)
      const stopping = new AbortController()
      const watched = watchLimited({ ...deps, limited }, stopping.signal)
      const close = async () => {
        stopping.abort()
        await Promise.all([udp.close(), tcp.close(), watched])
      }
      const showTexts: ShowTexts = async texts => {
        await Promise.all([udp.showTexts(texts), tcp.showTexts(texts)])
      }
      return { port: udp.port, showTexts, answers: () => countsIn(answers), close }
    } catch (error) {
      await udp.close()
      if (deps.port !== 0 || attempt >= startAttemptsMax) throw error
    }
  }
}

/** Replaces a thread that ends unexpectedly by another one on the same port. */
async function keepUp(
  start: ThreadStart,
  deps: DnsDeps,
  launch: typeof startThread,
): Promise<Omit<DnsServer, 'answers'>> {
  const stopping = new AbortController()
  let thread = await launch(start)
  const { port } = thread
  const { transport } = start
  let texts: readonly ChallengeText[] = start.texts
  const ended = follow()
  return {
    port,
    showTexts: next => {
      // The next thread starts with them too.
      texts = next
      return thread.showTexts(next)
    },
    close: async () => {
      stopping.abort()
      thread.worker.terminate()
      await Promise.all([thread.closed, ended])
    },
  }

  async function follow(): Promise<void> {
    for (;;) {
      const reason = await thread.closed
      if (stopping.signal.aborted) return
      deps.log.error('a DNS thread ended; it is started again', { transport, reason })
      while (!stopping.signal.aborted) {
        await pause(deps.clock, restartPauseMs, stopping.signal)
        if (stopping.signal.aborted) return
        try {
          thread = await launch({ ...start, texts, port })
          break
        } catch (error) {
          deps.log.error('a DNS thread could not be started; it will be tried again', { transport, error })
        }
      }
      if (stopping.signal.aborted) thread.worker.terminate()
    }
  }
}

type Thread = {
  readonly worker: Pick<Worker, 'terminate'>
  readonly port: number
  readonly showTexts: ShowTexts
  /** Resolves to the reason when the thread ends. */
  readonly closed: Promise<string>
}

async function startThread(start: ThreadStart): Promise<Thread> {
  const worker = new Worker(threadUrl(), { name: 'dns', smol: true })
  let reason = 'it gave no reason'
  const closed = new Promise<string>(resolve => worker.addEventListener('close', () => resolve(reason)))
  const answered = Promise.withResolvers<Exclude<ThreadReport, { kind: 'shown' }>>()
  const refuse = (why: string) => answered.resolve({ kind: 'refused', reason: why })
  const shown = new Map<number, () => void>()
  worker.addEventListener('message', ({ data }: MessageEvent<ThreadReport>) => {
    if (data.kind === 'shown') shown.get(data.turn)?.()
    else answered.resolve(data)
  })
  let turns = 0
  const showTexts: ShowTexts = async texts => {
    turns += 1
    const turn = turns
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const timer = setTimeout(() => reject(new Error('the DNS server does not take the record')), textsTimeoutMs)
    shown.set(turn, resolve)
    worker.postMessage({ turn, texts } satisfies ThreadTexts)
    await promise.finally(() => {
      clearTimeout(timer)
      shown.delete(turn)
    })
  }
  worker.addEventListener('error', event => {
    reason = event.message
    refuse(reason)
    // Otherwise the thread would continue with its remaining messages.
    worker.terminate()
  })
  const timer = setTimeout(() => refuse(`no answer within ${startTimeoutMs} ms`), startTimeoutMs)
  worker.postMessage(start)
  const report = await answered.promise
  clearTimeout(timer)
  if (report.kind === 'listening') return { worker, port: report.port, showTexts, closed }
  worker.terminate()
  throw new Fault('host.unsupported', report.reason)
}

/**
 * Returns the thread's address. The executable stores its second entry point under its path in src, transpiled
 * (scripts/build/recipes.ts).
 */
function threadUrl(): URL {
  const isCompiled = import.meta.url.includes('/$bunfs/')
  return new URL(isCompiled ? './instances/dns/thread.js' : './thread.ts', import.meta.url)
}

/** Logs at most one line per minute, because anyone may send packets. */
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
