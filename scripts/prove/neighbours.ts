// Programs that maintain a host, each run for real beside the daemon and a VM with an open session: systemd-networkd,
// systemd-tmpfiles, needrestart, unattended-upgrades, PgBouncer. Effects: those of `ProvedHost`; packages in it.

import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { runCommand } from '../lib/command.ts'
import { RELEASES } from '../rigs/booted/tree.ts'
import { until } from '../rigs/until.ts'
import type { ProvedHost } from './host.ts'
import { openInstance } from './life.ts'
import {
  commandTimeoutMs,
  configFile,
  expectEqual,
  expectText,
  initTimeoutMs,
  type Part,
  type Proof,
  pidOf,
  qemuPids,
  refused,
  stateOf,
  stillThere,
  succeed,
} from './proof.ts'

/** On a freshly installed host, because these packages leave files behind. */
export const NEIGHBOURS: readonly Part[] = [
  { row: '10', name: 'a host with an instance', isGround: true, run: fresh },
  { row: '10', name: 'systemd-networkd', run: networkd },
  { row: '10', name: 'systemd-tmpfiles --clean', run: tmpfiles },
  { row: '10', name: 'needrestart and unattended-upgrades', run: upgrades },
  { row: '10', name: 'PgBouncer', run: pgbouncer },
  { row: '10', name: 'renewal information of ACME', run: async () => ARI_UNTRIED },
  { row: '10', name: 'passkeys and AppArmor', run: async () => OTHERS_UNTRIED },
]

const ARI_UNTRIED =
  'the first poll is an hour after an order (test/http/acme/acme-certificates.slow.test.ts has it by a scripted clock)'
const OTHERS_UNTRIED =
  'a container has neither a browser (test/e2e/console) nor a kernel with AppArmor, whose profile is judged from its text'

async function fresh(proof: Proof): Promise<undefined> {
  const { host, packages, step, state } = proof
  await step('install, init --preseed', async () => {
    await host.install(packages.second, packages.images)
    await host.answers()
    const engine = stateOf(proof, 'engine')
    const price =
      '[[inference.prices]]\nmodel = "scripted"\nprompt_usd_per_million = "0.50"\ncompletion_usd_per_million = "1.50"\n'
    const upstream = `[[inference.upstreams]]\nname = "own"\nurl = "${engine.url}"\nmodels = ["scripted"]\n`
    const text = `domain = "agents.test"\n[network]\npublic_v4 = "192.0.2.10"\n[vm]\nscratch_gib = 2\n[inference]\nplacement = "host"\n${upstream}${price}`
    writeFileSync(`${host.debian.root}/root/preseed.toml`, text)
    await succeed(
      host,
      ['init', '--preseed', '/root/preseed.toml', '--organization', 'acme', '--no-trial'],
      initTimeoutMs,
    )
    await succeed(host, ['org', 'create', 'acme'])
  })
  delete state.session
  return await openInstance(proof)
}

/** The VM is the same, and so is the daemon unless `isRestarted`. */
async function unharmed(proof: Proof, what: string, run: () => Promise<unknown>): Promise<void> {
  const { host } = proof
  const [pid, vms] = [await pidOf(host), await qemuPids(host)]
  await run()
  await host.answers()
  expectEqual('processes of QEMU', (await qemuPids(host)).join(), vms.join())
  expectEqual('the daemon', await pidOf(host), pid)
  await stillThere(proof, `after ${what}`)
}

const uplinkTimeoutMs = 60_000

async function networkd(proof: Proof): Promise<undefined> {
  const { host, step } = proof
  const { root } = host.debian
  // As images of clouds have it, with a static address for the uplink.
  const files = {
    '40-up0.network':
      '[Match]\nName=up0\n[Network]\nAddress=192.0.2.10/24\nGateway=192.0.2.1\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n',
    '50-all.network': '[Match]\nName=*\n[Network]\nAddress=198.51.100.7/32\nIPv6AcceptRA=no\n',
  }
  for (const [name, text] of Object.entries(files)) writeFileSync(`${root}/etc/systemd/network/${name}`, text)
  // It refuses an address that another program has given the link.
  await host.debian.exec(['ip', 'address', 'flush', 'dev', 'up0'])
  const links = async () =>
    (
      await host.debian.exec([
        'sh',
        '-c',
        'ip -oneline address show dev sr-vms; ip -4 address show dev srprobe; ip route show table all dev sr-vms; ip rule show',
      ])
    ).stdout
  for (const [what, words] of [
    ['start', ['systemctl', 'start', 'systemd-networkd.service']],
    ['networkctl reload', ['networkctl', 'reload']],
    ['networkctl reconfigure', ['networkctl', 'reconfigure', 'up0']],
    ['restart', ['systemctl', 'restart', 'systemd-networkd.service']],
  ] as const) {
    await step(`systemd-networkd: ${what}`, () =>
      unharmed(proof, what, async () => {
        const before = await links()
        await host.debian.exec(words)
        await until(
          'it is up',
          commandTimeoutMs,
          async () => (await host.systemctl('is-active', 'systemd-networkd.service')) === 'active',
        )
        await until('it has configured the uplink', uplinkTimeoutMs, async () =>
          (await host.debian.exec(['networkctl', 'status', 'up0'], { check: false })).stdout.includes('configured'),
        )
        expectEqual('link, routes and rules of VMs', await links(), before)
      }),
    )
  }
  await host.debian.exec(['systemctl', 'stop', 'systemd-networkd.service', 'systemd-networkd.socket'])
  for (const name of Object.keys(files)) rmSync(`${root}/etc/systemd/network/${name}`)
  // The second file gives it to every link, the loopback among them.
  await host.debian.exec(['ip', 'address', 'flush', 'to', '198.51.100.7/32'])
}

