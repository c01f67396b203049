// The parts of the proof, in the order of a host's life. Each asks for the commands that it needs of the executable.
// Effects: those of `ProvedHost`.

import { copyFileSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Steps } from '../lib/steps.ts'
import { difference, tracesOf } from '../rigs/booted/traces.ts'
import type { Release } from '../rigs/booted/tree.ts'
import { faultFile, laterVersion } from '../rigs/upgrade/later-executable.ts'
import type { ProvedHost, Session } from './host.ts'
import type { ProvedPackages } from './packages.ts'
import { typeInit } from './typed-init.ts'

export type Proof = Pick<Steps, 'step' | 'note'> & {
  readonly host: ProvedHost
  readonly packages: ProvedPackages
  readonly release: Release
  /** A directory of this machine, which the container reads under the same path. */
  readonly directory: string
}

export type Part = {
  readonly name: string
  /** Commands of the executable: `backup`, `org create`. */
  readonly needs: readonly string[]
  readonly run: (proof: Proof) => Promise<void>
}

const initTimeoutMs = 300_000
const commandTimeoutMs = 240_000
const service = 'strongroom.service'

/** Findings of earlier parts that later ones use, by host. */
type ProofState = {
  key: string
  name: string
  session: Session
  bare: ReadonlySet<string>
  /** When the first package was requested; monotonic milliseconds. */
  startedMs: number
}
const kept = new WeakMap<ProvedHost, Partial<ProofState>>()

export const PARTS: readonly Part[] = [
  { name: 'install', needs: ['status', 'doctor'], run: install },
  { name: 'init and its canary', needs: ['init'], run: init },
  { name: 'an instance with an open session', needs: ['key create'], run: openInstance },
  { name: 'upgrade by apt with the session open', needs: [], run: upgradeByApt },
  { name: 'a failed upgrade and its way back', needs: ['upgrade'], run: failedUpgrade },
  {
    name: 'upgrade by strongroom upgrade with the session open',
    needs: ['upgrade', 'backup-key'],
    run: upgradeByCommand,
  },
  { name: 'backup, an empty machine, restore', needs: ['backup', 'restore'], run: backupAndRestore },
  { name: 'removal', needs: ['teardown'], run: removal },
]

async function install({ host, packages, step }: Proof): Promise<void> {
  const startedMs = performance.now()
  await step('apt-get satisfy: what the package depends on', async () => {
    await host.apt('satisfy', await dependsOf(host, packages.first))
    kept.set(host, { bare: await tracesOf(host.debian), startedMs })
  })
  await step('apt-get install strongroom strongroom-images', async () => {
    await host.install(packages.first, packages.images)
    await host.answers()
  })
  expectEqual('restarts', await host.systemctl('show', '--value', '--property=NRestarts', service), '0')
}

async function dependsOf({ debian }: ProvedHost, file: string): Promise<string> {
  return (await debian.exec(['dpkg-deb', '--field', file, 'Depends'])).stdout.trim()
}

/** From the bare Debian to an answered prompt: `apt install` and `strongroom init`, typed once. */
async function init({ host, step, note }: Proof): Promise<void> {
  // A gateway of the daemon reaches the scripted server at this address; one in a VM would need an image of its own.
  writeFileSync(`${host.debian.root}/etc/strongroom/strongroom.toml`, '[inference]\nplacement = "host"\n')
  await using engine = scriptedEngine()
  await step('strongroom init, typed: an instance created, verified, logged into, prompted, deleted', async () => {
    const screen = await typeInit(host, 'acme', [], { timeoutMs: initTimeoutMs, modelUrl: engine.url })
    if (!/PASS {2}prompt /.test(screen)) throw new Error(`no prompt was answered: ${screen}`)
    if (engine.promptCount() !== 2)
      throw new Error(`${engine.promptCount()} prompts instead of the trial's and the instance's`)
    return [...screen.matchAll(/PASS {2}(\S.*?) +([0-9.]+ s) /g)].map(([, name, took]) => `${name} ${took}`).join(', ')
  })
  const tookS = (performance.now() - (kept.get(host)?.startedMs ?? 0)) / 1000
  note(`from a bare Debian to an answered prompt: ${tookS.toFixed(0)} s, by apt-get install and strongroom init`)
  const urls = async () => {
    const { upstreams } = JSON.parse(await succeed(host, ['upstream', 'ls', '--json'])) as {
      upstreams: { name: string; url: string }[]
    }
    return upstreams.map(({ url }) => url).join()
  }
  await step('strongroom upstream rm, then add: the service restarts with each', async () => {
    const before = await pidOf(host)
    await succeed(host, ['upstream', 'rm', '127-0-0-1'], commandTimeoutMs)
    expectEqual('upstreams', await urls(), '')
    await succeed(host, ['upstream', 'add', engine.url], commandTimeoutMs)
    expectEqual('upstreams', await urls(), engine.url)
    if ((await pidOf(host)) === before) throw new Error('the daemon has the former configuration')
    await host.answers()
  })
}

