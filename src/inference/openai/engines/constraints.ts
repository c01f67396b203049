// Constraints on the text of an answer. A client may use the fields of any engine; the engine that answers gets its
// own. Pure. Fault invalid_request.
//
// vLLM has `guided_*` until 0.11 and `structured_outputs` since 0.11. Each version ignores the other form without an
// error, so vLLM gets both. SGLang has `json_schema` and `regex`, llama-server `json_schema` and `grammar`. Every
// engine accepts a schema in the `response_format` of a chat, and the gateway checks the answer against it too.

import { resultOr } from '../../../base/result-or.ts'
import type { Engine } from '../../../config/upstream/kinds.ts'
import { invalidField, isObject, type JsonObject, parseJsonText } from '../../json-text.ts'
import { checkSchemaBounds, patternProblem } from '../../schema-check/bounds.ts'
import type { CompletionOperation } from '../../types.ts'
import type { Repairs } from '../repairs.ts'

/** `field`: the field that the client used, for errors. A chat has its schemas in `response_format`. */
export type Constraint =
  /** The schema is in the field `guided_json` of the body. */
  | { readonly kind: 'json'; readonly field: string }
  | { readonly kind: 'regex'; readonly field: string; readonly regex: string }
  | { readonly kind: 'choice'; readonly field: string; readonly choices: readonly string[] }

type Kind = Constraint['kind'] | 'refused'

/** Field of a text completion's body that contains its schema. */
export const schemaField = 'guided_json'
const vllmField = 'structured_outputs'

const FIELD_KINDS: ReadonlyMap<string, Kind> = new Map([
  [schemaField, 'json'],
  ['json_schema', 'json'],
  ['guided_regex', 'regex'],
  ['regex', 'regex'],
  ['guided_choice', 'choice'],
  ['guided_grammar', 'refused'],
  ['grammar', 'refused'],
  ['ebnf', 'refused'],
  ['structural_tag', 'refused'],
])
const MEMBER_KINDS: ReadonlyMap<string, Kind> = new Map([
  ['json', 'json'],
  ['json_object', 'json'],
  ['regex', 'regex'],
  ['choice', 'choice'],
  ['grammar', 'refused'],
  ['structural_tag', 'refused'],
])

/** Names of all fields that constrain an answer, except `response_format`. */
export const CONSTRAINT_FIELDS: readonly string[] = [...FIELD_KINDS.keys(), vllmField]

const choicesMax = 256
const choicesCharsMax = 8_192
const schemaLimits = { depthMax: 64, namesMax: 32_768, valuesMax: 65_536, escapesMax: 65_536 }

type FoundConstraint = { readonly field: string; readonly kind: Kind; readonly value: unknown }

/**
 * Takes the constraint out of the body. Puts the schema of a chat into `response_format` as a strict one, and that of
 * a text completion into `guided_json`. Returns null if nothing is left for `constraintMembers`.
 */
export function takeConstraint(operation: CompletionOperation, body: JsonObject, repairs: Repairs): Constraint | null {
  const found = constraintsIn(operation, body, repairs)
  const [first, second] = found
  if (first === undefined) return null
  const { field, kind, value } = first
  const other = second?.field ?? (field.startsWith('response_format') || !hasFormat(body) ? null : 'response_format')
  if (other !== null) throw invalidField(other, `and ${field} are both in the body: send one of them.`)
  const own = body as Record<string, unknown>
  for (const name of [...CONSTRAINT_FIELDS, ...(field.startsWith('response_format') ? ['response_format'] : [])]) {
    if (!Object.hasOwn(own, name)) continue
    delete own[name]
    repairs.note(name)
  }
  if (kind === 'refused') {
    throw invalidField(field, 'is not supported: a grammar can stop an engine for all clients; send a JSON schema.')
  }
  if (kind === 'regex') return { kind, field, regex: regexAt(value, field) }
  if (kind === 'choice') return { kind, field, choices: choicesAt(value, field) }
  const schema = schemaAt(value, field)
  const [name, written] =
    operation === 'chat'
      ? ['response_format', { type: 'json_schema', json_schema: { name: 'output', strict: true, schema } }]
      : [schemaField, schema]
  own[name] = written
  repairs.note(name)
  return operation === 'chat' ? null : { kind, field }
}

