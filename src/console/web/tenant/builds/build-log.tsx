// The events of a build as they come: its position in the queue, then each step's lines. Effects: a request for as long
// as it is shown.

import { useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import type { BuildEvent } from '../../../../contract/http/build.ts'
import { GrowingText } from '../../core/foreign.ts'
import { pathTo } from '../../core/path.ts'
import { isAbort, problemFrom, type RequestProblem } from '../../core/request.ts'
import { eventsIn } from '../../core/server-sent.ts'
import { Card, ProblemNote } from '../../parts/page.tsx'
import { StreamText } from '../../parts/stream-text.tsx'
import { streamOf } from '../services.ts'

const shownCharsMax = 262_144
/** The page draws at most so often. */
const drawMs = 200

export function BuildLog({ id }: { id: string }) {
  const text = useSignal('')
  const isCut = useSignal(false)
  const problem = useSignal<RequestProblem | null>(null)
  const attempt = useSignal(0)
  useEffect(() => {
    const controller = new AbortController()
    const grown = new GrowingText(shownCharsMax)
    problem.value = null
    let timer: ReturnType<typeof setTimeout> | undefined
    const draw = () => {
      timer = undefined
      text.value = grown.text
      isCut.value = grown.isCut
    }
    const follow = async () => {
      const response = await streamOf('builds', `${pathTo`/build/${id}`}/events`, { signal: controller.signal })
      if (response.body === null) return
      for await (const data of eventsIn(response.body)) {
        grown.add(`${lineOf(JSON.parse(data) as BuildEvent)}\n`)
        timer ??= setTimeout(draw, drawMs)
      }
    }
    follow().catch(error => {
      if (!isAbort(error)) problem.value = problemFrom(error)
    })
    return () => {
      controller.abort()
      clearTimeout(timer)
    }
  }, [id, attempt.value])
  return (
    <Card title="Log" wide>
      {problem.value !== null && <ProblemNote problem={problem.value} retry={() => (attempt.value += 1)} />}
      <StreamText label="Log of the build" text={text.value} isCut={isCut.value} none="No line yet." />
    </Card>
  )
}

function lineOf(event: BuildEvent): string {
  if (event.type === 'queued') return `queued: ${event.position} before it`
  if (event.type !== 'complete') return `${event.type}: ${event.msg}`
  const { result } = event
  return result.status === 'ok' ? 'complete: ok' : `complete: ${result.error_type}: ${result.error}`
}
