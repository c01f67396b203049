// `tools` and `tool_choice` of the Responses API as those of a chat request. Pure. Fault invalid_request.
//
// In the chat every tool is a function. A custom tool takes a text as its only argument, a tool of
// a namespace has the namespace before its name, and a tool that the client runs has the vendor's
// arguments. `ToolForms` keeps the form in which the client gets calls of such functions. Tools of
// types that run at OpenAI are left out and named.

import { invalidField, isObject, type JsonObject } from '../../json-text.ts'
import type { CallForm, FieldNames, ToolForms } from '../../openai/dialect.ts'
import { functionOfClientTool } from '../../openai/engines/client-tools.ts'
import { functionOfCustomTool } from '../../openai/engines/custom-tools.ts'
import { toolNameCharsMax, toolsMax } from '../../openai/tools.ts'
import { ignoreOthers, isAbsent, presentOf, textAt } from '../fields.ts'
import { callKindOf } from './client-calls.ts'

const FUNCTION_FIELDS: ReadonlySet<string> = new Set(['type', 'name', 'description', 'parameters', 'strict'])
const CUSTOM_FIELDS: ReadonlySet<string> = new Set(['type', 'name', 'description'])
const NAMESPACE_FIELDS: ReadonlySet<string> = new Set(['type', 'name', 'description', 'tools'])

type Notes = { readonly names: FieldNames | null; readonly ignored: Set<string> }

/** Tools that an item of the input adds, and the item's path. */
export type LoadedTools = { readonly tools: unknown; readonly path: string }

/** `isLoaded`: an item has added the tool, and may repeat a tool of the request. */
type ToolContext = { readonly path: string; readonly namespace: string | null; readonly isLoaded: boolean }

/** The tools of one request under the names that the engine has for them. */
export class Tools {
  readonly functions: JsonObject[] = []
  readonly #forms = new Map<string, CallForm>()
  /** The engine's names, by the client's name of the tool. */
  readonly #names = new Map<string, string>()
  readonly #taken = new Set<string>()
  readonly #notes: Notes

  constructor(tools: unknown, loaded: readonly LoadedTools[], notes: Notes) {
    this.#notes = notes
    for (const { tools: more, path } of [{ tools, path: '' }, ...loaded]) {
      if (!Array.isArray(more)) continue
      const isLoaded = path !== ''
      const prefix = isLoaded ? `${path}.tools` : 'tools'
      for (const [at, tool] of more.entries()) this.#add(tool, { path: `${prefix}[${at}]`, namespace: null, isLoaded })
    }
  }

  get forms(): ToolForms {
    return this.#forms
  }

  /** Returns the engine's name of a tool. */
  nameOf(namespace: string | null, name: string): string {
    return this.#names.get(keyOf(namespace, name)) ?? flatName(namespace, name)
  }

  /** Returns the engine's name of the tool that items of this type call; null if the request has none. */
  nameOfType(type: unknown): string | null {
    const kind = callKindOf(type)
    return kind === null ? null : (this.#names.get(keyOf(null, kind)) ?? null)
  }

  namesIn(namespace: string): string[] {
    return [...this.#forms].flatMap(([name, form]) =>
      (form.kind === 'call' || form.kind === 'custom') && form.namespace === namespace ? [name] : [],
    )
  }

  #add(tool: unknown, place: ToolContext): void {
    const { path, namespace } = place
    if (!isObject(tool)) throw invalidField(path, 'must be an object.')
    const { type } = tool
    if (typeof type !== 'string') throw invalidField(`${path}.type`, 'must be a string, such as function.')
    if (type === 'function') this.#addFunction(tool, place)
    else if (type === 'custom') this.#addCustom(tool, place)
    else if (type === 'namespace' && namespace === null) this.#addNamespace(tool, place)
    else this.#addClientTool(tool, type, place)
  }

