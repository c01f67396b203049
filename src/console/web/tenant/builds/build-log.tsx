// The live events of a build: its position in the queue, then each step's lines.

import type { BuildEvent } from '../../../../contract/http/build.ts'
import { useFollowed } from '../../core/followed.ts'
import { pathTo } from '../../core/path.ts'
import { eventsIn } from '../../core/server-sent.ts'
import { Card, ProblemNote } from '../../parts/page.tsx'
import { StreamText } from '../../parts/stream-text.tsx'
import { fetchStream } from '../services.ts'

export function BuildLog({ id }: { id: string }) {
  const { text, isCut, problem, retry } = useFollowed(id, signal => linesOf(id, signal))
  return (
    <Card title="Log" wide>
      {problem !== null && <ProblemNote problem={problem} retry={retry} />}
      <StreamText label="Log of the build" text={text} isCut={isCut} none="No lines yet." />
    </Card>
  )
}

async function* linesOf(id: string, signal: AbortSignal): AsyncGenerator<string> {
  const { body } = await fetchStream('builds', `${pathTo`/build/${id}`}/events`, { signal })
  if (body === null) return
  for await (const data of eventsIn(body)) yield `${lineOf(JSON.parse(data) as BuildEvent)}\n`
}

function lineOf(event: BuildEvent): string {
  if (event.type === 'queued') return `queued: ${event.position} builds ahead`
  if (event.type !== 'complete') return `${event.type}: ${event.msg}`
  const { result } = event
  return result.status === 'ok' ? 'complete: ok' : `complete: ${result.error_type}: ${result.error}`
}
