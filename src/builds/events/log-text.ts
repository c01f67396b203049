// Formats a build's events as lines of text for an operator, at the reader's pace. Effects: reads the log on disk.

import { utf8 } from '../../base/bytes.ts'
import type { BuildEvent } from '../../contract/http/build.ts'
import type { EventReader } from './events.ts'

/** How long to wait for events before checking the stream again. */
const waitMs = 15_000

/**
 * Yields lines. With `follow`, until the build's last event or the signal; otherwise only existing events. Fault
 * not_found if the log was removed.
 */
export async function* logText(
  reader: Pick<EventReader, 'next'>,
  { follow, signal }: { readonly follow: boolean; readonly signal: AbortSignal },
): AsyncGenerator<Uint8Array> {
  while (!signal.aborted) {
    const lines = await reader.next(follow ? waitMs : 0)
    if (lines === null) return
    if (lines.length > 0) yield utf8(lines.map(({ data }) => lineOf(JSON.parse(data) as BuildEvent)).join(''))
    else if (!follow) return
  }
}

function lineOf(event: BuildEvent): string {
  if (event.type === 'queued') return `queued: ${event.position} before it\n`
  if (event.type !== 'complete') return `${event.type}: ${event.msg}\n`
  const { result } = event
  return result.status === 'ok' ? 'complete: ok\n' : `complete: ${result.error_type}: ${result.error}\n`
}
