// A verdict in plain words: one fact per line, in the order in which a person needs them. Pure.
//
// Names of checks, VMPL, TCB and certificates are shown only with --verbose and --json. Text of a host is bounded and
// harmless here; a command to try next is printed completely or not at all.

import type { Check } from '../../attest/verdict.ts'
import { oneLine, type Paint, type ShownVerdict, verdictText, verdictWords } from '../../terminal/render.ts'
import { type Failure, failureOf, type Sorting } from '../../terminal/verdict-exit.ts'
import { becauseLines } from './because.ts'
import { type NextCommands, nextCommands } from './next-commands.ts'
import { notProvedLines } from './not-proved.ts'
import { basisLines, checkCounts, verdictLineCharsMax } from './summary.ts'

/** In the order in which they are printed. */
const LABELS = [
  'you may',
  'runs',
  'built in',
  'built from',
  'started by',
  'read by',
  'prompts',
  'reach',
  'secrets',
  'published',
  'answered by',
  'hardware',
] as const
export type Fact = readonly [label: (typeof LABELS)[number], text: string]

/** The words of one command's verdict. */
export type Plain = {
  /** Follows `you may` for PASS and `do not` for FAIL, such as `log in`. */
  readonly act: string
  /** Shown only for PASS. */
  readonly facts: readonly Fact[]
  /** Limits of every verdict of this kind. */
  readonly unproved: readonly string[]
  /** The command line, and what it lacks for PASS. */
  readonly next: NextCommands
}

export type PlainOptions = {
  readonly verbose: boolean
  /** Every check of the receipts. */
  readonly details?: readonly Check[]
  readonly sorting?: Sorting
  readonly paint: Paint
}

/** Returns all checks if `verbose`, otherwise facts for PASS, or reasons and commands for FAIL. */
export function plainVerdict(shown: ShownVerdict, plain: Plain, options: PlainOptions): string {
  const { verbose, details = [], paint } = options
  if (verbose) {
    const basis = shown.ok ? basisLines(details).map(line => `rests on ${line}\n`) : []
    return verdictText(shown, paint) + basis.join('')
  }
  const { ok, simulated } = shown
  const lines = [
    verdictWords(shown, paint),
    ...(simulated === true ? section('SIMULATED', [simulatedWords]) : []),
    ...(ok ? goodLines(shown, plain) : badLines(shown, plain, options.sorting)),
    checkCounts(shown),
  ]
  return lines.map(line => `${line}\n`).join('')
}

const simulatedWords =
  'no hardware protects this VM: its host can read and change all that is in it; use it for tests alone'

function goodLines({ checks, simulated }: ShownVerdict, { act, facts, unproved }: Plain): string[] {
  const may = simulated === true ? `${act}, for tests alone` : act
  const all: readonly Fact[] = [['you may', may], ...facts]
  return [
    ...LABELS.flatMap(label =>
      section(
        label,
        all.filter(([of]) => of === label).map(([, text]) => bounded(text)),
      ),
    ),
    ...section('not proved', notProvedLines(checks, unproved).map(bounded)),
  ]
}

const FAILURE_WORDS = {
  evidence: 'the evidence is not genuine, or not for you; tell the operator over another channel',
  policy: 'the evidence is genuine, but not what you expect',
  input: 'an input is missing or cannot be read, so nothing was proved or disproved',
  connection: 'the connection failed, so nothing was proved or disproved',
} as const satisfies Record<Failure, string>

function badLines(shown: ShownVerdict, { act, next }: Plain, sorting: Sorting | undefined): string[] {
  const failure = failureOf(shown, sorting)
  const why = failure === null ? '' : `: ${FAILURE_WORDS[failure]}`
  return [
    ...section('do not', [`${act}${why}`]),
    ...section('because', becauseLines(shown.checks).map(bounded)),
    ...section('try next', nextCommands(next, failure)),
  ]
}

/**
 * Returns the text on one line, without control characters and rows of blanks, and truncated if it is too long to read.
 */
function bounded(text: string): string {
  const line = oneLine(text).replace(/\s{2,}/g, ' ')
  return line.length <= verdictLineCharsMax ? line : `${line.slice(0, verdictLineCharsMax - 1)}…`
}

const labelChars = 12

function section(label: string, lines: readonly string[]): string[] {
  return lines.map((line, at) => `${(at === 0 ? label : '').padEnd(labelChars)}${line}`)
}
