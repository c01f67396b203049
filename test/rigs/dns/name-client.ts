// Asks for names as a guest does, one datagram for each line `TYPE NAME SERVER [COUNT [MS]]`, and says what came back
// within these milliseconds. Run by `bun`
// in a guest's namespace.

import { decode, encode, type RecordType } from 'dns-packet'

export type Told = {
  readonly code: string
  readonly addresses: readonly string[]
  readonly ttl: number
  readonly isBlocked: boolean
}

export const nameClientCode = `const { runNameClient } = await import(${JSON.stringify(import.meta.path)}); await runNameClient()`

export async function runNameClient(): Promise<void> {
  say('up')
  for await (const line of console) {
    const [type = '', name = '', server = '', count = '1', forMs = '20000'] = line.split(' ')
    if (count === '1') say(`told ${JSON.stringify(await ask(type, name, server, Number(forMs)))}`)
    else say(`got ${await flood(type, name, server, Number(count))}`)
  }
}

function query(type: string, name: string, id: number): Buffer {
  return encode({
    type: 'query',
    id,
    flags: 0x0100,
    questions: [{ type: type as RecordType, name }],
    additionals: [
      {
        type: 'OPT',
        name: '.',
        udpPayloadSize: 1232,
        extendedRcode: 0,
        ednsVersion: 0,
        flags: 0,
        flag_do: false,
        options: [],
      },
    ],
  })
}

/** Null for no response in that time. */
async function ask(type: string, name: string, server: string, forMs: number): Promise<Told | null> {
  const got = Promise.withResolvers<Buffer | null>()
  const socket = await Bun.udpSocket({
    hostname: server.includes(':') ? '::' : '0.0.0.0',
    socket: { data: (_, bytes) => got.resolve(bytes), error: () => got.resolve(null) },
  })
  const timer = setTimeout(() => got.resolve(null), forMs)
  socket.send(query(type, name, 7), 53, server)
  const bytes = await got.promise
  clearTimeout(timer)
  socket.close()
  if (bytes === null) return null
  const read = decode(bytes) as ReturnType<typeof decode> & { rcode: string }
  const answers = (read.answers ?? []).flatMap(answer =>
    answer.type === 'A' || answer.type === 'AAAA' ? [answer] : [],
  )
  const options = (read.additionals ?? []).flatMap(answer => (answer.type === 'OPT' ? answer.options : []))
  return {
    code: read.rcode,
    addresses: answers.map(answer => answer.data),
    ttl: Math.max(0, ...answers.map(answer => answer.ttl ?? 0)),
    isBlocked: options.some(
      option => Number(option.code) === 15 && Buffer.from((option as { data: Buffer }).data).readUInt16BE(0) === 15,
    ),
  }
}

/** How many of so many questions at once were answered within a second of the last. */
async function flood(type: string, name: string, server: string, count: number): Promise<number> {
  let got = 0
  const socket = await Bun.udpSocket({
    hostname: server.includes(':') ? '::' : '0.0.0.0',
    socket: {
      data: () => {
        got += 1
      },
      error: () => {},
    },
  })
  for (let n = 0; n < count; n += 1) socket.send(query(type, name.replace('*', String(n)), n), 53, server)
  for (let before = -1; before !== got; ) {
    before = got
    await Bun.sleep(1_000)
  }
  socket.close()
  return got
}

function say(line: string): void {
  process.stdout.write(`${line}\n`)
}
