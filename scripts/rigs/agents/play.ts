// Plays one scenario with the real program. Effects: those of its day.

import { startDay } from './day.ts'
import type { Session } from './fixture.ts'
import type { Exchange } from './recorder.ts'
import type { Scenario } from './scenarios.ts'
import { decidingModel } from './script.ts'

/** Throws with the reason, the end of the program's output and its requests if the scenario fails. */
export async function playScenario(scenario: Scenario, path: string): Promise<Session> {
  const { program, name, decide, surroundings, run } = scenario
  await using day = await startDay({ name: program, path }, { behave: decidingModel(decide), surroundings })
  const { exchanges } = day.recorder
  try {
    await run(day)
    const refused = exchanges.find(exchange => exchange.status >= 400 && !isProbe(exchange))
    if (refused !== undefined) throw new Error(`${refused.path} was answered ${refused.status}`)
    return { name, exchanges: [...exchanges] }
  } catch (error) {
    const listed = exchanges.map(
      ({ status, method, path, body }) => `  ${status} ${method} ${path} (${body.length} characters)`,
    )
    throw new Error([error instanceof Error ? error.message : String(error), ...listed].join('\n'))
  }
}

/** A program sends such requests to every server, and works without: routes that only its maker has, or a WebSocket. */
function isProbe({ method, status }: Exchange): boolean {
  return status === 426 || (status === 404 && method !== 'POST')
}