async function tmpfiles(proof: Proof): Promise<undefined> {
  const { host, step } = proof
  await step('systemd-tmpfiles --clean, --create', () =>
    unharmed(proof, 'tmpfiles', async () => {
      const list = async () =>
        (
          await host.debian.exec([
            'sh',
            '-c',
            'find /var/lib/strongroom /etc/strongroom /run/netns /run/strongroom* | sort',
          ])
        ).stdout
      const before = await list()
      await host.debian.exec(['systemctl', 'start', 'systemd-tmpfiles-clean.service'])
      await host.debian.exec(['systemd-tmpfiles', '--clean', '--create'])
      const after = new Set((await list()).split('\n'))
      const gone = before.split('\n').filter(path => !after.has(path) && !/-(wal|shm|journal)$/.test(path))
      expectEqual('files that are gone', gone.join(), '')
    }),
  )
}

async function upgrades(proof: Proof): Promise<undefined> {
  const { host, directory, release, step } = proof
  await step('apt-get install needrestart unattended-upgrades', () =>
    unharmed(proof, 'their installation', () => host.apt('install', 'needrestart', 'unattended-upgrades')),
  )
  const version = await step('a C library with a later version, as a security update', () =>
    securityUpdate(host, { directory: join(directory, `updates-${release}`), codename: RELEASES[release] }),
  )
  writeFileSync(`${host.debian.root}/etc/needrestart/conf.d/prove.conf`, "$nrconf{restart} = 'a';\n")
  const [pid, vms] = [await pidOf(host), await qemuPids(host)]
  await step('unattended-upgrade installs it', async () => {
    const argv = ['env', 'DEBIAN_FRONTEND=noninteractive', 'unattended-upgrade', '--verbose']
    const { stdout, stderr } = await host.debian.exec(argv, { timeoutMs: commandTimeoutMs })
    const { stdout: now } = await host.debian.exec(['dpkg-query', '--show', 'libc6:amd64'])
    expectEqual(`the version (${stdout}${stderr})`, now.trim().split('\t')[1] ?? '', version)
  })
  await step('needrestart restarts the daemon alone: the same VM, the same session', async () => {
    // Debian's own hook may have done so; run once more, it finds nothing old but what it must leave alone.
    await host.debian.exec(['env', 'DEBIAN_FRONTEND=noninteractive', 'needrestart', '-r', 'a', '-l'], {
      timeoutMs: commandTimeoutMs,
    })
    await host.answers()
    expectEqual('processes of QEMU', (await qemuPids(host)).join(), vms.join())
    if ((await pidOf(host)) === pid) throw new Error('the daemon still has the former library')
    await stillThere(proof, 'after the upgrade of the library')
    expectEqual('failed units', await host.systemctl('--failed', '--no-legend'), '')
  })
}

