// strongroom-guest: the one program of ours inside a VM. argv -> role.

import { messageOf } from '../base/fault.ts'
import { version } from '../base/version.ts'
import { guestSettings, serveAgent } from './serve.ts'

const usage = `usage: strongroom-guest agent      serve the host over virtio-serial; started by init
       strongroom-guest --version
`

async function main(argv: readonly string[]): Promise<void> {
  if (argv.length === 1 && argv[0] === 'agent') return serveAgent(version, guestSettings)
  if (argv.length === 1 && argv[0] === '--version') {
    process.stdout.write(`strongroom-guest ${version}\n`)
    return
  }
  process.stderr.write(usage)
  process.exitCode = 2
}

main(process.argv.slice(2)).catch(error => {
  process.stderr.write(
    `${JSON.stringify({ level: 'error', unit: 'agent', message: 'agent ended', reason: messageOf(error) })}\n`,
  )
  process.exit(1)
})
