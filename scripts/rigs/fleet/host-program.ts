// One host of a fleet as a process of its own, to be killed. Arguments: its options as JSON. Prints its address. Each
// line of its standard input is by how many milliseconds its wall clock is wrong from then on. Effects: those of the
// host; ends with its standard input.

import { writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { type FleetHostOptions, startFleetHost } from './fleet-host.ts'

const options: FleetHostOptions = JSON.parse(process.argv[2] ?? '')
let wrongMs = 0
const host = await startFleetHost({ ...options, wrongMs: () => wrongMs, log: line => writeSync(2, `${line}\n`) })
writeSync(1, `${JSON.stringify({ url: host.url, hostId: host.hostId })}\n`)
for await (const line of createInterface({ input: process.stdin })) wrongMs = Number(line)
process.exit(0)