/** An OpenAI-compatible server of this process, in the network namespace that the container shares. */
function scriptedEngine() {
  let prompts = 0
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: async request => {
      if (new URL(request.url).pathname === '/v1/models') {
        return Response.json({ data: [{ id: 'scripted', owned_by: 'vllm', max_model_len: 32_768 }] })
      }
      prompts += 1
      const choice = { index: 0, message: { role: 'assistant', content: 'OK' }, finish_reason: 'stop' }
      const usage = { prompt_tokens: 5, completion_tokens: 1, total_tokens: 6 }
      const { model } = (await request.json()) as { model: string }
      return Response.json({ id: 'c', object: 'chat.completion', created: 1, model, choices: [choice], usage })
    },
  })
  return {
    url: `http://127.0.0.1:${server.port}/v1`,
    promptCount: () => prompts,
    [Symbol.asyncDispose]: () => server.stop(true),
  }
}

async function openInstance({ host, step }: Proof): Promise<void> {
  const key = (await succeed(host, ['key', 'create', 'acme'])).trim()
  const { name, hostname } = await step('create, until ready', () => host.createInstance(key))
  const session = await host.session(hostname)
  await session.echoes('opened')
  kept.set(host, { ...kept.get(host), key, name, session })
}

async function upgradeByApt({ host, packages, step }: Proof): Promise<void> {
  const before = await pidOf(host)
  await step('apt-get install of the next version, until it answers', async () => {
    await host.install(packages.second)
    await host.answers()
  })
  await stillThere(host, 'upgraded')
  if ((await pidOf(host)) === before) throw new Error('the daemon is still the old one')
}

/** The old one serves again, VM and session live on. */
async function failedUpgrade({ host, packages, step }: Proof): Promise<void> {
  const fault = `${host.debian.root}${faultFile}`
  const before = await succeed(host, ['version'])
  const words = ['upgrade', packages.later, '--without-backup', 'the next upgrade makes one', '--json']
  for (const [kind, text] of [
    ['crash', 'a version that ends at its start'],
    ['canary', 'a version whose doctor finds a fault'],
  ] as const) {
    writeFileSync(fault, kind)
    await step(`strongroom upgrade to ${text}, and back`, async () => {
      const { exitCode, stdout, stderr } = await host.strongroom(words, commandTimeoutMs)
      expectEqual(`exit code (${stderr})`, `${exitCode}`, '1')
      expectEqual('outcome', (JSON.parse(stdout) as { outcome: string }).outcome, 'returned')
      await host.answers()
    })
    expectEqual('version', await succeed(host, ['version']), before)
    await stillThere(host, `back from ${kind}`)
  }
  rmSync(fault)
}

async function upgradeByCommand({ host, packages, step }: Proof): Promise<void> {
  const before = await pidOf(host)
  const recipient = (await succeed(host, ['backup-key', '/root/before.txt'])).trim()
  await step('strongroom upgrade to a later version and schema, with its backup', async () => {
    const words = ['--backup', '/root/before.age', '--recipient', recipient]
    await succeed(host, ['upgrade', packages.later, ...words], commandTimeoutMs)
  })
  const { version } = JSON.parse(await succeed(host, ['version', '--json'])) as { version: string }
  expectEqual('version', version, laterVersion)
  if ((await pidOf(host)) === before) throw new Error('the daemon is still the old one')
  await stillThere(host, 'upgraded by command')
}

