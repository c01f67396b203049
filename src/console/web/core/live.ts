// The stream with which the console reports changes. Effects: a connection, timers.
//
// The stream contains only topics; components that show one of them fetch it again. The first stream begins with
// changes since the session was read, before the page's first request. Each later one begins with all topics, so that
// nothing in a gap is missed.

import { signal } from '@preact/signals'
import { type LiveTopic, retryDelayMs, topicsIn } from './live-message.ts'

/** `stale`: the page may show outdated content since `sinceMs`. */
export type LiveState =
  | { readonly kind: 'off' }
  | { readonly kind: 'connecting' }
  | { readonly kind: 'live' }
  | { readonly kind: 'stale'; readonly sinceMs: number }

export const liveState = signal<LiveState>({ kind: 'off' })

type Listener = { readonly topics: ReadonlySet<LiveTopic>; readonly changed: () => void }

const listeners = new Set<Listener>()

/** Calls `changed` for each message about one of these topics, until the returned function is called. */
export function onChange(topics: readonly LiveTopic[], changed: () => void): () => void {
  const listener = { topics: new Set(topics), changed }
  listeners.add(listener)
  return () => listeners.delete(listener)
}

/**
 * Connects, and reconnects after each loss, until the returned function is called. `since`: a cursor from before the
 * page requested its documents; null if there is none. `lost`: called after a loss, whose reason is unknown.
 */
export function followLive(path: string, since: string | null, lost: () => void): () => void {
  let source: EventSource | null = null
  let timer: ReturnType<typeof setTimeout> | undefined
  let failures = 0
  let isEnded = false
  let query = since === null ? '' : `?${new URLSearchParams({ since })}`

  const connect = () => {
    if (isEnded) return
    source = new EventSource(path + query)
    query = ''
    source.addEventListener('open', () => {
      failures = 0
      liveState.value = { kind: 'live' }
    })
    source.addEventListener('changed', event => tell(topicsIn(String(event.data))))
    source.addEventListener('error', () => {
      // The browser's own reconnection has no back-off, and stops when it is rejected.
      source?.close()
      failures += 1
      if (liveState.value.kind !== 'stale') liveState.value = { kind: 'stale', sinceMs: Date.now() }
      timer = setTimeout(connect, retryDelayMs(failures, Math.random()))
      lost()
    })
  }
  liveState.value = { kind: 'connecting' }
  connect()
  return () => {
    isEnded = true
    clearTimeout(timer)
    source?.close()
    liveState.value = { kind: 'off' }
  }
}

function tell(topics: readonly LiveTopic[]): void {
  for (const listener of listeners) if (topics.some(topic => listener.topics.has(topic))) listener.changed()
}
