// Defaults of a client's options: ~/.config/strongroom/client.toml. Effects: reads that file. Fault invalid_request.

import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { type Static, Type } from '@sinclair/typebox'
import { messageOf, systemErrorCode } from '../base/fault.ts'
import { checkValue } from '../contract/check.ts'
import { Closed } from '../contract/forms.ts'
import { InputFault } from '../terminal/exit.ts'
import { KIB } from '../terminal/input-file.ts'
import type { Io } from '../terminal/io.ts'

const Text = (description: string) => Type.Optional(Type.String({ minLength: 1, maxLength: 4096, description }))

/** Limit on the keys of witnesses that one client configures. */
export const witnessesMax = 16
/** Highest allowed age of a checkpoint, in days. */
export const logAgeDaysMax = 90

/** Defaults in the order of the help. Each has the name of its option, and the option takes precedence. */
const ClientFile = Closed({
  api: Text('address of service A'),
  builds: Text('address of service C'),
  key_file: Text('file with the API key'),
  ca: Text("PEM of the authority that issued service A's certificate"),
  policy: Text('the policy'),
  image: Text('directory or manifest.json of the image'),
  public_key: Text('your public key'),
  operator_key: Text('file of the operator key, or its digest'),
  gateway_image: Text('directory or manifest.json of the image of the gateway that instances ask'),
  gateway_policy: Text('the policy of the gateway that instances ask'),
  gateway_workload: Text('workload.json of that gateway, or its SHA-256'),
  unattested_gateway: Text('reason for which an unattested gateway is accepted: host, no-worker or elsewhere'),
  allow_outside: Text('upstreams outside of the gateway VM that may get prompts, by commas'),
  allow: Text('settings of the gateway that are accepted, by commas'),
  trust_simulated_root: Text('PEM of a simulated root'),
  log: Text('address of the transparency log: https://HOST:PORT of service A or C'),
  log_key: Text("the log's key"),
  witness: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 4096 }), { minItems: 1, maxItems: witnessesMax }),
  ),
  witness_quorum: Type.Optional(Type.Integer({ minimum: 1, maximum: witnessesMax })),
  log_age_days: Type.Optional(Type.Integer({ minimum: 1, maximum: logAgeDaysMax })),
  in_log: Type.Optional(Type.Boolean()),
  unwitnessed: Type.Optional(Type.Boolean()),
  log_ca: Text("PEM of the authority that issued the certificate of the log's address"),
  log_state: Text('directory where the last checkpoint is remembered'),
})
export type ClientDefaults = Readonly<Static<typeof ClientFile>>

const PATH_FIELDS = [
  'key_file',
  'ca',
  'policy',
  'image',
  'public_key',
  'operator_key',
  'gateway_image',
  'gateway_policy',
  'trust_simulated_root',
  'log_ca',
  'log_state',
] as const

/** The operator key by its SHA-384 is no path. */
const digestPattern = /^[0-9a-fA-F]{96}$/

const bytesMax = 64 * KIB

const fieldNames = Object.keys(ClientFile.properties) as (keyof ClientDefaults)[]

/** For each field type: the value as help prints it, and its description in error messages. */
const FORMS = {
  string: { sample: '"…"', words: 'a text' },
  array: { sample: '["…"]', words: `a list of 1 to ${witnessesMax} texts` },
  integer: { sample: '1', words: 'a whole number' },
  boolean: { sample: 'true', words: 'true or false' },
} as const

export const clientConfigHelp = `
Defaults come from ~/.config/strongroom/client.toml (XDG_CONFIG_HOME), where it is there; an option goes before it:
${fieldNames.map(name => `  ${name} = ${FORMS[ClientFile.properties[name].type].sample}`).join('\n')}
Its paths may begin with ~/, and are else relative to its directory. The file decides what is trusted, so only you may have write access to it.
`

/** Reads the defaults. Returns an empty object if there is no file or no home directory. Rejects with the Fault. */
export async function loadClientDefaults(env: Io['env']): Promise<ClientDefaults> {
  const home = env.HOME
  const directory = clientDirectory(env)
  if (directory === null) return {}
  const path = join(directory, 'client.toml')
  const text = readOwnFile(path, bytesMax)
  if (text === null) return {}
  const given = await parse(text, path)
  const paths = PATH_FIELDS.flatMap(field => {
    const name = given[field]
    if (name === undefined || (field === 'operator_key' && digestPattern.test(name))) return []
    return [[field, pathOf(name, dirname(path), home)] as const]
  })
  return { ...given, ...Object.fromEntries(paths) }
}

/** Returns ~/.config/strongroom; null if there is no home directory. */
export function clientDirectory(env: Io['env']): string | null {
  const home = nonEmpty(env.HOME)
  const base = nonEmpty(env.XDG_CONFIG_HOME) ?? (home === undefined ? undefined : join(home, '.config'))
  return base === undefined ? null : join(base, 'strongroom')
}

async function parse(text: string, path: string): Promise<ClientDefaults> {
  // Load the parser only if needed: few users have such a file, and loading takes several milliseconds.
  const { lineOf, readToml } = await import('../linux/toml.ts')
  const toml = readToml(text)
  if (!toml.ok) throw fault(`${path}:${toml.line}: ${toml.message}`)
  const result = checkValue(ClientFile, toml.table)
  if (result.ok) return result.value
  const [, name = ''] = /^\/([^/:]*)/.exec(result.problem) ?? []
  const known = fieldNames.find(field => field === name)
  const problem =
    known === undefined
      ? `${name}: there is no such field, only ${fieldNames.join(', ')}`
      : `${name}: must be ${wordsOf(ClientFile.properties[known])}`
  throw fault(`${path}:${lineOf(toml.lines, [name])}: ${problem}`)
}

function wordsOf(field: (typeof ClientFile.properties)[keyof ClientDefaults]): string {
  const { words } = FORMS[field.type]
  return field.type === 'integer' ? `${words} from ${field.minimum} to ${field.maximum}` : words
}

/** Reads a file that only its owner can change; null if it does not exist. Fault invalid_request. */
export function readOwnFile(path: string, bytesMax: number): string | null {
  let fd: number
  try {
    fd = openSync(path, 'r')
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return null
    throw fault(`${path}: ${messageOf(error)}`)
  }
  try {
    const { mode, size, uid } = fstatSync(fd)
    if (uid !== 0 && uid !== process.getuid?.()) throw fault(`${path}: it belongs to another user`)
    if ((mode & 0o022) !== 0) throw fault(`${path}: others may write it`, `chmod go-w ${path}`)
    if (size > bytesMax) throw fault(`${path}: ${size} bytes, at most ${bytesMax} are allowed`)
    return readFileSync(fd, 'utf8')
  } catch (error) {
    if (error instanceof InputFault) throw error
    throw fault(`${path}: ${messageOf(error)}`)
  } finally {
    closeSync(fd)
  }
}

function pathOf(name: string, directory: string, home: string | undefined): string {
  return name.startsWith('~/') && home !== undefined ? join(home, name.slice(2)) : resolve(directory, name)
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text
}

function fault(message: string, remedy = 'correct the file, or remove it'): InputFault {
  return new InputFault(message, { remedy })
}
