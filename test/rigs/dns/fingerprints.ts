// SSHFP records of an appliance's own DNS. Effects: a UDP socket.

import { type Answer, decode } from 'dns-packet'
import { query } from './query.ts'

/** Fingerprints by the appliance's own DNS; null: there is no such name. */
export async function fingerprintsOf(hostname: string): Promise<string[] | null> {
  const answered = Promise.withResolvers<Buffer>()
  const socket = await Bun.udpSocket({ socket: { data: (_, bytes) => answered.resolve(bytes) } })
  socket.send(query({ name: hostname, type: 'SSHFP' }), 53, '127.0.0.1')
  const timer = setTimeout(() => answered.reject(new Error('the DNS does not answer')), 60_000)
  try {
    const packet = decode(await answered.promise)
    if (Reflect.get(packet, 'rcode') !== 'NOERROR') return null
    return (packet.answers ?? []).map((record: Answer) =>
      record.type === 'SSHFP' ? `${record.data.algorithm} ${record.data.hash} ${record.data.fingerprint}` : record.type,
    )
  } finally {
    clearTimeout(timer)
    socket.close()
  }
}
