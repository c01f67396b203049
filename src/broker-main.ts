// strongroom-broker: carries the connections of an instance's programs to the destinations that its owner allows.
// Root's process starts it, as a user of its own, once there is a policy or a secret.

import { messageOf } from './base/fault.ts'
import { brokerSettings, serveBroker } from './broker/serve.ts'

const settings = brokerSettings()
/** Nothing is served under an unknown state: root's process starts the broker again. */
const end = (error: unknown) => {
  settings.log.error('the broker ends', { reason: messageOf(error) })
  process.exit(1)
}

serveBroker({ ...settings, certify: () => {}, serveTerminated: async ({ client }) => void client.destroy() })
  .then(broker => void process.on('SIGHUP', () => void broker.reload().catch(end)))
  .catch(end)