/** Packs the library of the container again with a later version, into a repository of its own. Returns the version. */
async function securityUpdate(
  { debian }: ProvedHost,
  { directory, codename }: { readonly directory: string; readonly codename: string },
): Promise<string> {
  const tree = join(directory, 'tree')
  mkdirSync(directory, { recursive: true })
  const archives = `${debian.root}/var/cache/apt/archives`
  const file = readdirSync(archives).find(name => name.startsWith('libc6_'))
  if (file === undefined) throw new Error('apt has no package of libc6 in its cache')
  const run = async (...argv: string[]) => {
    const { exitCode, output } = await runCommand(argv, { timeoutMs: commandTimeoutMs })
    if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${output}`)
    return output
  }
  await run('dpkg-deb', '--raw-extract', join(archives, file), tree)
  const control = readFileSync(join(tree, 'DEBIAN/control'), 'utf8')
  const version = `${/^Version: (.*)$/m.exec(control)?.[1]}+proved1`
  writeFileSync(join(tree, 'DEBIAN/control'), control.replace(/^Version: .*$/m, `Version: ${version}`))
  const deb = join(directory, 'libc6.deb')
  await run('dpkg-deb', '--root-owner-group', '-Znone', '--build', tree, deb)
  rmSync(tree, { recursive: true })
  const sha256 = (path: string) => new Bun.CryptoHasher('sha256').update(readFileSync(path)).digest('hex')
  const facts = `Filename: ./libc6.deb\nSize: ${statSync(deb).size}\nSHA256: ${sha256(deb)}\n`
  const index = join(directory, 'Packages')
  writeFileSync(index, `${(await run('dpkg-deb', '--field', deb)).trim()}\n${facts}\n`)
  const release = [
    'Origin: Debian',
    'Label: Debian-Security',
    'Suite: stable-security',
    `Codename: ${codename}-security`,
  ]
  const sums = ['SHA256:', ` ${sha256(index)} ${statSync(index).size} Packages`]
  const date = new Date().toUTCString().replace('GMT', 'UTC')
  writeFileSync(join(directory, 'Release'), `${[...release, `Date: ${date}`, ...sums].join('\n')}\n`)
  const list = '/etc/apt/sources.list.d/proved.list'
  writeFileSync(`${debian.root}${list}`, `deb [trusted=yes] file:${directory} ./\n`)
  const only = ['-o', `Dir::Etc::sourcelist=${list}`, '-o', 'Dir::Etc::sourceparts=-', '-o', 'APT::Get::List-Cleanup=0']
  await debian.exec(['apt-get', '--quiet', ...only, 'update'])
  return version
}

async function pgbouncer(proof: Proof): Promise<undefined> {
  const { host, step } = proof
  const { debian } = host
  await step('apt-get install postgresql pgbouncer', () =>
    host.apt('install', 'postgresql', 'pgbouncer').then(() => ''),
  )
  const poolMode = async (mode: string) => {
    const lines = `[databases]\n* = host=127.0.0.1 port=5432\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = 6432\n`
    const users = 'auth_type = scram-sha-256\nauth_file = /etc/pgbouncer/userlist.txt\n'
    writeFileSync(
      `${debian.root}/etc/pgbouncer/pgbouncer.ini`,
      `${lines}${users}pool_mode = ${mode}\nunix_socket_dir = /tmp\n`,
    )
    writeFileSync(`${debian.root}/etc/pgbouncer/userlist.txt`, '"fleet" "secret"\n')
    await host.systemctl('restart', 'pgbouncer.service')
  }
  const fleet = ['--config', '/root/fleet.toml', '--state-dir', '/root/fleet-state']
  writeFileSync(
    `${debian.root}/root/fleet.toml`,
    `${/^domain = .*\n/m.exec(readFileSync(`${debian.root}${configFile}`, 'utf8'))?.[0] ?? ''}[fleet]\nname = "rack-a"\ndatabase = "postgresql://fleet@127.0.0.1:6432/fleet"\npassword_file = "/root/fleet-password"\n`,
  )
  writeFileSync(`${debian.root}/root/fleet-password`, 'secret\n', { mode: 0o600 })
  try {
    await step('in transaction mode fleet init and doctor name it', async () => {
      await host.systemctl('start', 'postgresql.service')
      const sql = "CREATE ROLE fleet LOGIN PASSWORD 'secret'; CREATE DATABASE fleet OWNER fleet;"
      await until('PostgreSQL answers', commandTimeoutMs, async () => {
        const argv = [
          'setpriv',
          '--reuid=postgres',
          '--regid=postgres',
          '--clear-groups',
          'psql',
          '--quiet',
          '--dbname=postgres',
        ]
        return (await debian.exec(argv, { stdin: `${sql.replaceAll('; ', ';\n')}\n`, check: false })).exitCode === 0
      })
      await poolMode('transaction')
      expectText(
        'fleet init',
        await refused(host, [...fleet, 'fleet', 'init'], commandTimeoutMs),
        'pool_mode = session',
      )
      const { stdout } = await host.strongroom([...fleet, 'doctor', '--no-canary'], commandTimeoutMs)
      expectText('doctor', stdout, 'pool_mode = session')
    })
    await step('in session mode the fleet is made', async () => {
      await poolMode('session')
      await succeed(host, [...fleet, 'fleet', 'init'], commandTimeoutMs)
    })
  } finally {
    await host.systemctl('stop', 'pgbouncer.service', 'postgresql.service', 'postgresql@*.service')
  }
}
