// A raw connection to a gateway under test: the test decides what is sent and read. Effects: a connection.

import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'

/** CA whose certificates this process trusts beside the system's. */
export function trustedCa(): string {
  return readFileSync(process.env.NODE_EXTRA_CA_CERTS ?? '', 'utf8')
}

/** Over TLS where the gateway is served so. `onOpen` is called when it may be written to. */
export function openSocket(url: string, onOpen: () => void): Socket {
  const { port, protocol, hostname: host } = new URL(url)
  return protocol === 'https:' ? connectTls({ port: Number(port), host }, onOpen) : connect(Number(port), host, onOpen)
}
