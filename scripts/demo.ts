// Shows the appliance at work, step by step, each with its time: an organization, a key, an instance, SSH, usage, delete.
// Everything runs in a network namespace of its own with the appliance's DNS as resolver, and is removed at the end, also after Ctrl-C.
// Usage: scripts/demo [--relock], with which packages that are gone from the mirror are locked anew.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { relockVariable } from './image/relock-when.ts'
import { runCommand } from './lib/command.ts'
import { buildSteps } from './lib/demo-builds.ts'
import { pinGateway } from './lib/gateway-pins.ts'
import { runSteps, type Steps } from './lib/steps.ts'

const { values: flags } = parseArgs({ options: { relock: { type: 'boolean', default: false } } })
const root = resolve(import.meta.dir, '..')
const executable = join(root, 'dist/strongroom')
const serveArgv = [executable, 'serve', '--json'] as const
const domain = 'agents.demo'
/** Where the DNS says that the services are: an address for documentation (RFC 5737), on the namespace's loopback. */
const publicAddress = '192.0.2.1'
/** Under software emulation on a busy machine, the first start of the packaged agent takes minutes. */
const commandTimeoutMs = 300_000
const buildTimeoutMs = 1_500_000
const readyTimeoutMs = 180_000

type InstanceRecord = { name: string; status: string; hostname: string; failure_code: string | null }

async function demo({ step, note, defer }: Steps): Promise<void> {
  const { image, builderImage, workerImage } = await build({ step, note })

  const directory = mkdtempSync(join(tmpdir(), 'strongroom-demo-'))
  defer('temporary files', () => rmSync(directory, { recursive: true, force: true }))
  await run(['chmod', '0711', directory])
  const inside = await step('a network namespace as this host', () => createNamespace(defer))
  const config = join(directory, 'strongroom.toml')
  const model = join(directory, 'tiny.gguf')
  await step('a tiny model with random weights', () => bun('scripts/build-model.ts', '--out', model).then(() => ''))
  await run(['chmod', '0644', model])
  writeFileSync(config, configText({ image, builderImage, workerImage, model }))
  const env = { STRONGROOM_CONFIG: config, STRONGROOM_STATE_DIR: join(directory, 'state') }
  const strongroom = (...argv: string[]) => run([executable, ...argv], env)

  await step('strongroom serve', () => startDaemon(inside, env, defer))
  note((await strongroom('status')).replaceAll('\n', '\n          '))
  await step('strongroom org create acme', () => strongroom('org', 'create', 'acme').then(() => ''))
  const { key } = await step('strongroom key create acme', async () =>
    JSON.parse(await strongroom('key', 'create', 'acme', '--json')),
  )
  note(`the key begins ${key.slice(0, 12)}; it is shown once`)

  const client = join(directory, 'client')
  await run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', 'demo', '-f', client])
  const api = async (method: string, path: string, ...rest: string[]) => {
    const ca = join(env.STRONGROOM_STATE_DIR, 'ca/ca.pem')
    const url = `https://instances.${domain}:8441${path}`
    const argv = [
      'curl',
      '--silent',
      '--show-error',
      '--cacert',
      ca,
      '--request',
      method,
      '--header',
      `Authorization: Bearer ${key}`,
    ]
    return JSON.parse(await run([...inside, ...argv, ...rest, url])).data
  }
  const publicKey = (await Bun.file(`${client}.pub`).text()).trim()
  const body = [
    '--header',
    'Content-Type: application/json',
    '--header',
    'Idempotency-Key: demo',
    '--data',
    JSON.stringify({ public_key: publicKey }),
  ]
  const startedMs = performance.now()
  const { name, hostname }: InstanceRecord = await step('POST /v1/instances', () =>
    api('POST', '/v1/instances', ...body),
  )
  note(`${name}, to be reached at ${hostname}`)
  await step('provisioning → ready', () => reached(api, name, 'ready'))
  const knownHosts = join(directory, 'known_hosts')
  await step('strongroom verify instance', () =>
    verifyInstance({ inside, strongroom, env, directory }, { hostname, key, image, knownHosts }),
  )
  // The verdict has written the host key; no other is taken.
  const ssh = (command: string) =>
    run([
      ...[...inside, 'ssh', '-i', client, '-o', 'BatchMode=yes', '-o', 'StrictHostKeyChecking=yes'],
      ...['-o', `UserKnownHostsFile=${knownHosts}`, `agent@${hostname}`, command],
    ])
  await step(`ssh agent@${hostname} uname -r`, () => ssh('uname -r').then(firstLine))
  note(`${((performance.now() - startedMs) / 1000).toFixed(1)} s from the POST to the first output over SSH`)
  await step(`ssh agent@${hostname} opencode --version`, () => ssh('opencode --version').then(firstLine))
  await step('inside it, curl the inference gateway with the key of the instance', () => ssh(insideQuestion))
  await gatewaySteps(step, { inside, strongroom, env, directory })
  const { usage } = await step('GET /v1/usage', () => api('GET', '/v1/usage'))
  note(
    `${usage.instance_hours_used} instance-hours, ${usage.egress_bytes} of ${usage.egress_limit_bytes} bytes of egress`,
  )
  await step(`DELETE /v1/instances/${name}`, () => api('DELETE', `/v1/instances/${name}`).then(record => record.status))
  await step('terminating → terminated', () => reached(api, name, 'terminated'))
  await buildSteps(
    { step },
    {
      ...{ executable, directory, key, stateDir: env.STRONGROOM_STATE_DIR, url: `https://builds.${domain}:8443` },
      run: (argv, extra = {}) => run([...inside, ...argv], extra),
    },
  )
  await step('strongroom doctor --leaks', () => strongroom('doctor', '--leaks').then(firstLine))
}