/** Organizations and keys are those of before, on the same container after a purge. */
async function backupAndRestore({ host, packages, step }: Proof): Promise<void> {
  const { root, scratch } = host.debian
  const recipient = (await succeed(host, ['backup-key', '/root/identity.txt'])).trim()
  await step('strongroom backup', () =>
    succeed(host, ['backup', '--recipient', recipient, '/root/strongroom.age']).then(() => ''),
  )
  await step('the backup timer, enabled; its service run once', async () => {
    writeFileSync(`${root}/etc/strongroom/backup-recipients.txt`, `${recipient}\n`)
    await host.systemctl('enable', '--now', 'strongroom-backup.timer')
    await host.systemctl('start', 'strongroom-backup.service')
    expectEqual('the timer', await host.systemctl('is-active', 'strongroom-backup.timer'), 'active')
    expectEqual('backups that it keeps', `${readdirSync(`${root}/var/backups/strongroom`).length}`, '1')
    await host.debian.exec(['rm', '--recursive', '/var/backups/strongroom', '/etc/strongroom/backup-recipients.txt'])
  })
  const before = await listed(host)
  const { digest } = JSON.parse(await succeed(host, ['operator-key', '--json'])) as { digest: string }
  await kept.get(host)?.session?.end()
  await step('purge, so that the machine is empty', async () => {
    mkdirSync(join(scratch, 'kept'), { recursive: true })
    for (const name of ['strongroom.age', 'identity.txt'])
      copyFileSync(`${root}/root/${name}`, join(scratch, 'kept', name))
    await host.apt('purge', 'strongroom', 'strongroom-images')
  })
  await step('install again, strongroom restore', async () => {
    await host.install(packages.later, packages.images)
    await host.systemctl('stop', service)
    const words = ['restore', '/root/strongroom.age', '--identity-file', '/root/identity.txt', '--keys', 'keep']
    await succeed(host, [...words, '--operator-key', digest, '--set-aside'])
    await host.systemctl('start', service)
    await host.answers()
  })
  expectEqual('organizations and keys', await listed(host), before)
  const { key = '', name } = kept.get(host) ?? {}
  await step('the lost instance has failed, a new one is ready with a key of the backup', async () => {
    const { data } = await host.api('GET', `/v1/instances/${name}`, key)
    expectEqual('the instance of the old machine', `${data.status} ${data.failure_code}`, 'failed host_restored')
    await host.createInstance(key)
  })
}

async function listed(host: ProvedHost): Promise<string> {
  const organizations = JSON.parse(await succeed(host, ['org', 'list', '--json'])) as {
    organizations: { slug: string }[]
  }
  const keys = JSON.parse(await succeed(host, ['key', 'list', 'acme', '--json'])) as { keys: { prefix: string }[] }
  return [...organizations.organizations.map(({ slug }) => slug), ...keys.keys.map(({ prefix }) => prefix)]
    .toSorted()
    .join()
}

async function removal({ host, packages, step }: Proof): Promise<void> {
  const remove = async () => {
    const printed = await host.apt('remove', 'strongroom')
    if (printed.includes('not everything has ended')) throw new Error(printed)
    return ''
  }
  await step('apt-get remove: VMs, taps, tables, forwarding', remove)
  await step('apt-get install again: the service starts, with the state of before', async () => {
    await host.install(packages.later)
    await host.answers()
    if (!(await succeed(host, ['org', 'list'])).includes('acme')) throw new Error('the state of before is gone')
  })
  // Without a VM since the start: no slice has ever been active.
  await step('apt-get remove, on a host without VMs', remove)
  await step('apt-get purge: nothing is left', async () => {
    await host.apt('purge', 'strongroom', 'strongroom-images')
    const { left, missing } = difference(kept.get(host)?.bare ?? new Set(), await tracesOf(host.debian))
    if (left.length + missing.length > 0) throw new Error(`left: ${left.join('\n')}\nmissing: ${missing.join('\n')}`)
  })
}

async function stillThere(host: ProvedHost, line: string): Promise<void> {
  const { session, key = '', name } = kept.get(host) ?? {}
  await session?.echoes(line)
  expectEqual('status of the instance', (await host.api('GET', `/v1/instances/${name}`, key)).data.status, 'ready')
}

async function succeed(host: ProvedHost, words: readonly string[], timeoutMs?: number): Promise<string> {
  const { exitCode, stdout, stderr } = await host.strongroom(words, timeoutMs)
  if (exitCode !== 0) throw new Error(`strongroom ${words.join(' ')}: ${exitCode}: ${stderr}${stdout}`)
  return stdout
}

function pidOf(host: ProvedHost): Promise<string> {
  return host.systemctl('show', '--value', '--property=MainPID', service)
}

function expectEqual(what: string, found: string, expected: string): void {
  if (found !== expected) throw new Error(`${what}: ${found}, not ${expected}`)
}
