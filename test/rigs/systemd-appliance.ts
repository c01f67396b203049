// An appliance that runs as its systemd service in a booted Debian, installed as README says. Effects: what
// `bootDebian` does, and files in it.

import { Resolver } from 'node:dns/promises'
import { chmodSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { tinyModel } from '../../scripts/model/tiny-model.ts'
import { type Appliance, executable, imageDir } from '../../scripts/rigs/appliance.ts'
import { type BootedDebian, bootDebian } from '../../scripts/rigs/booted/container.ts'
import { buildCachedImage } from '../../scripts/rigs/build/image-build.ts'
import { gatewayTables } from '../../scripts/rigs/gateway/appliance-gateway.ts'
import { until } from '../../scripts/rigs/until.ts'
import { readStat } from '../../src/linux/stat.ts'

const repo = join(import.meta.dir, '../..')
const unitsDir = join(repo, 'scripts/systemd')
/** Enabled; it requires the others. */
const enabled = ['strongroom.service']
export const units = [...enabled, 'strongroom-starter.socket', 'strongroom-starter@.service']
const stateDir = '/var/lib/strongroom'
const modelFile = '/usr/local/share/model.gguf'
const url = 'https://127.0.0.1:8441'

/** Everything that `createCustomer` needs, and extras of systemd. */
export type SystemdAppliance = AsyncDisposable &
  Pick<Appliance, 'stateDir' | 'publicKey' | 'cli' | 'admin' | 'http' | 'resolve' | 'sshSession' | 'log'> & {
    readonly debian: BootedDebian
    /** `systemctl` with these arguments; throws when it fails. */
    readonly systemctl: (...words: string[]) => Promise<string>
    /** A property of the service, as systemd knows it. */
    readonly property: (name: string) => Promise<string>
    /** When its systemd was started, by the wall clock. */
    readonly bootedAtMs: () => number
    /** Waits until the service answers clients and the operator. */
    readonly answers: (timeoutMs: number) => Promise<void>
  }

/** Installs and enables it, with a worker behind the gateway; does not start it. */
export async function installAppliance(): Promise<SystemdAppliance> {
  await using undo = new AsyncDisposableStack()
  const image = await imageDir()
  const workerImage = await buildCachedImage('inference')
  const debian = undo.use(await bootDebian({ devices: ['/dev/net/tun'], readOnly: [image, workerImage] }))
  const keys = debian.scratch
  await install(debian, image)
  const keyFile = join(keys, 'client')
  Bun.spawnSync(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', 'client', '-f', keyFile])
  const kept = undo.move()

  const ca = () => readFileSync(`${debian.root}${stateDir}/ca/ca.pem`, 'utf8')
  const cli = (...words: string[]) => debian.exec(['strongroom', ...words], { check: false })
  const systemctl = async (...words: string[]) => (await debian.exec(['systemctl', ...words])).stdout.trim()
  const resolve = async (hostname: string): Promise<string | null> => {
    const resolver = new Resolver({ timeout: 20_000, tries: 2 })
    resolver.setServers(['127.0.0.1:53'])
    return (await resolver.resolve4(hostname).catch(() => []))[0] ?? null
  }
  const answered = async () => (await fetch(`${url}/openapi.json`, { tls: { ca: ca() } })).ok
  return {
    debian,
    get stateDir() {
      return `${debian.root}${stateDir}`
    },
    publicKey: readFileSync(`${keyFile}.pub`, 'utf8').trim(),
    cli,
    systemctl,
    resolve,
    property: name => systemctl('show', '--value', '--property', name, 'strongroom.service'),
    answers: timeoutMs =>
      until('the service answers', timeoutMs, async () => {
        const isThere = await answered().catch(() => false)
        return isThere && (await cli('status')).exitCode === 0
      }),
    bootedAtMs: () => {
      const [, , pid] = debian.root.split('/')
      const startedMs = 10 * (readStat(Number(pid))?.startTicks ?? Number.NaN)
      const upMs = 1000 * Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0])
      return Date.now() - upMs + startedMs
    },
    log: () => debian.journal('strongroom.service'),
    admin: async <T>(...words: string[]) => {
      const { exitCode, stdout, stderr } = await cli(...words, '--json')
      if (exitCode !== 0) throw new Error(`strongroom ${words.join(' ')}: ${exitCode}: ${stdout}${stderr}`)
      return JSON.parse(stdout) as T
    },
    http: async <T>(
      method: string,
      path: string,
      { key, body, headers }: { key?: string; body?: unknown; headers?: Record<string, string> } = {},
    ) => {
      const response = await fetch(url + path, {
        method,
        tls: { ca: ca() },
        headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json', ...headers },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      })
      return { status: response.status, headers: response.headers, body: (await response.json()) as T }
    },
    sshSession: (hostname, command) => {
      let output = ''
      const started = resolve(hostname).then(address => {
        if (address === null) throw new Error(`${hostname} does not resolve`)
        const options = ['BatchMode=yes', 'ConnectTimeout=60', 'IdentitiesOnly=yes', 'StrictHostKeyChecking=no']
        const known = `UserKnownHostsFile=${join(keys, 'known_hosts')}`
        const child = Bun.spawn(
          ['ssh', '-q', '-l', 'agent', '-i', keyFile, ...[...options, known].flatMap(o => ['-o', o]), address, command],
          { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' },
        )
        void (async () => {
          for await (const chunk of child.stdout) output += Buffer.from(chunk).toString()
        })()
        return child
      })
      return {
        type: text => {
          void started.then(async child => {
            child.stdin.write(text)
            await child.stdin.flush()
          })
        },
        printed: text => until(`the session prints ${JSON.stringify(text)}`, 60_000, () => output.includes(text)),
        exited: started.then(child => child.exited),
      }
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  }
}

/**
 * A container has a boot id of its own, which nspawn mounts over that of this machine's kernel. ProtectProc= gives the
 * service a fresh /proc, in which the kernel's own is seen again, and that does not change when the container boots.
 * So it is mounted there, too.
 */
const bootIdFile = '/run/boot-id'
const bootIdDropIn = `[Service]\nBindReadOnlyPaths=${bootIdFile}:/proc/sys/kernel/random/boot_id\n`

/** The steps of README, "For operators". The images stay where they are: the configuration names them. */
async function install({ root, exec }: BootedDebian, image: string): Promise<void> {
  mkdirSync(`${root}/usr/local/bin`, { recursive: true })
  copyFileSync(executable, `${root}/usr/local/bin/strongroom`)
  chmodSync(`${root}/usr/local/bin/strongroom`, 0o755)
  mkdirSync(`${root}/etc/strongroom`, { mode: 0o755 })
  writeFileSync(`${root}${modelFile}`, tinyModel(), { mode: 0o644 })
  const config = [
    'domain = "agents.test"\nplatform = "tcg"\nlog_level = "debug"\n',
    '[listen]\ninstances = "127.0.0.1:8441"\ndns = "127.0.0.1:53"\n',
    // The container's files lie in memory, where two disks of the default size find no room.
    `[vm]\nimage_dir = ${JSON.stringify(image)}\nscratch_gib = 2\n`,
    '[instances]\nrequests_per_minute = 1_000_000\n',
    // There is no default route here to take an address from.
    '[network]\npublic_v4 = "192.0.2.10"\n',
    await gatewayTables(modelFile),
  ]
  writeFileSync(`${root}/etc/strongroom/strongroom.toml`, config.join(''))
  for (const unit of units) copyFileSync(join(unitsDir, unit), `${root}/etc/systemd/system/${unit}`)
  writeFileSync(`${root}/etc/tmpfiles.d/boot-id.conf`, `f ${bootIdFile} 0444 root root - %b\n`)
  await exec(['systemd-tmpfiles', '--create', '/etc/tmpfiles.d/boot-id.conf'])
  mkdirSync(`${root}/etc/systemd/system/strongroom.service.d`)
  writeFileSync(`${root}/etc/systemd/system/strongroom.service.d/boot-id.conf`, bootIdDropIn)
  await exec(['useradd', '--system', '--shell', '/usr/sbin/nologin', '--home-dir', '/nonexistent', 'strongroom-vm'])
  await exec(['systemctl', 'enable', ...enabled])
}
