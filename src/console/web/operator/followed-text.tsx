// Text of the operator's interface that grows while it is shown: a console, the log of a build. Effects: a request for
// as long as it is shown.

import { useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { GrowingText } from '../core/foreign.ts'
import { isAbort, problemFrom, type RequestProblem, requestStream } from '../core/request.ts'
import { operatorPath } from '../core/session.ts'
import { Card, ProblemNote } from '../parts/page.tsx'
import { StreamText } from '../parts/stream-text.tsx'
import { CommandLine } from '../parts/text.tsx'

const shownCharsMax = 262_144
/** The page draws at most so often. */
const drawMs = 200

/** `of`: another one has another text. */
export function FollowedText({
  title,
  path,
  of,
  command,
}: {
  title: string
  path: string
  of: string
  command: string
}) {
  const text = useSignal('')
  const isCut = useSignal(false)
  const problem = useSignal<RequestProblem | null>(null)
  const attempt = useSignal(0)
  useEffect(() => {
    const controller = new AbortController()
    text.value = ''
    problem.value = null
    const grown = new GrowingText(shownCharsMax)
    let timer: ReturnType<typeof setTimeout> | undefined
    const draw = () => {
      timer = undefined
      text.value = grown.text
      isCut.value = grown.isCut
    }
    const follow = async () => {
      const response = await requestStream(operatorPath(path), { signal: controller.signal })
      const decoder = new TextDecoder()
      for await (const part of response.body ?? []) {
        grown.add(decoder.decode(part, { stream: true }))
        timer ??= setTimeout(draw, drawMs)
      }
    }
    follow().catch(error => {
      if (!controller.signal.aborted && !isAbort(error)) problem.value = problemFrom(error)
    })
    return () => {
      controller.abort()
      clearTimeout(timer)
    }
  }, [path, of, attempt.value])
  return (
    <Card title={title} wide>
      <CommandLine command={command} />
      {problem.value !== null && <ProblemNote problem={problem.value} retry={() => (attempt.value += 1)} />}
      <StreamText label={title} text={text.value} isCut={isCut.value} none="Nothing was printed yet." />
    </Card>
  )
}
