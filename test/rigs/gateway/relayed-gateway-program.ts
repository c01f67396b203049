// A gateway of two processes as a program: `bun relayed-gateway-program.ts UPSTREAM`. Prints its address and its
// relays, and stays.

import { target } from '../../../scripts/rigs/gateway/server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { startRelayedGateway } from './relayed-gateway.ts'

const gateway = await startRelayedGateway([target(process.argv[2] ?? '')])
await until('both relays listen', 20_000, () => gateway.counts().running === 2)
process.stdout.write(`${JSON.stringify({ url: gateway.url, pids: gateway.pids() })}\n`)
