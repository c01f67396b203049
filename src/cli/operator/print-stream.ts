// Prints text as the daemon sends it: a console, a log. Effects: a request to the daemon, standard output.

import { harmless } from '../../base/harmless.ts'
import { InputFault } from '../../terminal/exit.ts'
import type { Run } from '../operator-run.ts'

type StreamRequest = Parameters<ReturnType<Run['client']>['stream']>[0]

/** `name`: of the field that has the text with --json, which a stream without an end cannot have. */
export async function printStream(
  run: Run,
  asked: StreamRequest,
  { name, isEndless }: { readonly name: string; readonly isEndless: boolean },
): Promise<void> {
  if (isEndless && run.json) {
    throw new InputFault('--follow has no end, so --json cannot print it as one document', {
      param: 'follow',
      remedy: 'leave out --follow or --json',
    })
  }
  const decoder = new TextDecoder()
  let text = ''
  for await (const chunk of run.client().stream(asked)) {
    if (run.json) text += decoder.decode(chunk, { stream: true })
    else if (run.io.stdoutIsTerminal) await run.io.stdout(harmless(decoder.decode(chunk, { stream: true })))
    else await run.io.stdout(chunk)
  }
  if (run.json) await run.result({ [name]: text + decoder.decode() }, '')
}
