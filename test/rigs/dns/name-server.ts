// A resolver in a namespace that answers what a test has told it, the wrong way too. Run by `bun`; a line in sets what
// it says, lines out say what it was asked.

import { type Answer, decode, encode } from 'dns-packet'

/** `odd`: how a datagram of its answer differs from a good one. */
export type Zone = Readonly<
  Record<
    string,
    { readonly rcode?: string; readonly answers?: readonly Answer[]; readonly odd?: 'id' | 'name' | 'none' }
  >
>

/** The program, with a socket on these addresses at port 53. */
export function nameServerCode(addresses: readonly string[]): string {
  return `const { runNameServer } = await import(${JSON.stringify(import.meta.path)}); await runNameServer(${JSON.stringify(addresses)})`
}

export async function runNameServer(addresses: readonly string[]): Promise<void> {
  let zone: Zone = {}
  for (const hostname of addresses) {
    await Bun.udpSocket({
      hostname,
      port: 53,
      socket: {
        error: () => {},
        data: (socket, bytes, port, from) => {
          const asked = decode(bytes)
          const question = asked.questions?.[0]
          if (question === undefined) return
          say(`asked ${question.type} ${question.name} from port ${port}`)
          const found = zone[`${question.type} ${question.name}`] ?? { rcode: 'NXDOMAIN' }
          if (found.odd === 'none') return
          const id = found.odd === 'id' ? ((asked.id ?? 0) + 1) % 65_536 : (asked.id ?? 0)
          const questions = found.odd === 'name' ? [{ ...question, name: `x.${question.name}` }] : [question]
          const codes: Record<string, number> = { NXDOMAIN: 3, SERVFAIL: 2, REFUSED: 5 }
          const flags = 0x0180 | (codes[found.rcode ?? ''] ?? 0)
          socket.send(
            encode({ type: 'response', id, flags, questions, answers: [...(found.answers ?? [])] }),
            port,
            from,
          )
        },
      },
    })
  }
  say('up')
  for await (const line of console) {
    zone = JSON.parse(line)
    say('set')
  }
}

function say(line: string): void {
  process.stdout.write(`${line}\n`)
}
