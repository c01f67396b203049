// The one stream by which the console says what has changed. Effects: a connection, timers.
//
// The stream contains only topics; parts of the page that show one of them fetch again. The first stream begins with
// changes after the session was read, before the page's first request; each later one begins with all topics, so that
// nothing of a gap is missed.

import { signal } from '@preact/signals'
import { type LiveTopic, retryDelayMs, topicsIn } from './live-message.ts'

/** `stale`: since then the page may show what is no longer so. */
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
 * Connects, and again after each loss, until the returned function is called. `since`: a cursor from before the page
 * asked for its documents; null if there is none. `lost`: a loss says nothing of why.
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
      // The browser's own attempts have no back-off, and stop at a refusal.
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
