// The Internet of a test, in a network namespace of its own: a DNS server, and TCP servers that say what reached them.
// `bun world.ts`; prints a line when it serves. A GET of /seen on port 9 of `control` lists all that arrived.

import { createSocket } from 'node:dgram'
import { createServer } from 'node:net'
import { decode, encode } from 'dns-packet'
import { NAMES, PORTS, WORLD } from './world-facts.ts'

const seen: string[] = []

const dns = createSocket('udp4')
dns.on('message', (bytes, from) => {
  const query = decode(bytes)
  const [question] = query.questions ?? []
  if (question === undefined) return
  const name = question.name.toLowerCase()
  seen.push(`dns ${from.address} ${name}`)
  const addresses = NAMES[name] ?? []
  const answers = addresses
    .filter(address => address.includes(':') === (question.type === 'AAAA'))
    .map(data => ({ name: question.name, type: question.type as 'A' | 'AAAA', ttl: 60, data }))
  const flags = addresses.length === 0 ? 3 : 0
  dns.send(
    encode({ type: 'response', id: query.id ?? 0, flags, questions: [question], answers }),
    from.port,
    from.address,
  )
})
await new Promise<void>(resolve => dns.bind(53, WORLD.resolver, () => resolve()))

for (const address of [...WORLD.addresses, WORLD.v6]) {
  for (const port of PORTS) {
    const server = createServer({ allowHalfOpen: true }, socket => {
      socket.on('error', () => {})
      // Port 22 is of a protocol whose server speaks first.
      if (port === 22) socket.write('SSH-2.0-world\r\n')
      socket.on('data', chunk => {
        seen.push(`tcp ${address}:${port} ${chunk.toString('latin1').slice(0, 40)}`)
        const text = `${address}:${port} has ${chunk.length} bytes\n`
        // Programs that speak HTTP get an answer.
        const isHttp = chunk.toString('latin1', 0, 5) === 'GET /'
        socket.write(isHttp ? `HTTP/1.1 200 OK\r\ncontent-length: ${text.length}\r\n\r\n${text}` : text)
      })
      socket.on('end', () => socket.end(`${address}:${port} ends\n`))
    })
    await new Promise<void>(resolve => server.listen(port, address, () => resolve()))
  }
}
Bun.serve({ hostname: WORLD.control, port: 9, fetch: () => Response.json(seen) })
process.stdout.write('world\n')
