// One host of a fleet as a process of its own, to be killed. Arguments: its options as JSON. Prints its address.
// Effects: those of the host; ends with its standard input.

import { writeSync } from 'node:fs'
import { type FleetHostOptions, startFleetHost } from './fleet-host.ts'

const options: FleetHostOptions = JSON.parse(process.argv[2] ?? '')
const host = await startFleetHost({ ...options, log: line => writeSync(2, `${line}\n`) })
writeSync(1, `${JSON.stringify({ url: host.url, hostId: host.hostId })}\n`)
for await (const _ of process.stdin);
process.exit(0)
