// Prompts for the answers of `strongroom init`. Each is checked before the next question, and kept for a later run.
// Effects: the terminal, the kept answers.

import { inlineToml, type Setting, settingsOf } from '../../config/edit.ts'
import { ConfigFault } from '../../config/load.ts'
import { parseConfig } from '../../config/parse.ts'
import type { Config } from '../../config/schema.ts'
import { slugProblem } from '../../contract/admin/admin.ts'
import { InputFault } from '../../terminal/exit.ts'
import { MIB, readTextInput } from '../../terminal/input-file.ts'
import type { Run } from '../operator-run.ts'
import { type AddressFacts, addressVerdict } from './addresses.plan.ts'
import type { KeptAnswers } from './kept-answers.driver.ts'
import { presentAnswer, promptText, type Question, questionsFor, readAnswer } from './questions.ts'

export const organizationDefault = 'first'
const organizationName = 'organization'
const attemptsMax = 3

export type InitAnswers = {
  readonly settings: readonly Setting[]
  /** Null if none is to be made. */
  readonly organization: string | null
}

type Asking = {
  readonly config: Config
  readonly kept: KeptAnswers
  readonly addresses: AddressFacts
  readonly withOrganization: boolean
}

/** Returns the answers as settings. Throws Fault invalid_request after three wrong answers to a question. */
export async function askQuestions(run: Run, asking: Asking): Promise<InitAnswers> {
  const { config } = asking
  const settings: Setting[] = []
  let organization: string | null = null
  const { questions, implied } = questionsFor(asking.addresses.own)
  for (const question of questions) {
    const { field } = question
    if (field === null && !asking.withOrganization) continue
    const words = await askOne(run, question, asking)
    if (field === null) organization = words
    else settings.push({ path: field, value: words === '""' ? '' : words })
  }
  // A value that the file has already, or by default, needs no line.
  const isNew = ({ path, value }: Setting) =>
    presentAnswer(config, path) !== (typeof value === 'string' ? value : inlineToml(value))
  return { settings: [...implied, ...settings].filter(isNew), organization }
}

async function askOne(run: Run, question: Question, { config, kept, addresses }: Asking): Promise<string> {
  const { io } = run
  const { field } = question
  const name = field === null ? organizationName : field.join('.')
  const fallback = field === null ? organizationDefault : (question.fallback ?? presentAnswer(config, field))
  const shown = kept.get(name) ?? fallback
  for (let attempt = 1; ; attempt += 1) {
    const typed = await askLine(run, promptText(question, shown))
    const words = typed.trim() === '' ? shown : typed.trim()
    const answer = readAnswer(question, words)
    const value = words === '""' ? '' : words
    const verdict = answer.ok && field !== null ? addressVerdict(name, value, addresses) : null
    const problem = answer.ok ? (verdict?.kind === 'refused' ? verdict.text : null) : answer.problem
    if (problem === null) {
      if (verdict?.kind === 'remark') await io.stderr(`  ${verdict.text}\n`)
      kept.set(name, value)
      return value
    }
    if (attempt === attemptsMax) throw new InputFault(problem, { remedy: againRemedy })
    await io.stderr(`  ${problem}\n`)
  }
}

const againRemedy = 'run `strongroom init` again: nothing was changed, and the answers so far are kept'

/** One line of a person. Faults: invalid_request at the end of input, or without a terminal. */
export async function askLine({ io }: Run, prompt: string): Promise<string> {
  if (io.ask === undefined) {
    throw new InputFault('cannot ask questions: standard input is not a terminal', {
      param: 'preseed',
      remedy: 'name a file by --preseed; an empty one takes every default',
    })
  }
  const typed = await io.ask(prompt)
  if (typed === null) throw new InputFault('the input ended', { remedy: againRemedy })
  return typed
}

/** The answers of a file, whose mistakes are shown with its own lines. Faults: config.invalid, invalid_request. */
export function preseededAnswers(path: string, organization: string | null): InitAnswers {
  const wrong = organization === null ? null : slugProblem(organization)
  if (wrong !== null)
    throw new InputFault(`--organization ${JSON.stringify(organization)} ${wrong}`, {
      param: 'organization',
      remedy: 'name another',
    })
  const text = readTextInput({ path, param: 'preseed', bytesMax: MIB })
  const verdict = parseConfig(text, path)
  if (!verdict.ok) throw new ConfigFault(verdict.problems)
  return { settings: settingsOf(text) ?? [], organization }
}
