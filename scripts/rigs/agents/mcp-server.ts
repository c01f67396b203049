// An MCP server over standard input and output, with one tool: `bun mcp-server.ts lookup|weigh|dump`. Effects: its
// answers.

import { createInterface } from 'node:readline'

/** Characters of the text that `dump` returns for the name `whole`, and for all others. */
export const [wholeChars, pieceChars] = [2_000_000, 490_000]

type Tool = { readonly description: string; readonly field: string; readonly answer: (value: string) => string }

const TOOLS: Readonly<Record<string, Tool>> = {
  lookup: { description: 'Looks a word up.', field: 'word', answer: word => `the page of ${word}` },
  weigh: { description: 'Weighs a thing.', field: 'thing', answer: thing => `${thing} weighs 12 grams` },
  dump: {
    description: 'Prints a table.',
    field: 'name',
    answer: name => `${name} `.padEnd(name === 'whole' ? wholeChars : pieceChars, '0123456789 '),
  },
}

type Request = {
  readonly id?: number
  readonly method?: string
  readonly params?: {
    readonly name?: string
    readonly arguments?: Readonly<Record<string, unknown>>
    readonly protocolVersion?: string
  }
}

if (import.meta.main) {
  const name = process.argv[2] ?? ''
  const tool = TOOLS[name]
  if (tool === undefined) throw new Error(`usage: mcp-server.ts ${Object.keys(TOOLS).join('|')}`)
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line) as Request
    // A notification has no answer.
    if (request.id === undefined) continue
    const answer = answerTo(request, name, tool)
    process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id: request.id, ...answer })}\n`)
  }
}

function answerTo({ method, params }: Request, name: string, { description, field, answer }: Tool): object {
  if (method === 'initialize') {
    const protocolVersion = params?.protocolVersion ?? '2025-06-18'
    return { result: { protocolVersion, capabilities: { tools: {} }, serverInfo: { name, version: '1.0.0' } } }
  }
  if (method === 'tools/list') {
    const inputSchema = { type: 'object', properties: { [field]: { type: 'string' } }, required: [field] }
    // Up to so many characters Claude Code sends a result as it is; a longer one it writes to a file.
    const _meta = { 'anthropic/maxResultSizeChars': 500_000 }
    return { result: { tools: [{ name, description, inputSchema, _meta }] } }
  }
  if (method === 'tools/call') {
    return { result: { content: [{ type: 'text', text: answer(String(params?.arguments?.[field])) }] } }
  }
  if (method === 'ping') return { result: {} }
  return { error: { code: -32601, message: `no method ${method}` } }
}