async function build({ step, note }: Pick<Steps, 'step' | 'note'>) {
  const executable = (name: string) => bun(`scripts/build-${name}.ts`).then(() => '')
  await step('guest executable', () => executable('guest'))
  await step("executable of the gateway's VM", () => executable('enclave'))
  const image = await step('guest image', () => buildImage('instance', note))
  const builderImage = await step('builder image', () => buildImage('builder', note))
  const workerImage = await step('inference image', () => buildImage('inference', note))
  await step('appliance executable', () => executable('appliance'))
  return { image, builderImage, workerImage }
}

const question = JSON.stringify({
  model: 'strongroom-tiny',
  messages: [{ role: 'user', content: 'hello' }],
  max_tokens: 8,
})
/** The tiny model writes noise: the demonstration shows that a response comes, and from where. */
const insideQuestion = `curl --silent --fail \
  --header "Authorization: Bearer $(cat ~/.config/opencode/inference.key)" --header 'Content-Type: application/json' \
  --data '${question}' "$OPENAI_BASE_URL/chat/completions" >/dev/null`

type Host = {
  readonly inside: readonly string[]
  readonly strongroom: (...argv: string[]) => Promise<string>
  readonly env: { readonly STRONGROOM_STATE_DIR: string; readonly STRONGROOM_CONFIG: string }
  readonly directory: string
}

type Verified = { readonly hostname: string; readonly key: string; readonly image: string; readonly knownHosts: string }

/** With what the operator publishes: the image's manifest and the operator key. */
async function verifyInstance(
  { inside, strongroom, env, directory }: Host,
  { hostname, key, image, knownHosts }: Verified,
): Promise<string> {
  const file = (name: string, text: string) => {
    const path = join(directory, name)
    writeFileSync(path, text, { mode: 0o600 })
    return path
  }
  const operatorKey = file('operator-key.pub.pem', await strongroom('operator-key'))
  const policy = await strongroom('verify', 'policy-example', '--image', image, '--operator-key', operatorKey)
  const summary = await run([
    ...[...inside, executable, 'verify', 'instance', hostname, '--key-file', file('key.txt', key)],
    ...['--ca', join(env.STRONGROOM_STATE_DIR, 'ca/ca.pem'), '--known-hosts', knownHosts],
    ...['--policy', file('instance-policy.json', policy), '--image', image],
    ...['--trust-simulated-root', join(env.STRONGROOM_STATE_DIR, 'simulator/root.pem')],
  ])
  return summary.trim().replaceAll('\n', '\n          ')
}

async function gatewaySteps(step: Steps['step'], host: Host): Promise<void> {
  const { inside, strongroom, env, directory } = host
  const ca = join(env.STRONGROOM_STATE_DIR, 'ca/ca.pem')
  const url = `https://inference.${domain}:8442`
  const { key } = await step('strongroom gateway key create acme', async () =>
    JSON.parse(await strongroom('gateway', 'key', 'create', 'acme', '--json')),
  )
  const body = join(directory, 'question.json')
  writeFileSync(body, question)
  const curl = [...inside, 'curl', '--silent', '--show-error', '--fail', '--cacert', ca]
  const ask = [
    '--header',
    `Authorization: Bearer ${key}`,
    '--header',
    'Content-Type: application/json',
    '--data',
    `@${body}`,
  ]
  await step('POST /v1/chat/completions', async () => {
    const completion = JSON.parse(await run([...curl, ...ask, `${url}/v1/chat/completions`]))
    return `${completion.usage.prompt_tokens} + ${completion.usage.completion_tokens} tokens, ${JSON.stringify(completion.choices[0].message.content)}`
  })
  const simulated = join(env.STRONGROOM_STATE_DIR, 'simulator/root.pem')
  await step('strongroom verify gateway', async () => {
    // The client has built what it expects to run.
    const pins = await pinGateway({ daemon: serveArgv, configFile: env.STRONGROOM_CONFIG, directory })
    const argv = ['verify', 'gateway', url, '--ca', ca, '--trust-simulated-root', simulated, ...pins]
    const summary = await run([...inside, executable, ...argv])
    return summary.trim().replaceAll('\n', '\n          ')
  })
}

