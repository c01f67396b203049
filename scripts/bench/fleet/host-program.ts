// One host of a fleet under measurement, with scripted VMs. Argument: its options as JSON. Says over IPC where it
// serves, and when it first knew the address of a name it is asked about. Effects: those of the host; ends with its
// parent.

import { startFleetHost } from '../../rigs/fleet/fleet-host.ts'
import { wallMs } from '../gateway/wire.ts'
import type { FromHost, ToHost } from './host-messages.ts'

const lookEveryMs = 2

const host = await startFleetHost(JSON.parse(process.argv[2] ?? ''))
const say = (message: FromHost) => process.send?.(message)
process.on('message', ({ hostname }: ToHost) => {
  const timer = setInterval(() => {
    if (host.addressOf(hostname) === null) return
    clearInterval(timer)
    say({ kind: 'named', hostname, atMs: wallMs() })
  }, lookEveryMs)
})
process.on('disconnect', () => process.exit(0))
say({ kind: 'started', url: host.url, hostId: host.hostId })