function constraintsIn(operation: CompletionOperation, body: JsonObject, repairs: Repairs): FoundConstraint[] {
  const found: FoundConstraint[] = []
  for (const field in body) {
    const kind = FIELD_KINDS.get(field)
    if (kind !== undefined && isGiven(body[field])) found.push({ field, kind, value: body[field] })
  }
  const { [vllmField]: outputs, response_format: format } = body
  if (isGiven(outputs)) {
    if (!isObject(outputs)) throw invalidField(vllmField, 'must be an object.')
    for (const [name, value] of Object.entries(outputs)) {
      const kind = MEMBER_KINDS.get(name)
      const field = `${vllmField}.${name}`
      if (!isGiven(value) || value === false) continue
      if (kind === undefined) repairs.note(vllmField, field)
      else found.push({ field, kind, value: name === 'json_object' ? { type: 'object' } : value })
    }
  }
  if (!isObject(format)) return found
  const { type, schema, json_schema: named } = format
  if (type === 'json_object' && isGiven(schema)) {
    found.push({ field: 'response_format.schema', kind: 'json', value: schema })
  } else if (operation === 'text_completion' && type === 'json_schema' && isObject(named)) {
    found.push({ field: 'response_format.json_schema.schema', kind: 'json', value: named.schema })
  }
  return found
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null
}

function hasFormat({ response_format: format }: JsonObject): boolean {
  return isObject(format) && format.type !== 'text'
}

function regexAt(value: unknown, field: string): string {
  if (typeof value !== 'string' || value === '') throw invalidField(field, 'must be a regular expression.')
  const problem = patternProblem(value)
  if (problem !== null) throw invalidField(field, problem)
  return value
}

function choicesAt(value: unknown, field: string): readonly string[] {
  const isList = Array.isArray(value) && value.length > 0 && value.length <= choicesMax
  if (isList && value.every(item => typeof item === 'string' && item !== '')) {
    if (value.join('').length <= choicesCharsMax) return value
  }
  throw invalidField(
    field,
    `must be a list of 1 to ${choicesMax} non-empty strings, with at most ${choicesCharsMax} characters together.`,
  )
}

function schemaAt(value: unknown, field: string): JsonObject {
  const schema = typeof value === 'string' ? resultOr(() => parseJsonText(value, schemaLimits), null) : value
  if (!isObject(schema)) throw invalidField(field, 'must be a JSON Schema object, or the JSON of one.')
  checkSchemaBounds(schema, field)
  return schema
}

/** Returns why an engine cannot follow the constraint; null if it can. */
export function constraintProblem({ kind }: Constraint, engine: Engine): string | null {
  if (engine === 'openai') return 'is not supported for this model; send a JSON schema in response_format of a chat.'
  return engine === 'llama-server' && kind === 'regex'
    ? 'is not supported for this model: llama-server takes no regular expressions; send a JSON schema or choices.'
    : null
}

/**
 * Returns the members of the upstream's request. `schemaText`: the JSON of the schema, for kind `json`. The engine must
 * have no `constraintProblem`.
 */
export function constraintMembers(constraint: Constraint, engine: Engine, schemaText: string): readonly string[] {
  if (constraint.kind === 'json') {
    if (engine === 'llama-server') return [`"json_schema":${schemaText}`]
    const named = `{"name":"output","strict":true,"schema":${schemaText}}`
    return [`"response_format":{"type":"json_schema","json_schema":${named}}`]
  }
  if (engine === 'vllm') {
    const value = JSON.stringify(constraint.kind === 'regex' ? constraint.regex : constraint.choices)
    return [`"guided_${constraint.kind}":${value}`, `"structured_outputs":{"${constraint.kind}":${value}}`]
  }
  if (constraint.kind === 'regex') return [`"regex":${JSON.stringify(constraint.regex)}`]
  const [name, text] =
    engine === 'llama-server'
      ? ['grammar', `root ::= ${constraint.choices.map(grammarText).join(' | ')}`]
      : ['regex', `(${constraint.choices.map(regexText).join('|')})`]
  return [`"${name}":${JSON.stringify(text)}`]
}

/** Returns the text as a literal of llama.cpp's grammars (grammars/README.md). */
function grammarText(text: string): string {
  const chars = Array.from(text, char => {
    if (char < ' ') return `\\x${char.charCodeAt(0).toString(16).padStart(2, '0')}`
    return char === '"' || char === '\\' ? `\\${char}` : char
  })
  return `"${chars.join('')}"`
}

function regexText(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`)
}
