// A booted Debian as an operator meets it: apt installs packages, commands of the executable do everything else.
// Effects: those of `bootDebian`; commands in it; ssh.

import { Resolver } from 'node:dns/promises'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { basename, join } from 'node:path'
import { type BootedDebian, bootDebian } from '../rigs/booted/container.ts'
import type { Executed } from '../rigs/booted/output.ts'
import { bareDebianTree, type Release } from '../rigs/booted/tree.ts'
import { until } from '../rigs/until.ts'

export type ProvedHost = AsyncDisposable & {
  readonly debian: BootedDebian
  readonly apt: (...words: string[]) => Promise<string>
  /** Installs packages of this machine, by their paths. */
  readonly install: (...files: string[]) => Promise<string>
  readonly strongroom: (words: readonly string[], timeoutMs?: number) => Promise<Executed>
  readonly systemctl: (...words: string[]) => Promise<string>
  /** Waits until the daemon answers the operator. */
  readonly answers: () => Promise<void>
  /** Service A, with the key of a customer. */
  readonly api: (method: string, path: string, key: string, body?: unknown) => Promise<ApiAnswer>
  /** Creates an instance. */
  readonly acceptInstance: (key: string) => Promise<ApiAnswer['data']>
  /** The same, and waits until it is ready. */
  readonly createInstance: (key: string) => Promise<ApiAnswer['data']>
  /** A session with an instance that stays open. `command` runs there instead of cat(1). */
  readonly session: (hostname: string, command?: string) => Promise<Session>
  /** The key of the sessions. */
  readonly publicKey: string
}

export type ApiAnswer = {
  readonly status: number
  readonly data: { name: string; status: string; hostname: string; failure_code?: string | null }
}

export type Session = {
  /** Sends the line through the instance's `cat` and waits for it. */
  readonly echoes: (line: string) => Promise<void>
  readonly end: () => Promise<void>
  readonly kill: () => void
}

export const publicV4 = '192.0.2.10'
const stateDir = '/var/lib/strongroom'
const aptTimeoutMs = 480_000
const commandTimeoutMs = 240_000
const answerTimeoutMs = 240_000
const echoTimeoutMs = 60_000
const apiTimeoutMs = 60_000
const sessionEndTimeoutMs = 60_000
const readyTimeoutMs = 600_000
const pollMs = 500

/** Boots a bare Debian with an address and a default route that lead nowhere. `files`: directories it may read. */
export async function bootHost(release: Release, files: readonly string[]): Promise<ProvedHost> {
  return await bootTree(await bareDebianTree(release), files)
}

