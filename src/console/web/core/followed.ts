// Text that grows while it is shown: a console, the log of a build. Effects: a request while it is visible, timers.

import { useSignal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import { follow, type OpenText } from './follow.ts'
import type { RequestProblem } from './request.ts'
import { isShown } from './shown.ts'

export type FollowedLog = {
  readonly text: string
  /** Whether older text was dropped. */
  readonly isCut: boolean
  /** Why the text stopped growing; null if it is growing or complete. */
  readonly problem: RequestProblem | null
  readonly retry: () => void
}

/** Follows a text. Another `key` means another text. */
export function useFollowed(key: string, open: OpenText): FollowedLog {
  const text = useSignal('')
  const isCut = useSignal(false)
  const problem = useSignal<RequestProblem | null>(null)
  const attempt = useSignal(0)
  const latest = useRef(open)
  latest.current = open
  const isSeen = isShown.value
  useEffect(() => {
    text.value = ''
    isCut.value = false
  }, [key])
  useEffect(() => {
    problem.value = null
    if (!isSeen) return undefined
    const controller = new AbortController()
    void follow(latest.current, controller.signal, {
      draw: grown => {
        text.value = grown.text
        isCut.value = grown.isCut
        problem.value = null
      },
      broke: found => {
        problem.value = found
      },
      pause,
      random: Math.random,
    })
    return () => controller.abort()
  }, [key, attempt.value, isSeen])
  const retry = () => {
    attempt.value += 1
  }
  return { text: text.value, isCut: isCut.value, problem: problem.value, retry }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const end = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, ms)
    signal.addEventListener('abort', end)
  })
}
