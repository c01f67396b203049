// A document that a component shows: fetched when it appears, and again when the appliance reports a change. Effects:
// requests.

import { useSignal } from '@preact/signals'
import { useCallback, useEffect, useRef } from 'preact/hooks'
import { onChange } from './live.ts'
import type { LiveTopic } from './live-message.ts'
import { isAbort, type LoadRequest, problemFrom, type RequestProblem } from './request.ts'

export type Loaded<T> = {
  /** The latest document; null before the first. */
  readonly data: T | null
  /** Why the latest attempt failed; null if it did not. */
  readonly problem: RequestProblem | null
  readonly isLoading: boolean
  readonly reload: () => void
}

export type LoadOptions = {
  readonly topics?: readonly LiveTopic[]
  /** Interval of further fetches, for content without a topic. */
  readonly everyMs?: number
}

type State<T> = Omit<Loaded<T>, 'reload'> & { readonly key: string | null }

/** Documents of recently open pages, so that going back shows them at once. */
const remembered = new Map<string, unknown>()
const rememberedMax = 40

/** Loads a document. `load` fetches the document named by `key`; a null key loads nothing. */
export function useLoaded<T>(
  key: string | null,
  load: (options: LoadRequest) => Promise<T>,
  { topics = [], everyMs }: LoadOptions = {},
): Loaded<T> {
  const state = useSignal<State<T>>(firstState(key))
  if (state.peek().key !== key) state.value = firstState(key)
  const latest = useRef(load)
  latest.current = load
  const restart = useRef(() => {})
  const named = topics.join(' ')

  useEffect(() => {
    if (key === null) return
    const controller = new AbortController()
    let isUnderWay = false
    let again = false
    let isBackground = false
    const run = async () => {
      if (isUnderWay) {
        again = true
        return
      }
      isUnderWay = true
      state.value = { ...state.peek(), isLoading: true }
      try {
        const data = await latest.current({ signal: controller.signal, isBackground })
        if (controller.signal.aborted) return
        remember(key, data)
        state.value = { key, data, problem: null, isLoading: false }
      } catch (error) {
        if (controller.signal.aborted || isAbort(error)) return
        state.value = { ...state.peek(), problem: problemFrom(error), isLoading: false }
      } finally {
        isUnderWay = false
      }
      if (again && !controller.signal.aborted) {
        again = false
        await run()
      }
    }
    const refresh = (byItself: boolean) => {
      isBackground = byItself
      void run()
    }
    restart.current = () => refresh(false)
    refresh(false)
    const refreshItself = () => refresh(true)
    const stopListening = named === '' ? () => {} : onChange(named.split(' ') as LiveTopic[], refreshItself)
    const timer = everyMs === undefined ? undefined : setInterval(refreshItself, everyMs)
    return () => {
      controller.abort()
      stopListening()
      clearInterval(timer)
    }
  }, [key, named, everyMs])

  const reload = useCallback(() => restart.current(), [])
  const { data, problem, isLoading } = state.value
  return { data, problem, isLoading, reload }
}

function firstState<T>(key: string | null): State<T> {
  const data = key === null ? null : ((remembered.get(key) as T | undefined) ?? null)
  return { key, data, problem: null, isLoading: key !== null }
}

function remember(key: string, data: unknown): void {
  remembered.delete(key)
  remembered.set(key, data)
  if (remembered.size <= rememberedMax) return
  const [oldest] = remembered.keys()
  if (oldest !== undefined) remembered.delete(oldest)
}

/** Forgets all documents, after a log-out or a change of key. */
export function forgetDocuments(): void {
  remembered.clear()
}