  #addFunction(tool: JsonObject, place: ToolContext): void {
    ignoreOthers(tool, 'tools', { known: FUNCTION_FIELDS, ignored: this.#notes.ignored })
    const { name, description, parameters, strict } = tool
    const { namespace } = place
    const form = namespace === null ? null : ({ kind: 'call', namespace, name: String(name) } as const)
    this.#push({ name, description, parameters, strict }, form, place)
  }

  #addCustom(tool: JsonObject, place: ToolContext): void {
    ignoreOthers(tool, 'tools', { known: CUSTOM_FIELDS, ignored: this.#notes.ignored })
    const form = { kind: 'custom', namespace: place.namespace, name: String(tool.name) } as const
    this.#push(functionOfCustomTool(tool), form, place)
  }

  #addNamespace(tool: JsonObject, { path, isLoaded }: ToolContext): void {
    ignoreOthers(tool, 'tools', { known: NAMESPACE_FIELDS, ignored: this.#notes.ignored })
    const namespace = textAt(tool.name, `${path}.name`)
    if (!Array.isArray(tool.tools)) throw invalidField(`${path}.tools`, 'must be a list of tools.')
    for (const [at, inner] of tool.tools.entries())
      this.#add(inner, { path: `${path}.tools[${at}]`, namespace, isLoaded })
  }

  #addClientTool(tool: JsonObject, type: string, place: ToolContext): void {
    const kind = callKindOf(type)
    const found = kind === null ? null : functionOfClientTool(tool)
    if (kind === null || found === null) this.#notes.ignored.add(`tools.${type}`)
    else if (!this.#names.has(keyOf(null, kind))) this.#push({ ...found }, { kind }, place)
  }

  /** Adds a tool. `form`: null for a plain function. */
  #push(given: JsonObject, form: CallForm | null, { path, namespace, isLoaded }: ToolContext): void {
    const called = String(given.name)
    const key =
      form === null || form.kind === 'call' || form.kind === 'custom'
        ? keyOf(namespace, called)
        : keyOf(null, form.kind)
    if (this.#names.has(key) && (isLoaded || namespace !== null)) return
    if (this.functions.length === toolsMax)
      throw invalidField('tools', `must be at most ${toolsMax}, those in namespaces and of searches included.`)
    // A plain function keeps its name, so that the parser of chats checks it.
    const name =
      form === null || (form.kind === 'custom' && namespace === null)
        ? given.name
        : this.#freeName(flatName(namespace, called))
    const at = `tools[${this.functions.length}]`
    this.#notes.names?.set(at, path)
    this.#notes.names?.set(`${at}.function`, path)
    this.functions.push({ type: 'function', function: presentOf({ ...given, name }) })
    if (typeof name !== 'string') return
    this.#taken.add(name)
    this.#names.set(key, name)
    if (form !== null) this.#forms.set(name, form)
  }

  /** Returns a name that is not taken; two namespaces may lead to the same one. At most `toolsMax` names are taken. */
  #freeName(name: string): string {
    let free = name
    for (let n = 2; this.#taken.has(free); n += 1) free = `${name.slice(0, toolNameCharsMax - 5)}_${n}`
    return free
  }
}

function keyOf(namespace: string | null, name: string): string {
  return JSON.stringify([namespace, name])
}

/** Returns the name that Codex used for tools of MCP servers before it had namespaces. */
function flatName(namespace: string | null, name: string): string {
  if (namespace === null) return name
  return `${namespace}${namespace.endsWith('__') ? '' : '__'}${name}`.slice(0, toolNameCharsMax)
}

export function choiceOf(choice: unknown, names: Tools): unknown {
  if (!isObject(choice)) return choice
  if (choice.type !== 'allowed_tools') return namedChoice(choice, 'tool_choice', names)
  const { mode, tools } = choice
  if (!Array.isArray(tools)) throw invalidField('tool_choice.tools', 'must be a list of tools.')
  const named = tools.flatMap((tool, at) => {
    if (!isObject(tool) || tool.type !== 'namespace') return [namedChoice(tool, `tool_choice.tools[${at}]`, names)]
    return names.namesIn(textAt(tool.name, `tool_choice.tools[${at}].name`)).map(choiceNamed)
  })
  return { type: 'allowed_tools', allowed_tools: { mode, tools: named } }
}

function namedChoice(choice: unknown, path: string, names: Tools): JsonObject {
  const type = isObject(choice) ? choice.type : null
  if (isObject(choice) && (type === 'function' || type === 'custom')) {
    const { name } = choice
    return choiceNamed(typeof name === 'string' ? names.nameOf(namespaceAt(choice, path), name) : name)
  }
  const name = names.nameOfType(type)
  if (name !== null) return choiceNamed(name)
  throw invalidField(
    `${path}.type`,
    'must be function, custom or a tool that your client runs: this gateway has no built-in tools.',
  )
}

function choiceNamed(name: unknown): JsonObject {
  return { type: 'function', function: { name } }
}

/** Returns the namespace of a call or a choice; null if there is none. */
export function namespaceAt({ namespace }: JsonObject, path: string): string | null {
  return isAbsent(namespace) ? null : textAt(namespace, `${path}.namespace`)
}
