// The body of the upstream's request: the client's own text, with as few changes as possible. Pure.

import { present } from '../../base/assert.ts'
import { type JsonObject, type Member, membersOf, partsOf } from './json-text.ts'
import type { ToolChoice } from './tools.ts'

const TOOL_FIELDS = ['tools', 'tool_choice', 'parallel_tool_calls']

/** `addsUsage`: the upstream is to report usage, though the client did not ask for it. */
type BodyChanges = { readonly addsUsage: boolean; readonly toolChoice: ToolChoice }

/**
 * The checked text as the client wrote it, except for the members that must change: JSON.parse and JSON.stringify would change an integer
 * beyond 2^53, and a seed may be one. `body` is the text's value.
 */
export function upstreamBody(text: string, body: JsonObject, { addsUsage, toolChoice }: BodyChanges): string {
  const dropsTools = toolChoice.kind === 'none' && TOOL_FIELDS.some(name => body[name] !== undefined)
  const changesTools = dropsTools || toolChoice.kind === 'named'
  if (!changesTools && !addsUsage) return text
  if (!changesTools && body.stream_options === undefined) {
    // The body has its model at least, so there is something after the comma.
    return `{${usageOption([])},${text.slice(text.indexOf('{') + 1)}`
  }
  const members = membersOf(text)
  const valueText = (name: string) => members.find(member => member.name === name)?.value ?? ''
  const changed = new Set<string>()
  const added: string[] = []
  if (addsUsage) {
    changed.add('stream_options')
    added.push(usageOption(membersOf(valueText('stream_options'))))
  }
  if (dropsTools) for (const name of TOOL_FIELDS) changed.add(name)
  if (toolChoice.kind === 'named') {
    // Only this tool, and "required": so engines that ignore a name call it too.
    changed.add('tools').add('tool_choice')
    added.push(
      `"tools":[${toolNamed(toolChoice.name, body.tools, partsOf(valueText('tools')))}]`,
      '"tool_choice":"required"',
    )
  }
  const kept = members.filter(member => !changed.has(member.name)).map(member => member.text)
  return `{${[...kept, ...added].join(',')}}`
}

/** `given`: the members of the client's stream_options. */
function usageOption(given: readonly Member[]): string {
  const others = given.filter(member => member.name !== 'include_usage').map(member => member.text)
  return `"stream_options":{${[...others, '"include_usage":true'].join(',')}}`
}

function toolNamed(name: string, tools: unknown, texts: readonly string[]): string {
  const at = Array.isArray(tools) ? tools.findIndex(tool => tool?.function?.name === name) : -1
  return present(texts[at], 'a named tool is among the tools')
}
