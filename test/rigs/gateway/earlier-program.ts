// A gateway as a program, so that its memory is its own: `bun earlier-program.ts UPSTREAM`. Prints
// its address, and stays.

import { startHostGateway, target } from '../../../scripts/rigs/gateway/server.ts'

const gateway = startHostGateway([target(process.argv[2] ?? '')], {
  limits: { bodyBytesMax: 4_194_304 },
  caller: { tokensPerMinute: 1_000_000_000 },
})
process.stdout.write(`${JSON.stringify({ url: gateway.url })}\n`)
