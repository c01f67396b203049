// Growing text, such as a console: keeps its end in view until the reader scrolls up. Effects: scrolling.

import { useSignal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import { shownText } from '../core/foreign.ts'

/** Largest distance from the end that still counts as the end. */
const endPixels = 24

export function StreamText({
  label,
  text,
  isCut,
  none,
}: {
  label: string
  text: string
  isCut: boolean
  none: string
}) {
  const area = useRef<HTMLPreElement>(null)
  const isAtEnd = useSignal(true)
  useEffect(() => {
    const { current } = area
    if (current !== null && isAtEnd.peek()) current.scrollTop = current.scrollHeight
  }, [text])
  const noticeScroll = (event: Event) => {
    const { scrollTop, scrollHeight, clientHeight } = event.currentTarget as HTMLPreElement
    isAtEnd.value = scrollHeight - scrollTop - clientHeight < endPixels
  }
  const toEnd = () => {
    const { current } = area
    if (current !== null) current.scrollTop = current.scrollHeight
  }
  return (
    <div class="stream">
      {isCut && <p class="hint">Older lines are not shown.</p>}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, by keyboard too */}
      <pre ref={area} tabIndex={0} role="log" aria-label={label} aria-live="off" onScroll={noticeScroll}>
        {text === '' ? <span class="stream-none">{none}</span> : shownText(text, text.length)}
      </pre>
      {!isAtEnd.value && (
        <button type="button" class="to-end" onClick={toEnd}>
          Jump to the end
        </button>
      )}
    </div>
  )
}
