// The broker as a process for tests, with its files below a directory: `bun broker-program.ts DIRECTORY`. No secrets.

import { brokerSettings, serveBroker } from '../../../src/broker/serve.ts'

const [directory = ''] = process.argv.slice(2)
const broker = await serveBroker({
  ...brokerSettings(),
  stateFile: `${directory}/broker.json`,
  logSocket: `${directory}/broker/log.sock`,
  inForceFile: `${directory}/broker/in-force`,
  firstBytesTimeoutMs: 2_000,
  certify: () => {},
  serveTerminated: async ({ client, first }) => void client.end(`terminated ${first.length > 0}`),
})
process.on('SIGHUP', () => void broker.reload())
