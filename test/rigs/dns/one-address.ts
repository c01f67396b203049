// A resolver that gives every name one IPv4 address. Effects: a UDP socket.

import { decode, encode } from 'dns-packet'

export type OneAddressResolver = AsyncDisposable & {
  /** Every question so far: type and name. */
  readonly asked: readonly string[]
}

export async function oneAddressResolver(hostname: string, address: string): Promise<OneAddressResolver> {
  const asked: string[] = []
  const socket = await Bun.udpSocket({
    hostname,
    port: 53,
    socket: {
      data: (server, bytes, port, from) => {
        const { id, questions = [] } = decode(bytes)
        const [question] = questions
        if (question === undefined || id === undefined) return
        asked.push(`${question.type} ${question.name}`)
        const answers =
          question.type === 'A' ? [{ type: 'A', name: question.name, ttl: 300, data: address } as const] : []
        server.send(encode({ type: 'response', id, flags: 0x0180, questions, answers }), port, from)
      },
    },
  })
  return { asked, [Symbol.asyncDispose]: async () => socket.close() }
}