/** The same of a tree that has more. */
export async function bootTree(tree: string, files: readonly string[]): Promise<ProvedHost> {
  await using undo = new AsyncDisposableStack()
  const debian = undo.use(await bootDebian({ tree, devices: ['/dev/net/tun'], readOnly: files }))
  // The kernel is that of the container's host: what a boot would have set is set here.
  writeFileSync(`${debian.root}/proc/sys/net/ipv4/ip_forward`, '0')
  // nspawn mounts a boot id of the container's own, which a service with ProtectProc= does not see.
  await debian.exec(['sh', '-euc', 'umount /proc/sys/kernel/random/boot_id; systemctl restart systemd-journald'])
  uplink()
  const identity = join(debian.scratch, 'client')
  Bun.spawnSync(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', 'client', '-f', identity])
  const publicKey = readFileSync(`${identity}.pub`, 'utf8').trim()
  const sessions: Session[] = []
  undo.defer(() => {
    for (const session of sessions) session.kill()
  })
  const kept = undo.move()

  const quiet = ['env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', '--quiet', '--yes', '--no-install-recommends']
  const apt = async (...words: string[]) => {
    const { stdout, stderr } = await debian.exec([...quiet, ...words], { timeoutMs: aptTimeoutMs })
    return `${stdout}${stderr}`
  }
  const strongroom = (words: readonly string[], timeoutMs = commandTimeoutMs) =>
    debian.exec(['strongroom', ...words], { check: false, timeoutMs })
  const api: ProvedHost['api'] = async (method, path, key, body) => {
    const response = await fetch(`https://127.0.0.1:8441${path}`, {
      method,
      tls: { ca: ca() },
      signal: AbortSignal.timeout(apiTimeoutMs),
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status}: ${text}`)
    return { status: response.status, data: (JSON.parse(text) as { data: ApiAnswer['data'] }).data }
  }
  const ca = () => authoritiesOf(debian)
  const acceptInstance: ProvedHost['acceptInstance'] = async key =>
    (await api('POST', '/v1/instances', key, { public_key: publicKey })).data
  return {
    debian,
    apt,
    install: (...paths) => apt('install', ...paths),
    strongroom,
    systemctl: async (...words) => (await debian.exec(['systemctl', ...words], { check: false })).stdout.trim(),
    answers: () => {
      // The executable starts slowly beside a daemon that does: it starts once there is a listener.
      const answers = async () =>
        (await isListener(`${debian.root}${stateDir}/admin.sock`)) && (await strongroom(['status'])).exitCode === 0
      return until('the daemon answers', answerTimeoutMs, answers).catch(error => {
        throw new Error(`${debian.journal('strongroom.service').slice(-4_000)}\n${error}`)
      })
    },
    api,
    acceptInstance,
    createInstance: async key => {
      const data = await acceptInstance(key)
      const endMs = performance.now() + readyTimeoutMs
      // One key may ask ten times a second.
      for (let found = data; found.status !== 'ready'; await Bun.sleep(pollMs)) {
        if (found.status === 'failed' || performance.now() > endMs) {
          const { stdout: serial } = await strongroom(['instance', 'console', data.name])
          const journal = debian.journal('strongroom.service')
          throw new Error(`${serial.slice(-4_000)}\n${journal.slice(-4_000)}\n${JSON.stringify(found)}`)
        }
        found = (await api('GET', `/v1/instances/${data.name}`, key)).data
      }
      return data
    },
    publicKey,
    session: async (hostname, command = 'cat') => {
      const session = await openSession(hostname, { identity, directory: debian.scratch, command })
      sessions.push(session)
      return session
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  }
}

/** A host of an operator who has certificates of an authority of his own has that in this file. */
export const otherAuthority = '/etc/strongroom/authority.pem'

/** The certificates that clients of this host must trust. */
export function authoritiesOf({ root }: Pick<BootedDebian, 'root'>): string {
  const files = [`${root}${stateDir}/ca/ca.pem`, `${root}${otherAuthority}`]
  return files.flatMap(file => (existsSync(file) ? [readFileSync(file, 'utf8')] : [])).join('')
}

/** Reports whether a process listens on a Unix socket. */
function isListener(path: string): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(path)
    const end = (listens: boolean) => {
      socket.destroy()
      resolve(listens)
    }
    socket.on('connect', () => end(true)).on('error', () => end(false))
  })
}

/** In the namespace that the container shares with us; a reboot takes it away. */
export function uplink(): void {
  for (const words of [
    'link add up0 type veth peer name up1',
    `address add ${publicV4}/24 dev up0`,
    'link set up0 up',
    'link set up1 up',
    'route add default via 192.0.2.1',
  ]) {
    Bun.spawnSync(['ip', ...words.split(' ')])
  }
}

type Client = { readonly identity: string; readonly directory: string; readonly command: string }

async function openSession(hostname: string, { identity, directory, command }: Client): Promise<Session> {
  const resolver = new Resolver({ timeout: 20_000, tries: 2 })
  resolver.setServers(['127.0.0.1:53'])
  const [address = ''] = await resolver.resolve4(hostname)
  const quiet = ['LogLevel=ERROR', 'BatchMode=yes', 'ConnectTimeout=60']
  const options = [...quiet, 'IdentitiesOnly=yes', 'StrictHostKeyChecking=accept-new']
  const known = `UserKnownHostsFile=${join(directory, 'known_hosts')}`
  const child = Bun.spawn(
    ['ssh', '-l', 'agent', '-i', identity, ...[...options, known].flatMap(o => ['-o', o]), address, command],
    { stdin: 'pipe', stdout: 'pipe', stderr: 'pipe' },
  )
  let output = ''
  let errors = ''
  void (async () => {
    for await (const chunk of child.stdout) output += Buffer.from(chunk).toString()
  })()
  void (async () => {
    for await (const chunk of child.stderr) errors += Buffer.from(chunk).toString()
  })()
  return {
    echoes: async line => {
      child.stdin.write(`${line}\n`)
      await child.stdin.flush()
      await until(`the session says ${line}`, echoTimeoutMs, () => {
        if (child.exitCode !== null) throw new Error(`the session ended with ${child.exitCode}: ${errors}`)
        return output.includes(`${line}\n`)
      })
    },
    end: async () => {
      child.stdin.end()
      // Without its VM it would wait for good.
      const timer = setTimeout(() => child.kill('SIGKILL'), sessionEndTimeoutMs)
      await child.exited
      clearTimeout(timer)
      if (child.signalCode !== null) throw new Error(`the session did not end within ${sessionEndTimeoutMs} ms`)
    },
    kill: () => child.kill('SIGKILL'),
  }
}

/** Version of a package by its name, as build-package.ts writes it. */
export function versionOf(file: string): string {
  return basename(file).split('_')[1] ?? ''
}
