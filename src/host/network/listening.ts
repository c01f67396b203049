// Lists the listening sockets of this host with ss(8). Effects: runs a command that reads our network namespace.

import { runLines } from '../../linux/command-lines.ts'

export type Listening = {
  readonly protocol: 'tcp' | 'udp'
  /** `*` for all addresses of both families; IPv6 without brackets or zone. */
  readonly host: string
  readonly port: number
  /**
   * Processes that hold the socket. Empty if they are visible only to root, or gone. A child that a process has just
   * forked also holds its sockets.
   */
  readonly holders: readonly { readonly pid: number; readonly name: string }[]
}

/** No share: an answer of the kernel. */
const lineCountMax = 16_384
const lineBytesMax = 4_096

/** Returns the sockets that wait for clients. Faults: host.command_failed, host.command_timeout. */
export async function listListening(timeoutMs: number): Promise<Listening[]> {
  const found: Listening[] = []
  await runLines(['ss', '--no-header', '--listening', '--tcp', '--udp', '--numeric', '--processes'], {
    timeoutMs,
    lineBytesMax,
    onLine: line => {
      const listening = parseListening(line)
      if (listening !== null) found.push(listening)
      return found.length < lineCountMax
    },
  })
  return found
}

/** Parses `tcp LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=1,fd=3))`; null for anything else. */
export function parseListening(line: string): Listening | null {
  const [protocol, , , , local = '', , ...users] = line.trim().split(/\s+/)
  if (protocol !== 'tcp' && protocol !== 'udp') return null
  const found = /^(?:\[([^\]]+)\]|([^:]+)):(\d+)$/.exec(local)
  if (found === null) return null
  const [, v6, v4, port] = found
  const host = (v6 ?? v4 ?? '').replace(/%.*$/, '')
  const holders = [...users.join(' ').matchAll(/"((?:[^"\\]|\\.)*)",pid=(\d+)/g)]
  return {
    protocol,
    host,
    port: Number(port),
    holders: holders.map(([, name = '', pid]) => ({ name, pid: Number(pid) })),
  }
}
