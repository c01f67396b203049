// The life of a host: install, init, upgrades under an open session, a failed one, backup to an empty machine,
// downgrade, removal. Effects: those of `ProvedHost`.

import { copyFileSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { AdminCommand } from '../../src/contract/admin/events.ts'
import { difference, tracesOf } from '../rigs/booted/traces.ts'
import { faultFile, laterVersion } from '../rigs/upgrade/later-executable.ts'
import { scriptedEngine } from './engine.ts'
import type { ProvedHost } from './host.ts'
import {
  awaited,
  commandTimeoutMs,
  configFile,
  documentOf,
  expectEqual,
  expectText,
  initTimeoutMs,
  type Part,
  type Proof,
  pidOf,
  service,
  stateOf,
  stillThere,
  succeed,
} from './proof.ts'
import { typeInit } from './typed-init.ts'

export const FIRST_HOUR: readonly Part[] = [
  { row: '5', name: 'apt install', isGround: true, run: install },
  { row: '4', name: 'init and its canary', isGround: true, run: init },
  { row: '5', name: 'nothing untrue on a fresh host', run: freshHost },
  { row: '4', name: 'an instance with an open session', isGround: true, run: openInstance },
]

export const LATER_DAYS: readonly Part[] = [
  { row: '8', name: 'upgrade by apt with the session open', run: upgradeByApt },
  { row: '8', name: 'a failed upgrade and its way back', run: failedUpgrade },
  { row: '8', name: 'upgrade by strongroom upgrade with the session open', run: upgradeByCommand },
  { row: '8', name: 'downgrade, which keeps the events since the upgrade', run: downgrade },
  { row: '8', name: 'backup, an empty machine, restore', run: backupAndRestore },
]

export const REMOVAL: readonly Part[] = [
  { row: '5', name: 'remove, install, remove, purge', isGround: true, run: removal },
]

async function install({ host, packages, step, state }: Proof): Promise<undefined> {
  state.startedMs = performance.now()
  await step('apt-get --simulate install: no desktop', async () => {
    const planned = await host.apt('--simulate', 'install', packages.first)
    if (/^Inst (lib)?gtk|^Inst qemu-system-gui /m.test(planned)) throw new Error(`it brings a desktop: ${planned}`)
    return `${planned.match(/^Inst /gm)?.length ?? 0} packages`
  })
  await step('apt-get satisfy: what the package depends on', async () => {
    await host.apt('satisfy', await dependsOf(host, packages.first))
    state.bare = await tracesOf(host.debian)
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
async function init({ host, step, note, state, defer }: Proof): Promise<undefined> {
  // A gateway of the daemon reaches the scripted server at this address; one in a VM would need an image of its own.
  // Files of the container lie in memory, where two disks of the default size find no room.
  writeFileSync(`${host.debian.root}${configFile}`, '[inference]\nplacement = "host"\n[vm]\nscratch_gib = 2\n')
  const engine = scriptedEngine()
  defer('the model server', () => engine[Symbol.asyncDispose]())
  state.engine = engine
  await step('strongroom init, typed: an instance created, verified, logged into, prompted, deleted', async () => {
    const screen = await typeInit(host, 'acme', [], { timeoutMs: initTimeoutMs, modelUrl: engine.url })
    if (!/PASS {2}prompt /.test(screen)) throw new Error(`no prompt was answered: ${screen}`)
    if (engine.promptCount() !== 2)
      throw new Error(`${engine.promptCount()} prompts instead of the trial's and the instance's`)
    return [...screen.matchAll(/PASS {2}(\S.*?) +([0-9.]+ s) /g)].map(([, name, took]) => `${name} ${took}`).join(', ')
  })
  const tookS = (performance.now() - (state.startedMs ?? 0)) / 1000
  note(`from a bare Debian to an answered prompt: ${tookS.toFixed(0)} s, by apt-get install and strongroom init`)
}

async function freshHost({ host, step }: Proof): Promise<undefined> {
  await step('status, doctor and journal of a fresh host', async () => {
    const status = await succeed(host, ['status'])
    const journal = host.debian.journal(service)
    const untrue = /earlier names|authority replaced|nightly timer is off/
    for (const text of [status, journal]) if (untrue.test(text)) throw new Error(`untrue: ${untrue.exec(text)?.[0]}`)
    expectText('status', status, /^ready: +yes$/m, /^problems: +none is known/m)
    const { stdout } = await host.strongroom(['doctor'])
    if (/^FAIL /m.test(stdout)) throw new Error(stdout)
  })
}

export async function openInstance({ host, step, state }: Proof): Promise<undefined> {
  state.key = (await succeed(host, ['key', 'create', 'acme', '--name', 'ci'])).trim()
  const { name, hostname } = await step('create, until ready', () => host.createInstance(state.key ?? ''))
  state.name = name
  state.session = await host.session(hostname)
  await state.session.echoes('opened')
}

async function upgradeByApt(proof: Proof): Promise<undefined> {
  const { host, packages, step } = proof
  const before = await pidOf(host)
  await step('apt-get install of the next version, until it answers', async () => {
    await host.install(packages.second)
    await host.answers()
  })
  await stillThere(proof, 'upgraded')
  if ((await pidOf(host)) === before) throw new Error('the daemon is still the old one')
}

/** The old one serves again, VM and session live on. */
async function failedUpgrade(proof: Proof): Promise<undefined> {
  const { host, packages, step } = proof
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
    await stillThere(proof, `back from ${kind}`)
  }
  rmSync(fault)
}

async function upgradeByCommand(proof: Proof): Promise<undefined> {
  const { host, packages, step } = proof
  const before = await pidOf(host)
  const recipient = (await succeed(host, ['backup-key', '/root/before.txt'])).trim()
  await step('strongroom upgrade to a later version and schema, with its backup', async () => {
    const words = ['--backup', '/root/before.age', '--recipient', recipient]
    await succeed(host, ['upgrade', packages.later, ...words], commandTimeoutMs)
  })
  const { version } = JSON.parse(await succeed(host, ['version', '--json'])) as { version: string }
  expectEqual('version', version, laterVersion)
  if ((await pidOf(host)) === before) throw new Error('the daemon is still the old one')
  await stillThere(proof, 'upgraded by command')
}

/** Back to the release and schema of before, with the copy that the upgrade kept. */
async function downgrade(proof: Proof): Promise<undefined> {
  const { host, packages, step } = proof
  await succeed(host, ['org', 'create', 'since'])
  await step('the older package, strongroom downgrade', async () => {
    await host.systemctl('stop', service)
    await host.apt('install', '--allow-downgrades', packages.second)
    await succeed(host, ['downgrade'], commandTimeoutMs)
    await host.systemctl('start', service)
    await host.answers()
  })
  await stillThere(proof, 'after the downgrade')
  const list = await succeed(host, ['org', 'list'])
  if (list.includes('since')) throw new Error(`an organization of after the upgrade is there: ${list}`)
  await step('events has upgrade and downgrade, and what was done between', () =>
    hasEvents(host, 'upgrade', 'downgrade', 'org.create'),
  )
}

/** Waits until each operation is in the record, with its result: the daemon takes up those of other commands later. */
async function hasEvents(host: ProvedHost, ...operations: string[]): Promise<void> {
  await awaited('events has them', eventsTimeoutMs, async () => {
    const { commands } = await documentOf<{ commands: AdminCommand[] }>(host, 'events', '--limit', '1000')
    const isThere = (operation: string) =>
      commands.findLast(command => command.operation === operation)?.result === 'ok'
    if (operations.every(isThere)) return null
    return `${operations}: not all in ${[...new Set(commands.map(({ operation: name, result }) => `${name} ${result}`))]}`
  })
}
const eventsTimeoutMs = 90_000

/** Organizations and keys are those of before, on the same container after a purge. */
async function backupAndRestore(proof: Proof): Promise<undefined> {
  const { host, packages, step, state } = proof
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
  await step('events has the backup', () => hasEvents(host, 'backup'))
  const before = await listed(host)
  const { digest } = JSON.parse(await succeed(host, ['operator-key', '--json'])) as { digest: string }
  await state.session?.end()
  await step('purge, so that the machine is empty', async () => {
    mkdirSync(join(scratch, 'kept'), { recursive: true })
    for (const name of ['strongroom.age', 'identity.txt'])
      copyFileSync(`${root}/root/${name}`, join(scratch, 'kept', name))
    await host.apt('purge', 'strongroom', 'strongroom-images')
  })
  await step('install again, strongroom restore', async () => {
    await host.install(packages.second, packages.images)
    await host.systemctl('stop', service)
    const words = ['restore', '/root/strongroom.age', '--identity-file', '/root/identity.txt', '--keys', 'keep']
    await succeed(host, [...words, '--operator-key', digest, '--set-aside'])
    await host.systemctl('start', service)
    await host.answers()
  })
  expectEqual('organizations and keys', await listed(host), before)
  const [key, name] = [stateOf(proof, 'key'), stateOf(proof, 'name')]
  await step('the lost instance has failed, a new one is ready with a key of the backup', async () => {
    const { data } = await host.api('GET', `/v1/instances/${name}`, key)
    expectEqual('the instance of the old machine', `${data.status} ${data.failure_code}`, 'failed host_restored')
    state.name = (await host.createInstance(key)).name
  })
  await step('events has the restore', () => hasEvents(host, 'restore'))
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

async function removal({ host, packages, step, state }: Proof): Promise<undefined> {
  const remove = async () => {
    const printed = await host.apt('remove', 'strongroom')
    if (printed.includes('not everything has ended')) throw new Error(printed)
    return ''
  }
  await step('apt-get remove: VMs, taps, tables, forwarding', remove)
  await step('apt-get install again: the service starts, with the state of before', async () => {
    await host.install(packages.second)
    await host.answers()
    if (!(await succeed(host, ['org', 'list'])).includes('acme')) throw new Error('the state of before is gone')
  })
  // Without a VM since the start: no slice has ever been active.
  await step('apt-get remove, on a host without VMs', remove)
  await step('apt-get purge: nothing is left', async () => {
    await host.apt('purge', 'strongroom', 'strongroom-images')
    const { left, missing } = difference(state.bare ?? new Set(), await tracesOf(host.debian))
    if (left.length + missing.length > 0) throw new Error(`left: ${left.join('\n')}\nmissing: ${missing.join('\n')}`)
  })
}
