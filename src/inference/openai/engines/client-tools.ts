// Tools that a vendor's model recognizes by type and that the client runs. Engines do not support them, so each
// becomes a function with the vendor's arguments. Pure.
//
// Sources: Anthropic's tool reference (bash, text_editor, memory, computer); OpenAI's published API description
// (local_shell, shell, apply_patch, computer, tool_search).

import { isObject, type JsonObject } from '../../json-text.ts'

type ClientTool = { readonly name: unknown; readonly description: string; readonly parameters: JsonObject }

const text = { type: 'string' }
const whole = { type: 'integer' }
const flag = { type: 'boolean' }
const texts = { type: 'array', items: text }
const wholes = { type: 'array', items: whole }
const choice = (...values: readonly string[]) => ({ type: 'string', enum: values })
const object = (required: readonly string[], properties: JsonObject): JsonObject => ({
  type: 'object',
  properties,
  required,
})

/** Commands that the text editor and the memory have in common. */
const FILE_COMMANDS = ['view', 'create', 'str_replace', 'insert']
const FILE_FIELDS = {
  path: text,
  view_range: { ...wholes, description: 'First and last line to view.' },
  file_text: text,
  old_str: text,
  new_str: text,
  insert_line: { ...whole, description: 'Line after which to insert. 0 for the beginning.' },
  insert_text: text,
}
const MEMORY_COMMANDS = choice(...FILE_COMMANDS, 'delete', 'rename')
const EDITOR_COMMANDS = choice(...FILE_COMMANDS)
/** Editors before April 2025 can undo, and insert `new_str`. */
const OLD_EDITOR_COMMANDS = choice(...FILE_COMMANDS, 'undo_edit')

const COMPUTER_ACTIONS = [
  ...['key', 'type', 'mouse_move', 'left_click', 'left_click_drag', 'right_click', 'middle_click', 'double_click'],
  ...['triple_click', 'left_mouse_down', 'left_mouse_up', 'scroll', 'hold_key', 'wait', 'screenshot'],
  ...['cursor_position', 'zoom'],
]
const PREVIEW_ACTIONS = [
  ...['click', 'double_click', 'drag', 'keypress', 'move', 'screenshot', 'scroll', 'type', 'wait'],
]

const bash: ClientTool = {
  name: 'bash',
  description: 'Runs a command in a bash session that keeps its state.',
  parameters: object([], { command: text, restart: { ...flag, description: 'Restarts the session.' } }),
}

const localShell: ClientTool = {
  name: 'local_shell',
  description: "Runs a command on the user's machine.",
  parameters: object(['command'], {
    command: { ...texts, description: 'The program and its arguments.' },
    working_directory: text,
    timeout_ms: whole,
  }),
}

const shell: ClientTool = {
  name: 'shell',
  description: 'Runs shell commands and returns the output of each.',
  parameters: object(['commands'], { commands: texts, timeout_ms: whole, max_output_length: whole }),
}

const applyPatch: ClientTool = {
  name: 'apply_patch',
  description:
    'Creates, updates or deletes one file. `diff` is in the V4A format: lines that begin with a space, "+" or "-", ' +
    'in sections that begin with "@@"; a new file has lines with "+" alone.',
  parameters: object(['type', 'path'], {
    type: choice('create_file', 'update_file', 'delete_file'),
    path: text,
    diff: text,
  }),
}

const toolSearch: ClientTool = {
  name: 'tool_search',
  description: 'Searches for more tools; tools that it finds can be called next.',
  parameters: object(['query'], { query: text, limit: whole }),
}

/**
 * Returns the function that represents the tool; null for a tool that runs on a server, or of an unknown type. The
 * tool's own name, description and parameters take precedence.
 */
export function functionOfClientTool(tool: JsonObject): JsonObject | null {
  const known = typeof tool.type === 'string' ? knownTool(tool.type, tool) : null
  if (known === null) return null
  const { name, description, parameters } = tool
  return {
    name: name ?? known.name,
    description: typeof description === 'string' ? description : known.description,
    parameters: isObject(parameters) ? parameters : known.parameters,
  }
}

function knownTool(type: string, tool: JsonObject): ClientTool | null {
  switch (type) {
    case 'local_shell':
      return localShell
    case 'shell':
      // A tool in a container runs at OpenAI.
      return isObject(tool.environment) && tool.environment.type !== 'local' ? null : shell
    case 'apply_patch':
      return applyPatch
    case 'tool_search':
      return tool.execution === 'client' ? toolSearch : null
    case 'computer':
    case 'computer_use_preview':
      return previewComputer(tool)
    default:
      return datedTool(type, tool)
  }
}

/** Returns the tool for one of Anthropic's types, which end with a date. */
function datedTool(type: string, tool: JsonObject): ClientTool | null {
  const [, kind] = /^(bash|text_editor|memory|computer)_\d{8}$/.exec(type) ?? []
  if (kind === undefined) return null
  if (kind === 'bash') return bash
  if (kind === 'computer') return computer(tool)
  if (kind === 'memory') {
    const parameters = object(['command'], { command: MEMORY_COMMANDS, ...FILE_FIELDS, old_path: text, new_path: text })
    return {
      name: 'memory',
      description: 'Reads and writes files that outlive this session, in /memories.',
      parameters,
    }
  }
  const { insert_text: inserted, ...older } = FILE_FIELDS
  const isOld = type < 'text_editor_20250429'
  return {
    name: isOld ? 'str_replace_editor' : 'str_replace_based_edit_tool',
    description: 'Views, creates and edits files.',
    parameters: object(
      ['command', 'path'],
      isOld
        ? { command: OLD_EDITOR_COMMANDS, ...older }
        : { command: EDITOR_COMMANDS, ...older, insert_text: inserted },
    ),
  }
}

function computer({ display_width_px: width, display_height_px: height }: JsonObject): ClientTool {
  return {
    name: 'computer',
    description: `Uses a screen, mouse and keyboard, and takes screenshots.${sizeOf(width, height)}`,
    parameters: object(['action'], {
      action: choice(...COMPUTER_ACTIONS),
      coordinate: { ...wholes, description: 'x and y in pixels.' },
      start_coordinate: wholes,
      region: { ...wholes, description: 'x and y of two corners to zoom to.' },
      text: { ...text, description: 'Text to type, or keys to press.' },
      scroll_direction: choice('up', 'down', 'left', 'right'),
      scroll_amount: whole,
      duration: { type: 'number', description: 'Seconds.' },
    }),
  }
}

function previewComputer({ display_width: width, display_height: height }: JsonObject): ClientTool {
  const point = { x: whole, y: whole }
  return {
    name: 'computer',
    description: `Uses a screen, mouse and keyboard, and returns a screenshot.${sizeOf(width, height)}`,
    parameters: object(['type'], {
      type: choice(...PREVIEW_ACTIONS),
      ...point,
      button: choice('left', 'right', 'wheel', 'back', 'forward'),
      path: { type: 'array', items: object(['x', 'y'], point) },
      scroll_x: whole,
      scroll_y: whole,
      keys: texts,
      text,
    }),
  }
}

function sizeOf(width: unknown, height: unknown): string {
  return typeof width === 'number' && typeof height === 'number' ? ` The screen has ${width} x ${height} pixels.` : ''
}
