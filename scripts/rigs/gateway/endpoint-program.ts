// The endpoint of an instance's gateway as a process over a sandbox: `bun endpoint-program.ts ROOT PORT`.
// Effects.

import { systemClock } from '../../../src/base/clock.ts'
import { createLogger } from '../../../src/base/log.ts'
import { serveEndpoint } from '../../../src/guest/gateway/serve.ts'
import { guestPaths } from '../../../src/guest/paths.ts'

if (import.meta.main) {
  const [root = '', port = ''] = process.argv.slice(2)
  const sink = (line: string) => void process.stderr.write(`${line}\n`)
  const log = createLogger({ level: 'info', sink, nowMs: systemClock.nowMs, name: 'gateway' })
  serveEndpoint({ paths: guestPaths(root), port: Number(port), log })
}
