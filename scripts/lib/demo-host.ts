// The host of the demonstration: a network namespace with the appliance in it, whose DNS is its resolver. Effects: a
// namespace, files in a temporary directory, processes; all of it is removed when the demonstration ends.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { withOwnNames } from './own-names.ts'
import type { Steps } from './steps.ts'

const root = resolve(import.meta.dir, '../..')
/** Under software emulation on a busy machine, the first start of the packaged agent takes minutes. */
/** Limits allow for a slow machine: with a load of 20 on two cores, steps take ten times as long. */
const commandTimeoutMs = 1_800_000
/** Where the DNS says that the services are: an address for documentation (RFC 5737), on the namespace's loopback. */
const publicAddress = '192.0.2.1'

export const executable = join(root, 'dist/strongroom')
export const domain = 'agents.demo'
/** Indent of what stands below a step. */
export const below = '\n          '

export type Images = Readonly<Record<'instance' | 'builder' | 'inference', string>>

export type Host = {
  /** Files of the demonstration's clients; other users may pass through. */
  readonly directory: string
  readonly configFile: string
  readonly stateDir: string
  /** The authority that clients trust. */
  readonly ca: string
  readonly simulatedRoot: string
  /** Runs a command inside the namespace; its standard output. */
  readonly inside: (...argv: string[]) => Promise<string>
  readonly insideWith: (argv: readonly string[], env: Record<string, string>) => Promise<string>
  /** The operator's command line. */
  readonly strongroom: (...argv: string[]) => Promise<string>
  /** Writes a file that its owner alone may read; its path. */
  readonly file: (name: string, text: string) => string
  readonly serve: (defer: Steps['defer']) => Promise<string>
}

export async function createHost({ step, defer }: Pick<Steps, 'step' | 'defer'>, images: Images): Promise<Host> {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-demo-'))
  defer('temporary files', () => rmSync(directory, { recursive: true, force: true }))
  const stateDir = join(directory, 'state')
  await run(['chmod', '0711', directory])
  const name = `strongroom-demo-${process.pid}`
  const enter = await step('a network namespace as this host', () => createNamespace(name, defer))
  const model = join(directory, 'tiny.gguf')
  const build = [process.execPath, 'scripts/build-model.ts', '--out', model]
  await step('a tiny model with random weights', () => run(build).then(() => ''))
  await run(['chmod', '0644', model])
  const configFile = join(directory, 'strongroom.toml')
  writeFileSync(configFile, configText(images, model))
  const env = { STRONGROOM_CONFIG: configFile, STRONGROOM_STATE_DIR: stateDir }
  return {
    directory,
    configFile,
    stateDir,
    ca: join(stateDir, 'ca/ca.pem'),
    simulatedRoot: join(stateDir, 'simulator/root.pem'),
    inside: (...argv) => run([...enter, ...argv]),
    insideWith: (argv, more) => run([...enter, ...argv], more),
    strongroom: (...argv) => run([executable, ...argv], env),
    file: (name, text) => {
      const path = join(directory, name)
      writeFileSync(path, text, { mode: 0o600 })
      return path
    },
    serve: later => startDaemon(words => [...enter, ...withOwnNames(name, [executable, ...words])], env, later),
  }
}

async function createNamespace(name: string, defer: Steps['defer']): Promise<string[]> {
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
  appliance: (words: readonly string[]) => string[],
  env: Record<string, string>,
  defer: Steps['defer'],
): Promise<string> {
  const log = `${env.STRONGROOM_STATE_DIR}.log`
  const daemon = Bun.spawn(appliance(['serve', '--json']), {
    env: { ...process.env, ...env },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: Bun.file(log),
  })
  // VMs outlive the daemon, and none of them is in its namespace.
  defer('strongroom teardown', () => run(appliance(['teardown']), env))
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

/**
 * Runs a command and returns its standard output. Throws when it fails or takes longer than `timeoutMs`; the error says
 * which of the two, how long the command ran, and what it printed.
 */
export async function run(
  argv: readonly string[],
  env: Record<string, string> = {},
  timeoutMs = commandTimeoutMs,
): Promise<string> {
  const startedMs = performance.now()
  const child = Bun.spawn([...argv], {
    cwd: root,
    env: { ...process.env, ...env },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  })
  let isLate = false
  const timer = setTimeout(() => {
    isLate = true
    child.kill('SIGTERM')
  }, timeoutMs)
  const [stdout, stderr, exitCode] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  clearTimeout(timer)
  if (exitCode === 0) return stdout
  const ranS = ((performance.now() - startedMs) / 1000).toFixed(1)
  const end = isLate ? `stopped at its limit of ${timeoutMs / 1000} s` : `exit ${exitCode} after ${ranS} s`
  throw new Error(`${argv.join(' ')}: ${end}\n${stderr}${stdout}`)
}

export function firstLine(text: string): string {
  return text.trim().split('\n')[0] ?? ''
}

function configText({ instance, builder, inference }: Images, model: string): string {
  return `domain = "${domain}"
# Software emulation runs everywhere and needs nothing of the host.
platform = "tcg"

[listen]
instances = "0.0.0.0:8441"
inference = "0.0.0.0:8442"
builds = "0.0.0.0:8443"
dns = "127.0.0.1:53"

[vm]
image_dir = ${JSON.stringify(instance)}
# Ten times the defaults and the most that there may be: this machine may be slow.
boot_timeout_ms = 1800000
claim_timeout_ms = 600000
ssh_timeout_ms = 600000

[builds]
image_dir = ${JSON.stringify(builder)}
memory_mib = 2048
scratch_gib = 4

[network]
sample_interval_ms = 500
# The namespace has no route that an address could be taken from.
public_v4 = "${publicAddress}"

[inference]
# The gateway and its worker, in a measured VM.
placement = "vm"
memory_mib = 2048
first_byte_timeout_ms = 1200000
idle_timeout_ms = 600000

[inference.worker]
start_timeout_ms = 600000
model_file = ${JSON.stringify(model)}
image_dir = ${JSON.stringify(inference)}

[[inference.prices]]
model = "strongroom-tiny"
prompt_usd_per_million = "1.00"
completion_usd_per_million = "2.00"
`
}
