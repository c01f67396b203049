// The broker as a process for tests, with its files below a directory: `bun broker-program.ts DIRECTORY`. Upstreams of
// secrets prove their names by the roots in DIRECTORY/system.pem.

import { existsSync, readFileSync } from 'node:fs'
import { systemRandom } from '../../../src/base/ids.ts'
import { createAuthority } from '../../../src/broker/secrets/authority.ts'
import { createTerminator } from '../../../src/broker/secrets/terminate.ts'
import { brokerSettings, serveBroker } from '../../../src/broker/serve.ts'

const [directory = ''] = process.argv.slice(2)
const systemRoots = `${directory}/system.pem`
const authority = createAuthority({
  ...{ directory: `${directory}/broker`, systemRoots, nowMs: Date.now, random: systemRandom },
})
const hasRoots = existsSync(systemRoots)
const broker = await serveBroker({
  ...brokerSettings(),
  stateFile: `${directory}/broker.json`,
  logSocket: `${directory}/broker/log.sock`,
  ownerLogSocket: `${directory}/broker/owner-log.sock`,
  inForceFile: `${directory}/broker/in-force`,
  firstBytesTimeoutMs: 2_000,
  certify: hosts => hasRoots && authority.certify(hosts),
  serveTerminated: createTerminator({ authority, roots: hasRoots ? readFileSync(systemRoots, 'utf8') : '' }),
})
process.on('SIGHUP', () => void broker.reload())
