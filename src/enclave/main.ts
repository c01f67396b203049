// strongroom-enclave: our one program inside the gateway's VM. argv -> role.

import { messageOf } from '../base/fault.ts'
import { version } from '../base/version.ts'
import { relayCommand, schemaChildCommand } from '../base/work/child-commands.ts'

const usage = `usage: strongroom-enclave init     PID 1 of the VM; started by the initrd
       strongroom-enclave serve    the gateway; started by init
       strongroom-enclave --version
`

/** Each role is loaded on demand, so that init stays small and starts quickly. */
async function main(argv: readonly string[]): Promise<void> {
  const role = argv.length === 1 ? argv[0] : undefined
  switch (role) {
    case 'init': {
      const { initSettings, runInit } = await import('./boot.ts')
      return runInit(initSettings)
    }
    case 'serve': {
      const { enclaveSettings, serveEnclave } = await import('./serve.ts')
      return serveEnclave(version, enclaveSettings)
    }
    case schemaChildCommand: {
      const { runSchemaChild } = await import('../inference/schema-check/program.ts')
      return runSchemaChild()
    }
    case relayCommand: {
      const { runRelay } = await import('../inference/relay/program.ts')
      return runRelay()
    }
    case '--version':
      process.stdout.write(`strongroom-enclave ${version}\n`)
      return
    default:
      process.stderr.write(usage)
      process.exitCode = 2
  }
}

main(process.argv.slice(2)).catch(error => {
  const entry = { level: 'error', unit: 'enclave', message: 'gateway ended', reason: messageOf(error) }
  process.stderr.write(`${JSON.stringify(entry)}\n`)
  process.exit(1)
})
