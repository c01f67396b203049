// strongroom-broker: carries the connections of an instance's programs to the destinations that its owner allows.
// Root's process starts it, as a user of its own, once there is a policy or a secret.

import { readFileSync } from 'node:fs'
import { systemClock } from './base/clock.ts'
import { messageOf } from './base/fault.ts'
import { systemRandom } from './base/ids.ts'
import { createAuthority } from './broker/secrets/authority.ts'
import { createTerminator } from './broker/secrets/terminate.ts'
import { brokerSettings, serveBroker } from './broker/serve.ts'

const settings = brokerSettings()
/** Nothing is served under an unknown state: root's process starts the broker again. */
const end = (error: unknown) => {
  settings.log.error('the broker ends', { reason: messageOf(error) })
  process.exit(1)
}

const systemRoots = '/etc/ssl/certs/ca-certificates.crt'
const authority = createAuthority({
  directory: '/run/strongroom/broker',
  ...{ systemRoots, nowMs: systemClock.nowMs, random: systemRandom },
})
const serveTerminated = createTerminator({ authority, roots: readFileSync(systemRoots, 'utf8') })

serveBroker({ ...settings, certify: authority.certify, serveTerminated })
  .then(broker => void process.on('SIGHUP', () => void broker.reload().catch(end)))
  .catch(end)
