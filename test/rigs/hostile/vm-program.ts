// A gateway VM that turns against its host, as a program: `bun hostile-vm-program.ts SOCKET KIND`. `answers`: each
// request gets, at once, the most expensive answer that the wire allows. Every other kind is sent without end, and
// nothing else. Effects: a socket.

import { metricsPieceCharsMax, usageRowsMax } from '../../../src/contract/vm/enclave.ts'
import type { UsageRow } from '../../../src/contract/vm/enclave-responses.ts'

const [path = '', kind = ''] = process.argv.slice(2)

const POURED: Readonly<Record<string, Buffer>> = {
  'lines of 2 MiB': Buffer.from(`{"id":"${'x'.repeat(2_097_152)}"}\n`),
  'invalid UTF-8': Buffer.concat([Buffer.alloc(1_024, 0xff), Buffer.from('\n')]),
  'lines that nest': Buffer.from(`${'['.repeat(131_000)}\n`),
  'lines with many fields': Buffer.from(
    `{"id":"a"${Array.from({ length: 9_000 }, (_, at) => `,"k${at}":0`).join('')}}\n`,
  ),
  'short lines': Buffer.from('x\n'.repeat(32_768)),
  'answers that nobody asked for': Buffer.from('{"id":"a","ok":true}\n'.repeat(4_096)),
}
const poured = POURED[kind]
let count = 0

/** As long as the wire lets each of its fields be. */
function answer(op: string): object {
  count += 1
  const digest = String(count).padStart(64, '0')
  switch (op) {
    case 'next':
      return { next: newsOf(digest) }
    case 'report': {
      const log = Array.from({ length: 32 }, (_, at) => ({ seq: count * 32 + at, line: 'l'.repeat(1_024) }))
      return { report: { metrics: 'x'.repeat(metricsPieceCharsMax), metricsChars: Number.MAX_SAFE_INTEGER, log } }
    }
    case 'control':
      return { revision: 1 }
    default:
      return {}
  }
}

function newsOf(digest: string): object {
  const row: UsageRow = {
    id: 'i'.repeat(64),
    atMs: 1,
    organizationId: 'o1',
    keyPrefix: 'p'.repeat(32),
    instanceId: 'i'.repeat(64),
    model: 'm'.repeat(256),
    upstream: 'u'.repeat(64),
    promptTokens: count,
    completionTokens: count,
    tokensSource: 'reported',
    outcome: 'completed',
  }
  const status = {
    state: 'ready',
    workload: digest,
    revision: 1,
    running: count,
    usageWaiting: count,
    problem: 'p'.repeat(512),
    receiptKey: String(count).padStart(43, 'A'),
  }
  const wants = Array.from({ length: 16 }, (_, at) => ({
    id: `w${count}-${at}`,
    kind: 'evidence',
    reportData: 'A'.repeat(86),
    report: null,
  }))
  const rows = Array(usageRowsMax).fill(row)
  const usage = { from: 0, rows, before: '0'.repeat(64), digest, signature: 'A'.repeat(86) }
  return { status, wants, usage }
}

type Peer = Bun.Socket<{ rest: string; waiting: Buffer }>

/** Bytes that the host has not read wait; when it has read all, more follow. */
function say(socket: Peer, bytes: Uint8Array): void {
  const { data } = socket
  data.waiting = Buffer.concat([data.waiting, bytes])
  for (;;) {
    data.waiting = data.waiting.subarray(Math.max(0, socket.write(data.waiting)))
    if (data.waiting.length > 0 || poured === undefined) return
    data.waiting = poured
  }
}

Bun.listen<Peer['data']>({
  unix: path,
  socket: {
    open: socket => {
      socket.data = { rest: '', waiting: Buffer.alloc(0) }
    },
    data: (socket, bytes) => {
      if (poured !== undefined) return say(socket, poured)
      const lines = (socket.data.rest + bytes.toString()).split('\n')
      socket.data.rest = lines.pop() ?? ''
      for (const line of lines.filter(Boolean)) {
        const { id, op } = JSON.parse(line) as { id: string; op: string }
        say(socket, Buffer.from(`${JSON.stringify({ id, ok: true, ...answer(op) })}\n`))
      }
    },
    drain: socket => say(socket, new Uint8Array(0)),
    error: () => {},
  },
})
