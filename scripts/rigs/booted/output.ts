// A command of the rig, run to its end with its output. Effects: a process.

import type { Subprocess } from 'bun'

export type Executed = { readonly exitCode: number; readonly stdout: string; readonly stderr: string }

/**
 * A program that the command left behind may hold its pipes open: nobody waits longer for them. In turns, of which a
 * machine that stands still for a while takes one.
 */
const [drainTurns, drainTurnMs] = [20, 100]

/** Ended by SIGTERM after `timeoutMs`, and then its error output says so. `running` has it until its end. */
export async function outputOf(
  argv: readonly string[],
  stdin: string,
  timeoutMs: number,
  running = new Set<Subprocess>(),
): Promise<Executed> {
  const startedMs = performance.now()
  const child = Bun.spawn([...argv], { stdin: Buffer.from(stdin), stdout: 'pipe', stderr: 'pipe', timeout: timeoutMs })
  running.add(child)
  const said = { stdout: '', stderr: '' }
  const drained = Promise.all(
    (['stdout', 'stderr'] as const).map(async name => {
      const decoder = new TextDecoder()
      for await (const chunk of child[name]) said[name] += decoder.decode(chunk, { stream: true })
    }),
  )
  const exitCode = await child.exited
  running.delete(child)
  let isDrained = false
  const done = () => {
    isDrained = true
  }
  drained.then(done, done)
  for (let turn = 0; turn < drainTurns && !isDrained; turn += 1) await Promise.race([drained, Bun.sleep(drainTurnMs)])
  const isLate = child.signalCode !== null && performance.now() - startedMs >= timeoutMs
  return {
    exitCode,
    stdout: said.stdout,
    stderr: isLate ? `${said.stderr}\nnot done after ${timeoutMs} ms` : said.stderr,
  }
}
