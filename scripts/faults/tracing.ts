// One daemon under the tracer: what it does to the outside, one by one, and its death at a chosen place. Effects: a
// process.

import { join } from 'node:path'

/** How many effects are let through before the daemon dies; `all`: it lives. */
export type KillAfter = number | 'all'

export type Tracing = AsyncDisposable & {
  /** Effects begun so far, in order. After a kill the last is the call that was not made. */
  readonly effects: readonly string[]
  /** Resolves once the daemon has been killed here; never otherwise. */
  readonly killed: Promise<void>
  /** Lets the daemon go on untraced. */
  readonly end: () => Promise<void>
}

const tracer = join(import.meta.dir, 'tracer.ts')

/** Resolves as soon as every call of the process `pid` is seen. `isHeld`: it stops itself, before or
 * after, and continues from there. */
export async function trace(
  pid: number,
  { killAfter, isHeld }: { killAfter: KillAfter; isHeld: boolean },
): Promise<Tracing> {
  const argv = [process.execPath, tracer, `${pid}`, `${killAfter}`, ...(isHeld ? ['held'] : [])]
  const child = Bun.spawn(argv, { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' })
  const effects: string[] = []
  const attached = Promise.withResolvers<void>()
  const killed = Promise.withResolvers<void>()
  const drained = (async () => {
    let rest = ''
    for await (const chunk of child.stdout) {
      const lines = (rest + Buffer.from(chunk).toString()).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) {
        if (line === 'attached') attached.resolve()
        else if (line === 'killed') killed.resolve()
        else effects.push(JSON.parse(line) as string)
      }
    }
    attached.reject(new Error(`the tracer could not attach to process ${pid}`))
  })()
  const end = async () => {
    child.kill('SIGKILL')
    await drained
  }
  await attached.promise
  return { effects, killed: killed.promise, end, [Symbol.asyncDispose]: end }
}
