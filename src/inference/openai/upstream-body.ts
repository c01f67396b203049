// The body of the upstream's request: the client's own text, with as few changes as possible. Pure.

import { assert } from '../../base/assert.ts'
import type { Engine } from '../../config/upstream/kinds.ts'
import { isObject, type Member, membersOf, partsOf } from '../json-text.ts'
import { constraintMembers, schemaField } from './engines/constraints.ts'
import { keepsReasoning, messagesWithReasoning, reasoningName } from './engines/reasoning.ts'
import type { ParsedRequest } from './request.ts'
import { cacheSaltField, isCacheKeptApart, isSent } from './request-fields.ts'
import { mustCall, type ToolChoice } from './tools.ts'

export const TOOL_FIELDS = ['tools', 'tool_choice', 'parallel_tool_calls']

export type UpstreamBody = {
  /** JSON. */
  readonly text: string
  /** Fields of the client that are not in it. */
  readonly ignored: readonly string[]
  /** Names of changes for this engine, as in `RequestSource`. */
  readonly changes: readonly string[]
}

export type UpstreamKind = {
  readonly engine: Engine
  /** Separates the prompt caches of keys. Called only for an engine that has a field for it. */
  readonly cacheSalt: () => string
}

/** Members for an engine, so that neither timing nor cached-token counts depend on another client's prompts. */
const ENGINE_MEMBERS: Readonly<Record<Engine, (cacheSalt: () => string) => string[]>> = {
  openai: () => [],
  'llama-server': () => ['"cache_prompt":false'],
  vllm: cacheSalt => [`"cache_salt":${JSON.stringify(cacheSalt())}`],
  sglang: cacheSalt => [`"cache_salt":${JSON.stringify(cacheSalt())}`],
  'text-embeddings-inference': () => [],
}

/** Reports whether the engine has a separate prompt cache for each key, so that counts reveal no other prompts. */
export function hasCacheOfItsOwn(engine: Engine): boolean {
  return engine === 'vllm' || engine === 'sglang'
}

/**
 * Returns the checked text as the client wrote it, except for members that must change, because JSON.parse and
 * JSON.stringify would alter an integer beyond 2^53, such as a seed.
 */
export function upstreamBody({ request, source }: ParsedRequest, { engine, cacheSalt }: UpstreamKind): UpstreamBody {
  const { operation, stream, toolChoice, constraint } = request
  const { text, body } = source
  const dropped = new Set<string>()
  for (const name in body) if (!isSent(name, operation, engine)) dropped.add(name)
  const isSalted = dropped.has(cacheSaltField) && isCacheKeptApart(engine)
  const isIgnored = (name: string) => name !== schemaField && !(isSalted && name === cacheSaltField)
  const ignored = dropped.size === 0 ? NONE : [...dropped].filter(isIgnored)
  const added = ENGINE_MEMBERS[engine](cacheSalt)
  if (constraint !== null) added.push(...constraintMembers(constraint, engine, valueIn(text, schemaField)))
  if (!stream) drop(dropped, body, ['stream_options'])
  else if (!asksUsageAlone(body.stream_options)) {
    drop(dropped, body, ['stream_options'])
    added.push('"stream_options":{"include_usage":true}')
  }
  if (request.model !== body.model) {
    dropped.add('model')
    added.push(`"model":${JSON.stringify(request.model)}`)
  }
  if (toolChoice.kind === 'none') drop(dropped, body, TOOL_FIELDS)
  let changes = NONE
  if (request.reasoning !== null && !keepsReasoning(engine, request.reasoning)) {
    drop(dropped, body, ['messages'])
    const messages = messagesWithReasoning(valueIn(text, 'messages'), engine)
    added.push(`"messages":${messages.text}`)
    if (!messages.isWhole) changes = [reasoningName]
  }
  const offered = offeredTools(toolChoice)
  if (offered !== null) drop(dropped, body, ['tools', 'tool_choice'])
  if (dropped.size === 0) {
    if (added.length === 0) return { text, ignored, changes }
    // The body contains at least its model, so something follows the comma.
    return { text: `{${added.join(',')},${text.slice(text.indexOf('{') + 1)}`, ignored, changes }
  }
  const members = membersOf(text)
  if (offered !== null) {
    // Sends only these tools, and "required" instead of a name, so that engines that ignore names also call it.
    const choice = mustCall(toolChoice) ? 'required' : 'auto'
    added.push(`"tools":[${toolsNamed(offered, body.tools, members)}]`, `"tool_choice":"${choice}"`)
  }
  const kept = members.filter(member => !dropped.has(member.name)).map(member => member.text)
  return { text: `{${[...kept, ...added].join(',')}}`, ignored, changes }
}

const NONE: readonly string[] = []

/** Returns the JSON of a member; empty if there is none. */
function valueIn(text: string, name: string): string {
  return membersOf(text).find(member => member.name === name)?.value ?? ''
}

function drop(dropped: Set<string>, body: object, names: readonly string[]): void {
  for (const name of names) if (Object.hasOwn(body, name)) dropped.add(name)
}

/** Reports whether the client's option equals the gateway's. */
function asksUsageAlone(options: unknown): boolean {
  return isObject(options) && options.include_usage === true && Object.keys(options).length === 1
}

/** Returns the names of the tools that the engine is offered; null for all. */
function offeredTools(choice: ToolChoice): ReadonlySet<string> | null {
  if (choice.kind === 'allowed') return choice.names
  return choice.kind === 'named' ? new Set([choice.name]) : null
}

function toolsNamed(names: ReadonlySet<string>, tools: unknown, members: readonly Member[]): string {
  const texts = partsOf(members.find(member => member.name === 'tools')?.value ?? '')
  assert(Array.isArray(tools) && tools.length === texts.length, 'the text is that of the tools')
  return texts.filter((_, at) => names.has(tools[at]?.function?.name)).join(',')
}
