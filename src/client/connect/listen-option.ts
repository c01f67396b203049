// `--listen`: an address that only programs of this machine can reach. Pure.

import { InvalidArgumentError } from 'commander'
import type { LoopbackAddress } from '../../verifier/fetch/endpoint/listen.ts'

/** The same port as that of the endpoint inside an instance. */
export const defaultListen: LoopbackAddress = { hostname: '127.0.0.1', port: 18_442 }

const portMax = 65_535

/** Parses `PORT`, or `HOST:PORT` with a loopback host. Port 0 selects a free one. Throws InvalidArgumentError. */
export function listenOption(text: string): LoopbackAddress {
  const [, host = '127.0.0.1', digits = ''] = /^(?:(\[[^\]]*\]|[^:]*):)?([0-9]{1,5})$/.exec(text) ?? []
  const port = Number(digits)
  if (digits === '' || port > portMax) {
    throw new InvalidArgumentError(`It must be a loopback address and a port, like ${listenText(defaultListen)}.`)
  }
  const hostname = loopbackOf(host)
  if (hostname !== null) return { hostname, port }
  throw new InvalidArgumentError(
    `${host} is not a loopback address. The endpoint is plain HTTP for programs of this machine: name 127.0.0.1 or [::1].`,
  )
}

function loopbackOf(host: string): string | null {
  if (host === 'localhost') return '127.0.0.1'
  if (host === '[::1]') return '::1'
  const parts = /^127\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(host)?.slice(1)
  return parts?.every(part => Number(part) <= 255) === true ? host : null
}

/** Formats `HOST:PORT` as in a URL. */
export function listenText({ hostname, port }: LoopbackAddress): string {
  return `${hostname.includes(':') ? `[${hostname}]` : hostname}:${port}`
}
