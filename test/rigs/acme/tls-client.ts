// The certificate that a client gets over TLS. Effects: one connection.

import { connect } from 'node:tls'

export type Shown = {
  /** `DNS:a, IP Address:1.2.3.4`. */
  readonly names: string
  /** Why the given authorities do not vouch for it; null if they do. */
  readonly problem: string | null
  readonly spki: string
  /** Hexadecimal. */
  readonly raw: string
}

/** `name`: by SNI; null sends none. `ca`: PEM of the only authorities that the client trusts. */
export function certificateShown(port: number, name: string | null, ca: string): Promise<Shown> {
  return new Promise((resolve, reject) => {
    const servername = name === null ? {} : { servername: name }
    const socket = connect({ host: '127.0.0.1', port, ca, rejectUnauthorized: false, ...servername }, () => {
      const { raw, subjectaltname = '', pubkey } = socket.getPeerCertificate(true)
      const problem = socket.authorized ? null : String(socket.authorizationError)
      socket.destroy()
      resolve({ names: subjectaltname, problem, spki: String(pubkey?.toString('hex')), raw: raw.toString('hex') })
    })
    socket.on('error', reject)
  })
}
