// The network of a build VM: up during a fetch, then removed permanently. Effects: TCP to the host's proxy, ip(8).

import * as fs from 'node:fs'
import type { Clock } from '../base/clock.ts'
import type { run } from '../linux/command.ts'
import { BuildFailure } from './failure.ts'

const openTimeoutMs = 120_000
const connectTimeoutMs = 3_000
const pollMs = 200
const ipBounds = { timeoutMs: 10_000, outputBytesMax: 65_536 } as const

type ProxyAddress = { readonly host: string; readonly port: number }

/** Parses the host's `http://ADDRESS:PORT`, which becomes part of command lines. Failure `internal`. */
export function proxyAddress(proxy: string): ProxyAddress {
  const [, host, port] = /^http:\/\/([0-9.]{7,15}):([1-9][0-9]{0,4})$/.exec(proxy) ?? []
  if (host === undefined || Number(port) > 65_535)
    throw new BuildFailure('internal', 'fetch.proxy: not http://ADDRESS:PORT')
  return { host, port: Number(port) }
}

/**
 * Waits until the host has opened the network, which it does after reading the request. Failures: `source_unreachable`,
 * `cancelled`.
 */
export async function awaitProxy({ host, port }: ProxyAddress, clock: Clock, signal: AbortSignal): Promise<void> {
  const untilMs = clock.monotonicMs() + openTimeoutMs
  for (;;) {
    signal.throwIfAborted()
    if (await canConnect(host, port)) return
    if (clock.monotonicMs() >= untilMs) {
      throw new BuildFailure(
        'source_unreachable',
        "the service's fetch proxy is not reachable; try again, or ask the operator",
      )
    }
    await clock.sleep(pollMs, signal)
  }
}

async function canConnect(hostname: string, port: number): Promise<boolean> {
  let late: ReturnType<typeof setTimeout> | undefined
  const connecting = Bun.connect({ hostname, port, socket: { data() {}, error() {} } })
  const socket = await Promise.race([
    connecting.catch(() => null),
    new Promise<null>(resolve => {
      late = setTimeout(() => resolve(null), connectTimeoutMs)
    }),
  ])
  clearTimeout(late)
  // Closes a late connection too.
  void connecting.then(socket => socket.end()).catch(() => {})
  return socket !== null
}

/** Takes down every interface except loopback. Faults: host.command_failed, host.command_timeout. */
export async function takeNetworkDown(interfaces: string, runCommand: typeof run): Promise<void> {
  const names = fs.existsSync(interfaces) ? fs.readdirSync(interfaces) : []
  for (const name of names.filter(name => name !== 'lo')) {
    await runCommand(['ip', 'address', 'flush', 'dev', name], ipBounds)
    await runCommand(['ip', 'link', 'set', 'dev', name, 'down'], ipBounds)
  }
}
