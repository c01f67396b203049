// The questions of `strongroom init`, and the meaning of an answer. The configuration's schema defines the allowed
// answers and the defaults. No effects.

import { Kind, type TSchema } from '@sinclair/typebox'
import { inlineToml, type Path, type Setting } from '../../config/edit.ts'
import { allowedText, parseConfig } from '../../config/parse.ts'
import { Config } from '../../config/schema.ts'
import { slugProblem } from '../../contract/admin/admin.ts'

export type Question = {
  readonly text: string
  /** Null for the organization, which is not a field of the configuration. */
  readonly field: Path | null
  /** Value of an empty answer. Default: the value in the configuration. */
  readonly fallback?: string
}

/** At most six: everything else has a default that a first host can live with. */
export const QUESTIONS: readonly Question[] = [
  { field: ['domain'], text: 'Domain of the instances, which you delegate to this host' },
  {
    field: ['network', 'public_v4'],
    text: 'IPv4 address at which clients reach this host ("" for that of its default route)',
  },
  { field: ['network', 'pool_v4'], text: 'IPv4 network for instances, which you route to this host' },
  { field: ['listen', 'inference'], text: 'Address of the inference gateway ("" for none)' },
  { field: ['listen', 'builds'], text: 'Address of attested builds ("" for none)' },
  { field: null, text: 'Name of the first organization, a part of its host names' },
]

/** Resolvers for instances of a host without IPv4: those of the default, by IPv6. */
const resolversV6 = ['2620:fe::fe', '2620:fe::9']

/**
 * The questions of a host with these addresses, and settings that follow from them without a question. A host without
 * an IPv4 address is reached by IPv6 alone.
 */
export function questionsFor(own: readonly string[]): {
  readonly questions: readonly Question[]
  readonly implied: readonly Setting[]
} {
  const v6 = own.filter(address => address.includes(':'))
  // The link to the VMs has one of these once the service has started.
  const v4 = own.filter(address => !address.includes(':') && !address.startsWith('169.254.'))
  if (v6.length === 0 || v4.length > 0) return { questions: QUESTIONS, implied: [] }
  const [domain, , , inference, builds, organization] = QUESTIONS as readonly [Question, ...Question[]]
  const publicV6: Question = {
    field: ['network', 'public_v6'],
    text: 'IPv6 address at which clients reach this host, which has no IPv4 address',
    fallback: v6.length === 1 ? (v6[0] ?? '') : '',
  }
  const poolV6: Question = {
    field: ['network', 'pool_v6'],
    text: 'IPv6 network for instances, which you route to this host, such as a /48',
  }
  const onV6 = (question: Question | undefined, fallback: string) =>
    question === undefined ? [] : [{ ...question, fallback }]
  return {
    questions: [
      ...[domain, publicV6, poolV6],
      ...onV6(inference, '[::]:8442'),
      ...(builds === undefined ? [] : [builds]),
      ...(organization === undefined ? [] : [organization]),
    ],
    implied: [
      { path: ['listen', 'instances'], value: '[::]:8441' },
      { path: ['listen', 'dns'], value: '[::]:53' },
      { path: ['network', 'resolvers'], value: resolversV6 },
    ],
  }
}

export type Answer =
  | { readonly ok: true; readonly setting: Setting | null }
  | { readonly ok: false; readonly problem: string }

/** An empty answer takes what stands in brackets; `""` means empty. */
export function readAnswer(question: Question, answer: string): Answer {
  const text = answer === '""' ? '' : answer
  if (question.field === null) {
    const wrong = slugProblem(text)
    return wrong === null ? { ok: true, setting: null } : { ok: false, problem: `it ${wrong}` }
  }
  const setting = { path: question.field, value: text }
  const schema = schemaAt(question.field)
  // Alone in a file of its own: what it contradicts elsewhere is found with the whole file.
  const verdict = parseConfig(documentOf(setting), 'answer')
  const own = verdict.ok ? undefined : verdict.problems.find(({ field }) => field === question.field?.join('.'))
  if (own === undefined) return { ok: true, setting }
  const allowed = own.message.includes('allowed:') ? '' : `; allowed: ${allowedText(schema)}`
  return { ok: false, problem: `${own.message}${allowed}` }
}

/** The line that is printed: the question, and what an empty answer takes. */
export function promptText({ text }: Question, present: string): string {
  return `${text} [${present === '' ? '""' : present}]: `
}

/** The value of a field in a checked configuration, as an answer would be typed. */
export function presentAnswer(config: object, path: Path): string {
  let value: unknown = config
  for (const name of path) value = Reflect.get(Object(value), name)
  return typeof value === 'string' ? value : inlineToml(value)
}

function documentOf({ path, value }: Setting): string {
  const table = path.slice(0, -1)
  return `${table.length === 0 ? '' : `[${table.join('.')}]\n`}${path.at(-1)} = ${inlineToml(value)}\n`
}

function schemaAt(path: Path): TSchema {
  let schema: TSchema = Config
  for (const name of path) schema = schema[Kind] === 'Object' ? schema.properties[name] : schema
  return schema
}
