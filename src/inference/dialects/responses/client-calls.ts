// Calls of the Responses API that have their own item types: calls of tools that the client runs. The engine gets
// such tools as functions (openai/engines/client-tools.ts). Pure.

import { invalidField, isObject, type JsonObject } from '../../json-text.ts'
import type { ClientCallKind } from '../../openai/dialect.ts'

/** A kind of call. `toolTypes`: types of the tools that are called in this form. */
type ClientCall = {
  readonly toolTypes: readonly string[]
  /** Prefix of the ids of such items. */
  readonly tag: string
  readonly fieldsOf: (args: JsonObject) => JsonObject
  /** Field of the item that has the arguments. */
  readonly field: string
}

export const CLIENT_CALLS = {
  tool_search_call: {
    toolTypes: ['tool_search'],
    tag: 'tsc',
    field: 'arguments',
    fieldsOf: args => ({ execution: 'client', arguments: args }),
  },
  local_shell_call: {
    toolTypes: ['local_shell'],
    tag: 'lsh',
    field: 'action',
    // A command that is a single string is for a shell.
    fieldsOf: ({ command, ...rest }) => ({
      action: {
        env: {},
        ...rest,
        type: 'exec',
        command: typeof command === 'string' ? ['sh', '-c', command] : command,
      },
    }),
  },
  shell_call: {
    toolTypes: ['shell'],
    tag: 'sh',
    field: 'action',
    fieldsOf: ({ commands, ...rest }) => ({
      action: {
        timeout_ms: null,
        max_output_length: null,
        ...rest,
        commands: typeof commands === 'string' ? [commands] : commands,
      },
      environment: null,
    }),
  },
  apply_patch_call: {
    toolTypes: ['apply_patch'],
    tag: 'apc',
    field: 'operation',
    fieldsOf: args => ({ operation: args }),
  },
  computer_call: {
    toolTypes: ['computer', 'computer_use_preview'],
    tag: 'cu',
    field: 'action',
    fieldsOf: args => ({ action: args, actions: [args], pending_safety_checks: [] }),
  },
} as const satisfies Record<ClientCallKind, ClientCall>

export function isClientCall(type: unknown): type is ClientCallKind {
  return typeof type === 'string' && Object.hasOwn(CLIENT_CALLS, type)
}

const KINDS = Object.keys(CLIENT_CALLS).filter(isClientCall)

/** Returns the kind of call for a tool type; null for other types. */
export function callKindOf(toolType: unknown): ClientCallKind | null {
  return KINDS.find(kind => CLIENT_CALLS[kind].toolTypes.some(type => type === toolType)) ?? null
}

/** Returns the arguments of a replayed call as JSON. Fault invalid_request. */
export function replayedArguments(kind: ClientCallKind, item: JsonObject, path: string): string {
  const { field } = CLIENT_CALLS[kind]
  const args = item[field] ?? (kind === 'computer_call' && Array.isArray(item.actions) ? item.actions[0] : null)
  if (!isObject(args)) throw invalidField(`${path}.${field}`, 'must be an object.')
  return JSON.stringify(args)
}

/** Returns the output of a tool as a text or as parts of the Responses API. */
export function outputOf(item: JsonObject): unknown {
  const { output } = item
  switch (item.type) {
    case 'shell_call_output':
      return typeof output === 'string' ? output : JSON.stringify(output)
    case 'apply_patch_call_output':
      return [item.status, output].filter(line => typeof line === 'string' && line !== '').join('\n')
    case 'computer_call_output':
      return isObject(output) ? [{ ...output, type: 'input_image' }] : output
    default:
      return output
  }
}
