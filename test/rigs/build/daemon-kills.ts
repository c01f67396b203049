// Kills of a real daemon while a client follows a build: in each phase that the client sees, and while the result is
// copied. Effects: those of an appliance.

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'
import { type BuildsClient, messageOf, type SeenEvent } from '../../../scripts/rigs/build/builds-client.ts'
import type { BuildEvent } from '../../../src/contract/http/build.ts'

type Phase = { readonly name: string; readonly isNow: (event: BuildEvent) => boolean }

export const says = (type: BuildEvent['type'], part: string) => (event: BuildEvent) =>
  event.type === type && messageOf(event).includes(part)

const phases: readonly Phase[] = [
  { name: 'its VM is defined', isNow: says('vm', 'Starting') },
  { name: 'ordered', isNow: says('vm', 'has its order') },
  { name: 'the guest waits for the evidence of the dispatch', isNow: says('init', 'source tree') },
  { name: 'the build runs', isNow: says('build', 'Compiling') },
  { name: 'the guest waits for the evidence of the completion', isNow: says('provenance', 'SHA-256') },
  { name: 'the guest writes its result', isNow: says('attest', 'completion receipt') },
]

export async function killAndStart(appliance: Appliance, phase: string, meanwhile: () => void = () => {}) {
  const startedMs = performance.now()
  await appliance.kill()
  meanwhile()
  await appliance.start()
  // For whoever sees this test fail.
  process.stdout.write(`killed while ${phase}; back after ${Math.round(performance.now() - startedMs)} ms\n`)
}

/** `missed`: names of phases in which the daemon was not killed, because the client did not see them. */
export type Followed = {
  readonly seen: readonly SeenEvent[]
  readonly missed: readonly string[]
  readonly isCopyKilled: boolean
}

/** Follows a build to its end over broken connections, as a browser does; kills the daemon once in each phase. */
export async function followWithKills(appliance: Appliance, client: BuildsClient, id: string): Promise<Followed> {
  const left = [...phases]
  const over = new AbortController()
  const copied = killAtCopy(appliance, { id, left, signal: over.signal })
  const seen: SeenEvent[] = []
  try {
    while (seen.at(-1)?.data.type !== 'complete') {
      try {
        for await (const event of client.stream(id, seen.at(-1)?.id)) {
          seen.push(event)
          const at = left.findIndex(phase => phase.isNow(event.data))
          if (at === -1) continue
          await killAndStart(appliance, left[at]?.name ?? '')
          left.splice(at, 1)
          break
        }
      } catch (error) {
        if (!isBroken(error)) throw error
        // As long as the daemon is away; the test has a limit.
        await Bun.sleep(20)
      }
    }
  } finally {
    over.abort()
  }
  return { seen, missed: left.map(({ name }) => name), isCopyKilled: await copied }
}

/** A connection that the killed daemon has broken or does not take. */
function isBroken(error: unknown): boolean {
  return /^(?:ConnectionRefused|ConnectionClosed|ECONNREFUSED|ECONNRESET)$/.test(
    String((error as { code?: unknown }).code),
  )
}

/**
 * Kills the daemon while this build's result is copied, after all other kills. False if the copy was not seen before
 * the abort.
 */
async function killAtCopy(
  appliance: Appliance,
  { id, left, signal }: { id: string; left: readonly Phase[]; signal: AbortSignal },
): Promise<boolean> {
  const directory = join(appliance.stateDir, 'builds', id)
  while (!signal.aborted) {
    if (left.length === 0 && existsSync(join(directory, 'result.tar.gz.tmp'))) {
      // Stopped first, so that what is looked at is what is killed.
      process.kill(appliance.pid(), 'SIGSTOP')
      const isPart = !existsSync(join(directory, 'result.tar.gz'))
      await killAndStart(appliance, 'its result is copied')
      return isPart
    }
    // Every millisecond only when it can come to that.
    await Bun.sleep(left.length === 0 ? 1 : 50)
  }
  return false
}
