// An action of a person: it runs once at a time, and its failure is shown next to it.

import { useSignal } from '@preact/signals'
import { problemFrom, type RequestProblem } from './request.ts'

export type Action<Given extends readonly unknown[]> = {
  /** Runs the action, and resolves to whether it succeeded. No effect while it is running. */
  readonly run: (...given: Given) => Promise<boolean>
  readonly isBusy: boolean
  readonly problem: RequestProblem | null
  readonly clear: () => void
}

export function useAction<Given extends readonly unknown[]>(act: (...given: Given) => Promise<unknown>): Action<Given> {
  const isBusy = useSignal(false)
  const problem = useSignal<RequestProblem | null>(null)
  return {
    isBusy: isBusy.value,
    problem: problem.value,
    clear: () => {
      problem.value = null
    },
    run: async (...given) => {
      if (isBusy.peek()) return false
      isBusy.value = true
      problem.value = null
      try {
        await act(...given)
        return true
      } catch (error) {
        problem.value = problemFrom(error)
        return false
      } finally {
        isBusy.value = false
      }
    },
  }
}
