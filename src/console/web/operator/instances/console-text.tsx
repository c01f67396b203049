// The serial console of an instance's VM as it grows. Effects: a request for as long as it is shown.

import { useSignal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { commandOf } from '../../core/command.ts'
import { GrowingText } from '../../core/foreign.ts'
import { isAbort, problemFrom, type RequestProblem, requestStream } from '../../core/request.ts'
import { operatorPath } from '../../core/session.ts'
import { Card, ProblemNote } from '../../parts/page.tsx'
import { StreamText } from '../../parts/stream-text.tsx'
import { CommandLine } from '../../parts/text.tsx'

const tailBytes = 65_536
const shownCharsMax = 262_144
/** The page draws at most so often. */
const drawMs = 200

/** `vm`: another VM of the same instance has another console. */
export function ConsoleCard({ reference, vm }: { reference: string; vm: string }) {
  const text = useSignal('')
  const isCut = useSignal(false)
  const problem = useSignal<RequestProblem | null>(null)
  const attempt = useSignal(0)
  useEffect(() => {
    const controller = new AbortController()
    text.value = ''
    problem.value = null
    const query = new URLSearchParams({ ref: reference, tail: String(tailBytes), follow: 'true' })
    const grown = new GrowingText(shownCharsMax)
    let timer: ReturnType<typeof setTimeout> | undefined
    const draw = () => {
      timer = undefined
      text.value = grown.text
      isCut.value = grown.isCut
    }
    const follow = async () => {
      const path = operatorPath(`/instance/console?${query}`)
      const response = await requestStream(path, { signal: controller.signal })
      const decoder = new TextDecoder()
      for await (const part of response.body ?? []) {
        grown.add(decoder.decode(part, { stream: true }))
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
  }, [reference, vm, attempt.value])
  return (
    <Card title="Console" wide>
      <CommandLine command={commandOf(['instance', 'console', reference], { follow: true })} />
      {problem.value !== null && <ProblemNote problem={problem.value} retry={() => (attempt.value += 1)} />}
      <StreamText label="Console" text={text.value} isCut={isCut.value} none="Nothing was printed yet." />
    </Card>
  )
}
