// strongroom-guest: our program in the VM of an instance. argv -> role.

import { messageOf } from './base/fault.ts'
import { version } from './base/version.ts'
import { guestPaths } from './guest/paths.ts'
import { guestSettings, serveAgent } from './guest/serve.ts'

const usage = `usage: strongroom-guest agent      serve the host over virtio-serial; started by init
       strongroom-guest verify     what this VM can prove about itself; the owner's strongroom-verify
       strongroom-guest gateway    the way of this VM's programs to the inference gateway; started by the agent after the claim
       strongroom-guest gateway-policy show|set|reset   what the gateway has to prove; the owner's strongroom-gateway
       strongroom-guest published  serve published ports by TLS; started by the agent after an order of the owner
       strongroom-guest --version
`

async function main(argv: readonly string[]): Promise<void> {
  if (argv.length === 1 && argv[0] === 'agent') return serveAgent(version, guestSettings)
  if (argv[0] === 'verify') {
    // Loaded only here: the agent starts without it.
    const { verify, verifySettings } = await import('./guest/verify/command.ts')
    process.exitCode = await verify(argv.slice(1), verifySettings(guestPaths('')))
    return
  }
  if (argv.length === 1 && argv[0] === 'gateway') {
    const { serveGateway } = await import('./guest/gateway/serve.ts')
    return serveGateway(guestPaths(''))
  }
  if (argv.join() === 'published') return (await import('./guest/published/serve.ts')).servePublished(guestPaths(''))
  if (argv[0] === 'gateway-policy') {
    const { gatewayCommand, gatewayCommandSettings } = await import('./guest/gateway/command.ts')
    process.exitCode = await gatewayCommand(argv.slice(1), gatewayCommandSettings(guestPaths('')))
    return
  }
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
