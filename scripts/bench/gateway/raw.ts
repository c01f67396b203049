// A relay of bytes: a connection to the stub for each client's, bytes copied unread. The least that relaying costs on
// this runtime. Run by gateway.bench.ts with the stub's port; writes its own.

import type { Socket } from 'bun'

type End = { other: Socket<End> | null; unsent: Buffer[] }

const [stubPort = ''] = process.argv.slice(2)
const handlers = {
  data: ({ data: { other, unsent } }: Socket<End>, bytes: Buffer) => {
    // Copied where it is kept: Bun may use the buffer again.
    if (other === null) unsent.push(Buffer.from(bytes))
    else send(other, bytes)
  },
  drain: (socket: Socket<End>) => flush(socket),
  close: ({ data }: Socket<End>) => void data.other?.end(),
  error: () => {},
}

const server = Bun.listen<End>({
  hostname: '127.0.0.1',
  port: 0,
  socket: {
    ...handlers,
    open: client => {
      client.data = { other: null, unsent: [] }
      const hostname = '127.0.0.1'
      const port = Number(stubPort)
      const early = client.data.unsent
      const joined = Bun.connect<End>({ hostname, port, data: { other: client, unsent: early }, socket: handlers })
      joined.then(
        upstream => {
          client.data = { other: upstream, unsent: [] }
          flush(upstream)
        },
        () => client.end(),
      )
    },
  },
})
process.stdout.write(`${server.port}\n`)
process.on('SIGTERM', () => process.exit(0))

function send(socket: Socket<End>, bytes: Buffer): void {
  const { unsent } = socket.data
  const sent = unsent.length > 0 ? 0 : Math.max(0, socket.write(bytes))
  if (sent < bytes.length) unsent.push(Buffer.from(bytes.subarray(sent)))
}

function flush(socket: Socket<End>): void {
  for (const bytes of socket.data.unsent.splice(0)) send(socket, bytes)
}
