// The end of a TLS handshake. Effects: none of its own.

import type { TLSSocket } from 'node:tls'

/** Resolves after the handshake, also with a certificate that is not valid. */
export async function connected(socket: TLSSocket): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    socket.once('secureConnect', resolve)
    socket.once('error', reject)
    socket.once('close', () => reject(new Error('the connection was closed')))
  })
}
