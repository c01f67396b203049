// strongroom client init: writes client.toml with copies of the operator's files, once they are read and the service
// has answered. Effects: the network, files.

import { existsSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { ensureDir, writeFileAtomic } from '../../linux/files.ts'
import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { inputFault } from '../../terminal/input-file.ts'
import { urlOption } from '../../terminal/options.ts'
import { clientDirectory } from '../client-config.ts'
import { createService } from '../instances/service.ts'
import { readApiKey } from '../verify/instance-source.ts'
import { readOwnKeys } from '../verify/keys/own-keys.ts'
import { timeoutMsDefault } from '../verify/saved-document.ts'
import { type OperatorFile, type OperatorOptions, readOperatorFiles } from './operator-files.ts'

type InitOptions = OperatorOptions & {
  keyFile?: string
  publicKey?: string
  check: boolean
  replace?: boolean
}

export function addClientInit(client: Command): void {
  client
    .command('init')
    .description('check the files of your operator and your key, and write client.toml')
    .argument('<url>', 'https://HOST:PORT of service A', urlOption)
    .option(
      '--files <directory>',
      'directory with ca.pem, operator-key.pub.pem, instance/manifest.json and inference/manifest.json',
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
    .option('--no-check', 'send no request to the service')
    .option('--replace', 'replace the client.toml that is there')
    .addHelpText(
      'after',
      `
The files decide what is trusted from now on: the command copies them to ~/.config/strongroom, and prints a digest of each.
Compare these with your own build, or with a person whom you trust: a host that gave you false files passes its own test.
The key stays in its file, which only you may read; client.toml names the file.
${helpText('strongroom client init https://instances.agents.example:8441 --files operator --key-file key.txt')}`,
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
  const operatorFiles = await readOperatorFiles(options)
  const keyFile = options.keyFile === undefined ? undefined : privateFile(resolve(options.keyFile))
  const key = readApiKey(keyFile, env, undefined)
  const publicKey = await ownKey(env, options.publicKey)
  const pem = operatorFiles.find(({ field }) => field === 'ca')?.bytes ?? null
  const ca = pem === null ? undefined : Buffer.from(pem).toString()
  const count = options.check
    ? (await createService({ api, key, ca, timeoutMs: timeoutMsDefault }).list()).length
    : null
  ensureDir(directory, { mode: 0o700 })
  for (const { value, bytes } of operatorFiles) {
    if (bytes !== null) writeFileAtomic(join(directory, value), bytes, { mode: 0o600 })
  }
  writeFileAtomic(file, tomlOf({ api, keyFile, publicKey, operatorFiles }), { mode: 0o600 })
  const document = {
    file,
    api: api.origin,
    instances: count,
    trusted: operatorFiles.map(({ field, value, words }) => ({ field, value, words })),
  }
  await run.result(document, () => textOf({ file, api, count, publicKey, operatorFiles }))
}

/** A secret that others can read is none. Fault invalid_request. */
function privateFile(path: string): string {
  const mode = statSync(path, { throwIfNoEntry: false })?.mode ?? 0
  if ((mode & 0o077) === 0) return path
  throw inputFault({ path, param: 'key-file' }, 'other users may read it', `chmod 600 ${path}`)
}

/** The file of the key; undefined if only ssh-agent has keys, each of which then counts. Fault invalid_request. */
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

type Toml = {
  readonly api: URL
  readonly keyFile: string | undefined
  readonly publicKey: string | undefined
  readonly operatorFiles: readonly OperatorFile[]
}

function tomlOf({ api, keyFile, publicKey, operatorFiles }: Toml): string {
  const lines = [
    ['api', api.origin],
    ['key_file', keyFile],
    ['public_key', publicKey],
    ...operatorFiles.map(({ field, value }) => [field, value]),
  ]
  const text = lines
    .map(([name, value]) => (value === undefined ? '' : `${name} = ${JSON.stringify(value)}\n`))
    .join('')
  return `# Written by strongroom client init. Paths are relative to this directory.\n${text}`
}

type InitResult = {
  readonly file: string
  readonly api: URL
  readonly count: number | null
  readonly publicKey: string | undefined
  readonly operatorFiles: readonly OperatorFile[]
}

function textOf({ file, api, count, publicKey, operatorFiles }: InitResult): string {
  const answer = count === null ? 'was not asked' : `accepts your key; your organization has ${count} instance records`
  const gateway = operatorFiles.some(({ field }) => field === 'gateway_image')
    ? ''
    : `There is no gateway image, so instances with a gateway will not pass: add it as gateway_image.\n`
  return `wrote ${file}; ${api.host} ${answer}
Instances will let in ${publicKey === undefined ? 'a key of ssh-agent' : `the SSH key ${publicKey}`}.
From now on you trust:
${operatorFiles.map(({ words }) => `  ${words}\n`).join('')}Compare each with your own build, or with a person whom you trust, not with this host (\`strongroom help client\`).
${gateway}Next: strongroom up
`
}
