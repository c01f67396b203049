// `strongroom init` as a person types it, in a booted Debian. Effects: those of the command.

import { QUESTIONS } from '../../src/cli/init/questions.ts'
import { atTerminal } from '../rigs/terminal.ts'
import { type ProvedHost, publicV4 } from './host.ts'

const questionTimeoutMs = 180_000

/** By the fields of the questions; an empty answer takes the default. */
const ANSWERS: Readonly<Record<string, string>> = {
  domain: 'agents.test',
  'network.public_v4': publicV4,
  'listen.inference': '""',
}

/**
 * Returns what the screen showed; throws unless it ends well. The first answer is wrong, and corrected. `modelUrl`: an
 * own model server for the gateway; without one there is no gateway.
 */
export async function typeInit(
  { debian }: ProvedHost,
  organization: string,
  words: readonly string[],
  { timeoutMs, modelUrl = null }: { readonly timeoutMs: number; readonly modelUrl?: string | null },
): Promise<string> {
  const init = atTerminal(debian.argv(['strongroom', 'init', ...words]))
  const timer = setTimeout(init.kill, timeoutMs)
  try {
    for (const [at, { field, text }] of QUESTIONS.entries()) {
      await init.printed(text, questionTimeoutMs)
      if (at === 0) {
        init.type('Not A Name\r')
        await init.printed('not allowed', questionTimeoutMs)
        await init.printed(text, questionTimeoutMs)
      }
      const isGateway = modelUrl !== null && field?.join('.') === 'listen.inference'
      init.type(`${field === null ? organization : isGateway ? '' : (ANSWERS[field.join('.')] ?? '')}\r`)
    }
    if (modelUrl !== null) {
      await typeAnswers(init, modelAnswers(modelUrl))
    }
    const exitCode = await init.exited
    if (exitCode !== 0) throw new Error(`strongroom init: ${exitCode}: ${init.screen()}`)
    return init.screen()
  } finally {
    clearTimeout(timer)
    init.kill()
  }
}

/** The questions about an own model server. */
export function modelAnswers(url: string): readonly (readonly [string, string])[] {
  return [
    ['Model: ', url],
    ['prompt tokens', '0.50'],
    ['completion tokens', '1.50'],
  ]
}

/** Types each answer once its question is on the screen. */
export async function typeAnswers(
  init: ReturnType<typeof atTerminal>,
  answers: readonly (readonly [string, string])[],
): Promise<void> {
  for (const [question, answer] of answers) {
    await init.printed(question, questionTimeoutMs).catch(error => {
      throw new Error(`${error}: ${init.screen()}`)
    })
    init.type(`${answer}\r`)
  }
}
