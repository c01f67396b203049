// Time that each stage of a build takes, by the times of its events. State of one build; no effects.
//
// Most events report that a step has ended, so the time before an event belongs to the event's stage.
// The host polls the VM for its events: times of a stage are exact to one poll.

export class StageTimes {
  readonly #ms = new Map<string, number>()
  #lastMs: number | null = null
  /** Whether the VM has reported, without which there is nothing to compare. */
  #hasRun = false

  /** Takes an event of the build, in order. */
  note(type: string, atMs: number): void {
    if (type === 'host') return
    const passedMs = Math.max(0, atMs - (this.#lastMs ?? atMs))
    this.#lastMs = atMs
    if (type === 'init') this.#hasRun = true
    // The first event of `vm` ends the wait in the queue; the transfer of the result comes last.
    const isFirstOfVm = type === 'vm' && !this.#ms.has('vm')
    if (isFirstOfVm) this.#ms.set('vm', 0)
    const stage = isFirstOfVm ? 'queued' : type === 'complete' ? 'result' : type
    this.#ms.set(stage, (this.#ms.get(stage) ?? 0) + passedMs)
  }

  /** Returns the stages so far, in the order of a build. */
  list(): { readonly stage: string; readonly ms: number }[] {
    const order = ['queued', 'vm', 'init', 'detect', 'fetch', 'build', 'provenance', 'attest', 'result']
    return order.flatMap(stage => {
      const ms = this.#ms.get(stage)
      return ms === undefined ? [] : [{ stage, ms }]
    })
  }

  /** Returns one line. Null for a build that ended before its VM reported anything. */
  text(): string | null {
    if (!this.#hasRun) return null
    const shown = this.list().map(({ stage, ms }) => `${stage} ${seconds(ms)}`)
    const allMs = [...this.#ms.values()].reduce((sum, ms) => sum + ms, 0)
    return `Stages: ${shown.join(', ')}; ${seconds(allMs)} in all.`
  }
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`
}
