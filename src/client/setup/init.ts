// strongroom client init: writes client.toml with copies of the operator's files, once they are read and the service
// has answered. Effects: the network, files.

import { existsSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { Option } from 'commander'
import { encodeNoteKey, type NoteKey } from '../../attest/log/note.ts'
import { systemClock } from '../../base/clock.ts'
import { harmless } from '../../base/harmless.ts'
import { type PublishedFiles, publishedPath } from '../../contract/http/published.ts'
import { ensureDir, writeFileAtomic } from '../../linux/files.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { inputFault, MIB, readTextInput } from '../../terminal/input-file.ts'
import { urlOption } from '../../terminal/options.ts'
import { clientDirectory } from '../client-config.ts'
import { type LocalInstance, localNames } from '../instances/names.ts'
import { createService } from '../instances/service.ts'
import { logMemory } from '../log/memory.ts'
import { knownLog, logKeyOption, witnessOption } from '../log/options.ts'
import { unattestedReasons } from '../verify/gateway-options.ts'
import { readApiKey } from '../verify/instance-source.ts'
import { readOwnKeys } from '../verify/keys/own-keys.ts'
import { timeoutMsDefault } from '../verify/saved-document.ts'
import { type OperatorFile, type OperatorOptions, readOperatorFiles } from './operator-files.ts'
import { fetchPublished, requireLogged } from './published.ts'

type InitOptions = OperatorOptions & {
  keyFile?: string
  publicKey?: string
  check: boolean
  replace?: boolean
  trustFirstUse?: boolean
  unattestedGateway?: string
  logKey?: NoteKey
  witness?: readonly NoteKey[]
}

export function addClientInit(client: Command): void {
  client
    .command('init')
    .description('check the files of your operator and your key, and write client.toml')
    .argument('<url>', 'https://HOST:PORT of service A', urlOption)
    .option(
      '--files <directory>',
      'directory with ca.pem, operator-key.pub.pem, instance/manifest.json and inference/manifest.json; without it, and without both --image and --operator-key, files that no option names come from the host',
    )
    .option('--key-file <file>', 'file with the API key; default: the environment, STRONGROOM_API_KEY')
    .option('--public-key <file>', 'your SSH public key; default: the one of ~/.ssh/*.pub and ssh-agent')
    .option('--ca <file>', "PEM of the authority that issued service A's certificate; default: the system's")
    .option('--operator-key <key>', 'file of `strongroom operator-key`, or its digest')
    .option('--image <path>', "directory or manifest.json of the instances' image")
    .option('--gateway-image <path>', "directory or manifest.json of the gateway's image")
    .option(
      '--trust-simulated-root <file>',
      'PEM of a simulated root, for an emulated appliance: nothing is then secret',
    )
    .option(
      '--log-key <key>',
      "key of the host's transparency log: published files must have entries in it",
      logKeyOption,
    )
    .option(
      '--witness <key>',
      'with --log-key: a witness that you trust and the operator does not run; repeatable',
      witnessOption,
    )
    .option('--trust-first-use', 'accept what the host publishes about itself, without a question')
    .addOption(
      new Option(
        '--unattested-gateway <why>',
        'accept an unattested gateway for this reason, as an appliance without a model has: its operator can read the prompts',
      ).choices(unattestedReasons),
    )
    .option('--no-check', 'send no request to the service')
    .option('--replace', 'replace the client.toml that is there; fields that you added to it are lost')
    .addHelpText(
      'after',
      `
The files decide what is trusted from now on: the command copies them to ~/.config/strongroom, and prints a digest of each.
Compare these with your own build, or with a person whom you trust: a host that gave you false files passes its own test.
Without --files the command fetches the files that no option names from URL${publishedPath}, unless --image and
--operator-key are both given. With --log-key and --witness operator key and images must have entries in the transparency
log, which witnesses show to be the same for everyone; launch digests without one are left out. Otherwise you decide, and
about an authority of the host in any case: the command shows the digests and waits for your answer, which
--trust-first-use gives in scripts.
The key stays in its file, which only you may read; client.toml names the file.
${helpText(
  'strongroom client init https://instances.agents.example:8441 --files operator --key-file key.txt',
  'strongroom client init https://instances.agents.example:8441 --key-file key.txt --image build/instance',
)}`,
    )
    .runs(init)
}

async function init(run: Run, api: URL, options: InitOptions): Promise<void> {
  const { env } = run.io
  const directory = clientDirectory(env)
  if (directory === null) {
    throw new InputFault('there is no place for client.toml: HOME is not set', { remedy: 'set HOME' })
  }
  const file = join(directory, 'client.toml')
  if (existsSync(file) && options.replace !== true) {
    throw new InputFault(`${file}: it exists`, { param: 'replace', remedy: 'edit it, or add --replace' })
  }
  const keyFile = options.keyFile === undefined ? undefined : privateFile(resolve(options.keyFile))
  const key = readApiKey(keyFile, env, undefined)
  const publicKey = await ownKey(env, options.publicKey)
  const found = await readOperatorFiles(options, await publishedBy(api, options))
  const pem = found.find(({ field }) => field === 'ca')?.bytes ?? null
  const ca = pem === null ? undefined : Buffer.from(pem).toString()
  const operatorFiles = await trustedFiles(run, { api, ca, options, files: found })
  const count = options.check
    ? (await createService({ api, key, ca, timeoutMs: timeoutMsDefault }).list()).length
    : null
  ensureDir(directory, { mode: 0o700 })
  for (const { value, bytes } of operatorFiles) {
    if (bytes !== null) writeFileAtomic(join(directory, value), bytes, { mode: 0o600 })
  }
  writeFileAtomic(file, tomlOf({ api, keyFile, publicKey, operatorFiles, options }), { mode: 0o600 })
  const document = {
    file,
    api: api.origin,
    instances: count,
    trusted: operatorFiles.map(({ field, value, words }) => ({ field, value, words })),
  }
  await run.result(document, () =>
    textOf({
      isLogged: options.logKey !== undefined,
      isUnattested: options.unattestedGateway !== undefined,
      file,
      api,
      count,
      publicKey,
      operatorFiles,
      earlier: earlierNames(env, operatorFiles),
    }),
  )
}

/** Fetches what the host publishes; null if options and directory name all that is required. */
async function publishedBy(api: URL, options: InitOptions): Promise<PublishedFiles | null> {
  const { files, image, operatorKey, ca } = options
  if (files !== undefined || (image !== undefined && operatorKey !== undefined)) return null
  return await fetchPublished(
    api,
    ca === undefined ? undefined : readTextInput({ path: ca, param: 'ca', bytesMax: MIB }),
  )
}

type Trust = {
  readonly api: URL
  readonly ca: string | undefined
  readonly options: InitOptions
  readonly files: readonly OperatorFile[]
}

/**
 * Requires the transparency log or a person for published files, and returns what is trusted of all files. The log has
 * no authorities, so one of the host needs a person also with it. Faults invalid_request, conflict.
 */
async function trustedFiles(run: Run, { api, ca, options, files }: Trust): Promise<readonly OperatorFile[]> {
  const { logKey, witness = [], trustFirstUse } = options
  if (logKey === undefined && witness.length > 0) throw stray('witness', '--witness requires --log-key')
  if (logKey !== undefined && witness.length === 0)
    throw stray('witness', '--log-key requires --witness: without one its operator can show you a log of your own')
  const published = files.filter(({ isFromHost }) => isFromHost)
  if (logKey === undefined) {
    if (published.length > 0 && trustFirstUse !== true) await confirmed(run, { api, files: published, isLogged: false })
    return files
  }
  const source = { url: new URL('/log', api), ca, timeoutMs: timeoutMsDefault }
  const known = knownLog(logKey, { witness })
  const asked = { source, known, memory: logMemory(run.io.env, undefined), asOf: systemClock.nowMs() }
  const logged = await requireLogged(published, asked)
  const authority = logged.filter(({ field }) => field === 'ca')
  if (authority.length > 0 && trustFirstUse !== true) await confirmed(run, { api, files: authority, isLogged: true })
  return files.map(file => logged.find(({ field }) => field === file.field) ?? file)
}

type Confirming = { readonly api: URL; readonly files: readonly OperatorFile[]; readonly isLogged: boolean }

/** Waits for a person's yes. Fault invalid_request without it. */
async function confirmed(run: Run, { api, files, isLogged }: Confirming): Promise<void> {
  const danger = isLogged
    ? `The transparency log has no authorities: a server between you and the host can publish one, and get your API key.
Compare the digest over another channel.
`
    : `A host that lies publishes false ones, and then passes every check. Compare each digest over another channel: with your
own build, or with a person whom you trust.
`
  const text = `${api.host} publishes about itself:\n${listOf(files)}${danger}`
  if (run.io.ask === undefined || run.json) {
    const remedy = isLogged
      ? 'name the authority by --ca, or add --trust-first-use once you have compared it'
      : 'add --trust-first-use once you have compared them, name the files by --files, or check them by --log-key and --witness'
    throw new InputFault(`${text}There is no terminal to confirm ${isLogged ? 'it' : 'them'}`, {
      param: isLogged ? 'ca' : 'trust-first-use',
      remedy,
    })
  }
  await run.io.stderr(harmless(text))
  const answer = await run.io.ask(`Trust ${isLogged ? 'it' : 'them'} from now on? [y/N] `)
  if (/^\s*y(?:es)?\s*$/i.test(answer ?? '')) return
  throw new InputFault('nothing was written', { param: 'trust-first-use', remedy: 'answer y to trust the files' })
}

function stray(param: string, message: string): InputFault {
  return new InputFault(message, { param, remedy: `name both --log-key and --witness, or neither` })
}

function listOf(files: readonly OperatorFile[]): string {
  return files.map(({ words }) => `  ${words}\n`).join('')
}

/** Refuses a file that others can read. Fault invalid_request. */
function privateFile(path: string): string {
  const mode = statSync(path, { throwIfNoEntry: false })?.mode ?? 0
  if ((mode & 0o077) === 0) return path
  throw inputFault({ path, param: 'key-file' }, 'other users may read it', `chmod 600 ${path}`)
}

/** Returns the key's file; undefined if only ssh-agent has keys, each of which then counts. Fault invalid_request. */
async function ownKey(env: Run['io']['env'], given: string | undefined): Promise<string | undefined> {
  const { lines, sources } = await readOwnKeys(env, given)
  if (given !== undefined) return resolve(given)
  if (lines.length === 0) {
    throw new InputFault('no SSH key was found in ~/.ssh/*.pub and ssh-agent', {
      param: 'public-key',
      remedy: 'make one with `ssh-keygen -t ed25519`, or name yours by --public-key',
    })
  }
  const files = [...sources.values()].filter(source => source.startsWith('/'))
  return files.find(path => path.endsWith('/id_ed25519.pub')) ?? files[0]
}

/** Returns the names of instances that were verified with an image other than the new one. */
function earlierNames(env: Run['io']['env'], files: readonly OperatorFile[]): string[] {
  const storedAs = (field: OperatorFile['field']) => files.find(file => file.field === field)?.value
  const [image, gatewayImage] = [storedAs('image'), storedAs('gateway_image')]
  const isEarlier = (local: LocalInstance) =>
    (local.image !== undefined && local.image !== image) ||
    (local.gatewayImage !== undefined && local.gatewayImage !== gatewayImage)
  return localNames(env)
    .list()
    .flatMap(([name, local]) => (isEarlier(local) ? [name] : []))
}

type Toml = {
  readonly options: InitOptions
  readonly api: URL
  readonly keyFile: string | undefined
  readonly publicKey: string | undefined
  readonly operatorFiles: readonly OperatorFile[]
}

function tomlOf({ options, api, keyFile, publicKey, operatorFiles }: Toml): string {
  const lines = [
    ['api', api.origin],
    ['key_file', keyFile],
    ['public_key', publicKey],
    ...operatorFiles.map(({ field, value }) => [field, value]),
    ['unattested_gateway', options.unattestedGateway],
    ...logLines(api, options),
  ]
  const text = lines
    .map(([name, value]) => (value === undefined ? '' : `${name} = ${JSON.stringify(value)}\n`))
    .join('')
  return `# Written by strongroom client init. Paths are relative to this directory.\n${text}`
}

/** Returns the fields by which each later verdict also requires the entry of its image. */
function logLines(api: URL, { logKey, witness = [] }: InitOptions): (readonly [string, string | string[]])[] {
  if (logKey === undefined) return []
  return [
    ['log', api.origin],
    ['log_key', encodeNoteKey(logKey)],
    ['witness', witness.map(encodeNoteKey)],
  ]
}

type InitResult = {
  readonly isLogged: boolean
  readonly isUnattested: boolean
  readonly file: string
  readonly api: URL
  readonly count: number | null
  readonly publicKey: string | undefined
  readonly operatorFiles: readonly OperatorFile[]
  /** Names of instances that run an earlier image. */
  readonly earlier: readonly string[]
}

/** In the remark about earlier images. No share: names of one user. */
const namesShownMax = 8

function earlierText(names: readonly string[]): string {
  if (names.length === 0) return ''
  const more = names.length > namesShownMax ? ` and ${names.length - namesShownMax} more` : ''
  return `Instances from before stay accepted with the images that they were verified with: ${names.slice(0, namesShownMax).join(', ')}${more}.
A new instance must run the new image. If an earlier image must not be trusted any more, delete them with \`strongroom rm\`.
`
}

function originOf({ isFromHost, field }: OperatorFile, isLogged: boolean): string {
  if (!isFromHost) return ''
  return isLogged && field !== 'ca' ? ', in the transparency log' : ', as the host itself publishes it'
}

function textOf(result: InitResult): string {
  const { isLogged, isUnattested, file, api, count, publicKey, operatorFiles, earlier } = result
  const answer =
    count === null ? 'was not asked' : `accepts your key, which has ${count} instance record${count === 1 ? '' : 's'}`
  const hasGateway = isUnattested || operatorFiles.some(({ field }) => field === 'gateway_image')
  const gateway = hasGateway
    ? ''
    : 'There is no gateway image, so instances with a gateway will not pass: name gateway_image or unattested_gateway.\n'
  return `wrote ${file}; ${api.host} ${answer}
Instances will let in ${publicKey === undefined ? 'a key of ssh-agent' : `the SSH key ${publicKey}`}.
From now on you trust:
${operatorFiles.map(file => `  ${file.words}${originOf(file, isLogged)}\n`).join('')}Compare each with your own build, or with a person whom you trust, not with this host (\`strongroom help client\`).
${gateway}${earlierText(earlier)}Next: strongroom up
`
}
