// A thread of ours that answers one message at a time. Effects: a thread.

import { type Clock, pause } from '../clock.ts'

/** The thread has ended, is late, or cannot do it. */
export type ThreadRefusal = { readonly kind: 'refused'; readonly reason: string }

export type RequestThread<To, From> = {
  /** The reply; `refused` once it has ended. One at a time. Buffers of `given` move to the thread without a copy. */
  readonly ask: (message: To, given?: readonly ArrayBuffer[]) => Promise<From | ThreadRefusal>
  /** `refused` after that time as well; then the thread may still be at work. */
  readonly askInTime: (message: To, timeoutMs: number, given?: readonly ArrayBuffer[]) => Promise<From | ThreadRefusal>
  /** Messages of the thread are ignored from now on. */
  readonly end: (reason: string) => void
  readonly ended: Promise<string>
}

export type ThreadStart = {
  readonly name: string
  /** The thread's file below `src`, without the extension. */
  readonly file: string
  readonly clock: Pick<Clock, 'sleep'>
}

/** Never throws: a thread that cannot start has ended. */
export function beginThread<To, From>({ name, file, clock }: ThreadStart): RequestThread<To, From> {
  const worker = new Worker(threadUrl(file), { name, smol: true })
  const { promise: ended, resolve: noteEnd } = Promise.withResolvers<string>()
  let refusal: ThreadRefusal | null = null
  let answer: ((reply: From | ThreadRefusal) => void) | null = null
  const end = (reason: string) => {
    if (refusal !== null) return
    refusal = { kind: 'refused', reason }
    answer?.(refusal)
    noteEnd(reason)
    worker.terminate()
  }
  worker.addEventListener('message', (event: MessageEvent<From>) => answer?.(event.data))
  worker.addEventListener('error', event => end(event.message))
  worker.addEventListener('close', () => end('it gave no reason'))
  const ask = (message: To, given: readonly ArrayBuffer[] = []) =>
    new Promise<From | ThreadRefusal>(resolve => {
      if (refusal !== null) return resolve(refusal)
      answer = resolve
      worker.postMessage(message, [...given])
    })
  const askInTime: RequestThread<To, From>['askInTime'] = (message, timeoutMs, given) =>
    within(clock, timeoutMs, ask(message, given))
  return { ask, askInTime, end, ended }
}

async function within<From>(
  clock: Pick<Clock, 'sleep'>,
  ms: number,
  reply: Promise<From | ThreadRefusal>,
): Promise<From | ThreadRefusal> {
  const done = new AbortController()
  const late = pause(clock, ms, done.signal).then(
    (): ThreadRefusal => ({ kind: 'refused', reason: `no reply within ${ms} ms` }),
  )
  const first = await Promise.race([reply, late])
  done.abort()
  return first
}

/** Why there is no reply of the requested kind. */
export function reasonOf(reply: { readonly kind: string } | ThreadRefusal): string {
  return 'reason' in reply ? reply.reason : `it said ${reply.kind}`
}

/** Executables hold the entry points of their threads by their path from src, transpiled (scripts/build/recipes.ts). */
function threadUrl(file: string): URL {
  const isCompiled = import.meta.url.includes('/$bunfs/')
  return isCompiled ? new URL(`file:///$bunfs/root/${file}.js`) : new URL(`../../${file}.ts`, import.meta.url)
}
