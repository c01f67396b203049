// Probes whether the VM's sshd responds and has the attested host key. Effects: one TCP connection per call.
//
// The handshake (RFC 4253 section 8, RFC 8731, RFC 8709) proves the key: the server signs the exchange hash with it.
// The probe stops once the authentication service is accepted: no user name, no credential, no failed attempt in the
// VM's log.

import { Client, type ConnectConfig } from 'ssh2'
import { Fault } from '../../base/fault.ts'

export type SshProbe = {
  readonly address: string
  readonly port: number
  /** The only acceptable key: `ssh-ed25519 AAAA…`. */
  readonly hostKey: string
  readonly timeoutMs: number
}

/** Makes one attempt, up to the accepted authentication service. Faults: ssh.wrong_host_key, ssh.unreachable. */
export async function probeSsh({ address, port, hostKey, timeoutMs }: SshProbe): Promise<void> {
  const expected = parseHostKey(hostKey)
  const where = `ssh ${address}:${port}`
  const client = new Client()
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  let wrongKey = false
  const timer = setTimeout(
    () => reject(new Fault('ssh.unreachable', `${where}: no handshake within ${timeoutMs} ms`)),
    timeoutMs,
  )
  client.on('error', error => {
    const code = wrongKey ? 'ssh.wrong_host_key' : 'ssh.unreachable'
    const message = wrongKey ? 'presents another host key than the attested one' : error.message
    reject(new Fault(code, `${where}: ${message}`, { cause: error }))
  })
  client.on('close', () => reject(new Fault('ssh.unreachable', `${where}: closed during the handshake`)))
  try {
    client.connect({
      ...handshake,
      host: address,
      port,
      username: 'probe',
      // Our own timer decides, so the library's default must not be shorter.
      readyTimeout: timeoutMs * 2,
      hostVerifier: (key: Buffer) => {
        wrongKey = !key.equals(expected)
        return !wrongKey
      },
      // Called when the server has accepted the service. Offering nothing stops the connection there.
      authHandler: () => resolve(),
    })
    await promise
    client.end()
  } finally {
    clearTimeout(timer)
    // After `end` the server closes the connection. This is for a server that does not.
    setTimeout(() => client.destroy(), lingerMs).unref()
  }
}

const lingerMs = 500

/** All are in Bun's native crypto, and the guest's OpenSSH has each of them. */
const handshake = {
  algorithms: {
    serverHostKey: ['ssh-ed25519'],
    kex: ['curve25519-sha256', 'curve25519-sha256@libssh.org'],
    cipher: ['aes128-gcm@openssh.com', 'aes256-gcm@openssh.com', 'aes128-ctr'],
    hmac: ['hmac-sha2-256-etm@openssh.com', 'hmac-sha2-256'],
    compress: ['none'],
  },
} as const satisfies Pick<ConnectConfig, 'algorithms'>

/** string "ssh-ed25519", string 32-byte key (RFC 8709 section 4). */
const blobBytes = 4 + 11 + 4 + 32

function parseHostKey(line: string): Buffer {
  const [type, text, ...rest] = line.split(' ')
  const blob = Buffer.from(text ?? '', 'base64')
  const prefix = Buffer.from('\0\0\0\x0bssh-ed25519\0\0\0\x20', 'latin1')
  const good =
    type === 'ssh-ed25519' &&
    rest.length === 0 &&
    blob.length === blobBytes &&
    blob.subarray(0, prefix.length).equals(prefix)
  if (!good) throw new Fault('ssh.wrong_host_key', 'the attested host key is not of the form `ssh-ed25519 AAAA…`')
  return blob
}
