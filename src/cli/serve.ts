// strongroom serve: the daemon itself. Logs go to stderr, one JSON object a line; stdout says once that it is ready.

import type { Command } from 'commander'
import { messageOf } from '../base/fault.ts'
import { createLogger } from '../base/log.ts'
import { type Cli, helpText, type Run, runOf } from './cli.ts'
import { EXIT } from './exit.ts'
import { dash, fields } from './render.ts'

export function addServe(program: Command, cli: Cli): void {
  program
    .command('serve')
    .description('run the appliance until SIGTERM or SIGINT; VMs outlive it. SIGHUP reads certificate files again')
    .addHelpText('after', helpText('strongroom serve', 'strongroom serve --config ./dev.toml --state-dir ./state'))
    .action(async (_options: unknown, command: Command) => {
      await serveUntilSignal(runOf(cli, command))
    })
}

async function serveUntilSignal(run: Run): Promise<void> {
  const { io, stateDir } = run
  const { config, file } = run.config()
  const log = createLogger({ level: config.log_level, sink: line => void io.stderr(`${line}\n`), nowMs: Date.now })
  const asked = Promise.withResolvers<string>()
  let signals = 0
  const stopOn = (signal: 'SIGTERM' | 'SIGINT') =>
    io.onSignal(signal, () => {
      signals += 1
      // Asked twice: whoever asks does not want to wait for what is in flight.
      if (signals > 1) process.exit(EXIT.failed)
      asked.resolve(signal)
    })
  // From the beginning, so that a signal during the start ends in an orderly stop too.
  stopOn('SIGTERM')
  stopOn('SIGINT')
  let reload = async () => {}
  io.onSignal('SIGHUP', () => void reload().catch(error => log.error('reload failed', { error })))

  // Here and not at the top: other commands start in a fraction of the time that the whole appliance takes to load.
  const { serve } = await import('../appliance/appliance.ts')
  log.info('starting', { pid: process.pid, config: file, stateDir })
  const serving = await serve(config, { stateDir, log })
  reload = serving.reload
  const ready = {
    instances_url: serving.instancesUrl,
    inference_url: serving.inferenceUrl,
    dns_port: serving.dnsPort,
    admin_socket: serving.adminSocket,
    ca_file: serving.caFile,
  }
  await run.result(
    { ready: true, ...ready },
    fields(
      [
        ['instances API', ready.instances_url],
        ['inference API', dash(ready.inference_url)],
        ['DNS port', dash(ready.dns_port)],
        ['admin socket', ready.admin_socket],
        ['authority', dash(ready.ca_file)],
      ],
      run.paint,
    ),
  )
  log.info('ready', ready)
  log.info('stopping', { signal: await asked.promise })
  try {
    await serving.stop()
    log.info('stopped')
  } catch (error) {
    log.error('stop failed', { error: messageOf(error) })
    run.exitWith(EXIT.failed)
  }
}
