// Hosts of a fleet under measurement, with scripted VMs. Argument: their options as JSON. Sends over IPC where they
// serve, and when a host has the record that a message names. Effects: those of the hosts; ends with its parent.

import { setInstanceEgress } from '../../../src/store/directory/instance.query.ts'
import { type FleetHost, startFleetHost } from '../../rigs/fleet/fleet-host.ts'
import { wallMs } from '../gateway/wire.ts'
import type { FromHost, HostProgramOptions, ToHost } from './host-messages.ts'

const lookEveryMs = 2
const sampleEveryMs = 1_000
const bytesEach = 100_000

const { hosts: options }: HostProgramOptions = JSON.parse(process.argv[2] ?? '')
const hosts: FleetHost[] = []
for (const each of options) hosts.push(await startFleetHost(each))

const say = (message: FromHost) => process.send?.(message)
const once = (is: () => boolean, message: (atMs: number) => FromHost) => {
  const timer = setInterval(() => {
    if (!is()) return
    clearInterval(timer)
    say(message(wallMs()))
  }, lookEveryMs)
}
process.on('message', (asked: ToHost) => {
  if (asked.kind === 'send') {
    for (const each of hosts) send(each)
    return
  }
  const host = hosts[asked.host]
  if (host === undefined) return
  if (asked.kind === 'version') {
    const { version } = asked
    once(
      () => host.fleet.view().version >= version,
      atMs => ({ kind: 'reached', version, atMs }),
    )
  } else {
    const { hostname } = asked
    once(
      () => host.addressOf(hostname) !== null,
      atMs => ({ kind: 'named', hostname, atMs }),
    )
  }
})
process.on('disconnect', () => process.exit(0))
say({ kind: 'started', hosts: hosts.map(({ url, hostId }) => ({ url, hostId })) })

function send({ store, hostId }: FleetHost): void {
  const { directory } = store
  const ready = directory.db.all<{ id: string }>(
    `SELECT id FROM instances WHERE host_id = '${hostId}' AND status = 'ready' ORDER BY id`,
  )
  const senders = ready.slice(0, ready.length / 2)
  let egressBytes = 0
  setInterval(() => {
    egressBytes += bytesEach
    const sample = { egressBytes, egressObservedAtMs: Date.now(), egressBlockAppliedAtMs: null }
    directory.transact(tx =>
      setInstanceEgress(
        tx,
        senders.map(({ id }) => ({ id, ...sample })),
      ),
    )
  }, sampleEveryMs)
}
