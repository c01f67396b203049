// strongroom-builder: the program in a VM that builds. Chooses a role by its arguments.

import { messageOf } from '../base/fault.ts'
import { version } from '../base/version.ts'
import { builderSettings, serveBuilder } from './serve.ts'

const usage = `usage: strongroom-builder serve      take one build order over virtio-serial; started by init
       strongroom-builder --version
`

async function main(argv: readonly string[]): Promise<void> {
  if (argv.length === 1 && argv[0] === 'serve') return serveBuilder(version, builderSettings)
  if (argv.length === 1 && argv[0] === '--version') {
    process.stdout.write(`strongroom-builder ${version}\n`)
    return
  }
  process.stderr.write(usage)
  process.exitCode = 2
}

main(process.argv.slice(2)).catch(error => {
  process.stderr.write(
    `${JSON.stringify({ level: 'error', unit: 'builder', message: 'builder ended', reason: messageOf(error) })}\n`,
  )
  process.exit(1)
})