async function createNamespace(defer: Steps['defer']): Promise<string[]> {
  const name = `strongroom-demo-${process.pid}`
  const files = `/etc/netns/${name}`
  defer('network namespace, and all that runs in it', async () => {
    const pids = await run(['ip', 'netns', 'pids', name])
    for (const pid of pids.split('\n').filter(Boolean)) process.kill(Number(pid), 'SIGKILL')
    await run(['ip', 'netns', 'delete', name])
    rmSync(files, { recursive: true, force: true })
  })
  // `ip netns exec` puts these files over those of /etc: inside, names resolve at the appliance.
  mkdirSync(files, { recursive: true })
  writeFileSync(`${files}/resolv.conf`, 'nameserver 127.0.0.1\n')
  await run(['ip', 'netns', 'add', name])
  await run(['ip', '-netns', name, 'link', 'set', 'dev', 'lo', 'up'])
  await run(['ip', '-netns', name, 'address', 'add', `${publicAddress}/32`, 'dev', 'lo'])
  return ['ip', 'netns', 'exec', name]
}

async function startDaemon(
  inside: readonly string[],
  env: Record<string, string>,
  defer: Steps['defer'],
): Promise<string> {
  const log = `${env.STRONGROOM_STATE_DIR}.log`
  const daemon = Bun.spawn([...inside, ...serveArgv], {
    env: { ...process.env, ...env },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: Bun.file(log),
  })
  defer('strongroom serve', async () => {
    daemon.kill('SIGTERM')
    await daemon.exited
  })
  let text = ''
  for await (const chunk of daemon.stdout) {
    text += Buffer.from(chunk).toString()
    if (text.includes('\n}') || text.trimEnd().endsWith('}')) return JSON.parse(text).instances_url
  }
  throw new Error(`the daemon ended with ${await daemon.exited}:\n${await Bun.file(log).text()}`)
}

type Api = (method: string, path: string) => Promise<InstanceRecord>

async function reached(api: Api, name: string, status: string): Promise<string> {
  const deadlineMs = performance.now() + readyTimeoutMs
  while (performance.now() < deadlineMs) {
    const record = await api('GET', `/v1/instances/${name}`)
    if (record.status === status) return ''
    if (record.status === 'failed') throw new Error(`the instance failed: ${record.failure_code}`)
    await Bun.sleep(200)
  }
  throw new Error(`not ${status} within ${readyTimeoutMs} ms`)
}

/** The image of the committed lock. Where its packages are gone the build says so, and locks anew only when asked: measurements change by it. */
async function buildImage(recipe: string, note: Steps['note']): Promise<string> {
  const built = await runCommand([process.execPath, 'scripts/build-image.ts', recipe], {
    cwd: root,
    timeoutMs: buildTimeoutMs,
    ...(flags.relock ? { env: { [relockVariable]: '1' } } : {}),
  })
  if (built.exitCode !== 0) throw new Error(built.output)
  const lines = built.output.trim().split('\n')
  if (lines.some(line => line.includes(relockVariable))) for (const line of lines.slice(0, -1)) note(line)
  return lines.at(-1) ?? ''
}

function bun(...argv: string[]): Promise<string> {
  return run([process.execPath, ...argv], {}, buildTimeoutMs)
}

/** Standard output; throws with everything printed when the command fails. */
async function run(
  argv: readonly string[],
  env: Record<string, string> = {},
  timeoutMs = commandTimeoutMs,
): Promise<string> {
  const child = Bun.spawn([...argv], {
    cwd: root,
    env: { ...process.env, ...env },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: timeoutMs,
  })
  const [stdout, stderr, exitCode] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: exit ${exitCode}\n${stderr}${stdout}`)
  return stdout
}

function firstLine(text: string): string {
  return text.trim().split('\n')[0] ?? ''
}

type Parts = Readonly<Record<'image' | 'builderImage' | 'workerImage' | 'model', string>>

function configText({ image, builderImage, workerImage, model }: Parts): string {
  return `domain = "${domain}"
# Software emulation runs everywhere and needs nothing of the host.
platform = "tcg"

[listen]
instances = "0.0.0.0:8441"
inference = "0.0.0.0:8442"
builds = "0.0.0.0:8443"
dns = "127.0.0.1:53"

[vm]
image_dir = ${JSON.stringify(image)}

[builds]
image_dir = ${JSON.stringify(builderImage)}
memory_mib = 2048
scratch_gib = 4

[network]
sample_interval_ms = 500
# The namespace has no route that an address could be taken from.
public_v4 = "${publicAddress}"

[inference.worker]
model_file = ${JSON.stringify(model)}
image_dir = ${JSON.stringify(workerImage)}

[[inference.prices]]
model = "strongroom-tiny"
prompt_usd_per_million = "1.00"
completion_usd_per_million = "2.00"
`
}

process.exit(await runSteps(demo))
