// strongroom serve: the daemon. Logs on stderr, a JSON object a line; one document on stdout when it is ready.

import { messageOf } from '../base/fault.ts'
import { createLogger } from '../base/log.ts'
import { starterVariable } from '../base/work/child-commands.ts'
import { compileAsUsual } from '../base/work/compiler.ts'
import { isJournal, stderrFd } from '../linux/journal.ts'
import { ignoreProxyVariables } from '../linux/net/outgoing.ts'
import { EXIT } from '../terminal/exit.ts'
import { dash, fields } from '../terminal/render.ts'
import type { Command, Run } from './operator-run.ts'

export function addServe(program: Command): void {
  program
    .command('serve')
    .description(
      'run the appliance until SIGTERM or SIGINT; VMs keep running afterwards. SIGHUP reloads the certificate files',
    )
    .option('--trial', 'accept no change until the trial of an upgrade has passed; used by `strongroom upgrade`')
    .examples('strongroom serve', 'strongroom serve --config ./dev.toml --state-dir ./state')
    .runs(serveUntilSignal)
}

async function serveUntilSignal(run: Run, { trial: onTrial = false }: { trial?: boolean }): Promise<void> {
  compileAsUsual()
  const { io, stateDir } = run
  const { config, file, warnings } = await run.config()
  const log = createLogger({
    level: config.log_level,
    sink: line => void io.stderr(`${line}\n`),
    nowMs: Date.now,
    priorities: isJournal(stderrFd, io.env),
  })
  const stopAsked = Promise.withResolvers<string>()
  let signals = 0
  const stopOn = (signal: 'SIGTERM' | 'SIGINT') =>
    io.onSignal(signal, () => {
      signals += 1
      // A second signal: do not wait for work in progress.
      if (signals > 1) process.exit(EXIT.failed)
      stopAsked.resolve(signal)
    })
  // Set first, so that a signal during the start also ends in an orderly stop.
  stopOn('SIGTERM')
  stopOn('SIGINT')
  let reload = async () => {}
  io.onSignal('SIGHUP', () => void reload().catch(error => log.error('reload failed', { error })))

  // Imported here and not at the top: the appliance takes long to load, and no other command needs it.
  const { serve } = await import('../appliance/appliance.ts')
  for (const { line, field, message } of warnings) log.warn('configuration', { file, line, field, message })
  const ignored = ignoreProxyVariables()
  if (ignored.length > 0)
    log.warn('proxy variables of the environment have no effect: set network.proxy', { variables: ignored })
  log.info('starting', { pid: process.pid, config: file, stateDir })
  const starterSocket = io.env[starterVariable] ?? null
  const serving = await serve(config, { stateDir, log, onTrial, starterSocket })
  reload = serving.reload
  const ready = {
    instances_url: serving.instancesUrl,
    inference_url: serving.inferenceUrl,
    console_url: serving.consoleUrl,
    dns_port: serving.dnsPort,
    admin_socket: serving.adminSocket,
    ca_file: serving.caFile,
  }
  await run.result(
    { ready: true, ...ready },
    fields(run.paint, [
      ['instances API', ready.instances_url],
      ['inference API', dash(ready.inference_url)],
      ['console', dash(ready.console_url)],
      ['DNS port', dash(ready.dns_port)],
      ['admin socket', ready.admin_socket],
      ['authority', dash(ready.ca_file)],
    ]),
  )
  log.info('ready', ready)
  log.info('stopping', { signal: await stopAsked.promise })
  try {
    await serving.stop()
    log.info('stopped')
  } catch (error) {
    log.error('stop failed', { error: messageOf(error) })
    run.exitWith(EXIT.failed)
  }
}
