// Options of the commands that send requests to service A, and the address, key and authority that they name. Effects:
// reads files. Fault invalid_request.

import type { Command } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { MIB, readTextInput } from '../../terminal/input-file.ts'
import type { Io } from '../../terminal/io.ts'
import { countOption, plainUrl, urlOption } from '../../terminal/options.ts'
import type { ClientDefaults } from '../client-config.ts'
import { type InstanceSource, readApiKey } from './instance-source.ts'
import { timeoutMsDefault } from './saved-document.ts'

export type ServiceOptions = { api?: URL; keyFile?: string; ca?: string; timeoutMs?: number }

const apiPort = 8441

export function addServiceOptions(command: Command, addressDefault = 'api of client.toml'): Command {
  return command
    .option('--api <url>', `service A, https://HOST:PORT; default ${addressDefault}`, urlOption)
    .option('--key-file <file>', 'file with the API key; default: the environment, STRONGROOM_API_KEY')
    .option('--ca <file>', "PEM of the authority that issued service A's certificate; default: the system's")
    .option(
      '--timeout-ms <count>',
      `longest wait for the whole response; default ${timeoutMsDefault}`,
      countOption(100, 600_000),
    )
}

/** Reads address, key and authority. `domain`: that of the instance, below which service A has an address, or null. */
export function readService(
  env: Io['env'],
  options: ServiceOptions,
  defaults: ClientDefaults,
  domain: string | null = null,
): InstanceSource {
  const api =
    serviceUrl(options, defaults) ?? (domain === null ? null : new URL(`https://instances.${domain}:${apiPort}`))
  if (api === null) throw noAppliance()
  const caPath = options.ca ?? defaults.ca
  return {
    api,
    key: readApiKey(options.keyFile, env, defaults.key_file),
    ca: caPath === undefined ? undefined : readTextInput({ path: caPath, param: 'ca', bytesMax: MIB }),
    timeoutMs: options.timeoutMs ?? timeoutMsDefault,
  }
}

/** Returns the address that an option or client.toml names; null if neither does. Fault invalid_request. */
export function serviceUrl(options: ServiceOptions, { api }: ClientDefaults): URL | null {
  if (options.api !== undefined) return options.api
  if (api === undefined) return null
  const url = plainUrl(api)
  if (url !== null) return url
  throw new InputFault(`client.toml: api: ${JSON.stringify(api)} is not https://HOST:PORT`, {
    param: 'api',
    remedy: 'correct the file',
  })
}

function noAppliance(): InputFault {
  return new InputFault('no appliance is named: client.toml has no `api`', {
    param: 'api',
    remedy:
      'run `strongroom client init https://HOST:PORT --files DIRECTORY --key-file FILE`, which checks the files of your operator and writes client.toml (`strongroom help client`)',
  })
}
