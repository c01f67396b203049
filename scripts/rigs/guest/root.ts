// A guest's file system in a directory, with a real sshd on a loopback port. Effects; cleans up after itself.

import * as fs from 'node:fs'
import { homedir, userInfo } from 'node:os'
import { join } from 'node:path'
import nacl from 'tweetnacl'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { SealedClaim } from '../../../src/contract/vm/agent.ts'
import type { Claim } from '../../../src/contract/vm/claim.ts'
import type { AttestedGateway } from '../../../src/contract/vm/inference-gateway.ts'
import { type Claiming, createClaiming } from '../../../src/guest/claim.ts'
import { createDaemon, type Daemon, type DaemonDeps } from '../../../src/guest/daemon.ts'
import { createIdentity, type Identity } from '../../../src/guest/identity.ts'
import { type GuestPaths, guestPaths } from '../../../src/guest/paths.ts'
import { createReach, type Reach } from '../../../src/guest/reach/reach.ts'
import { run } from '../../../src/linux/command.ts'
import { lastingPort } from '../free-port.ts'
import { until } from '../until.ts'

export type Sandbox = AsyncDisposable & {
  readonly root: string
  readonly paths: GuestPaths
  readonly sshPort: number
  readonly sshdArgv: readonly [string, ...string[]]
  /** Where the endpoint of the gateway listens, and how it is started. */
  readonly gatewayPort: number
  readonly gatewayArgv: readonly [string, ...string[]]
  readonly owner: { readonly uid: number; readonly gid: number }
  /** Programs that claims started; each is stopped on dispose. */
  readonly daemons: Daemon[]
}

const storeDirs = ['etc/ssl/certs']

/** Below the home directory: sshd's StrictModes refuses keys below the world-writable /tmp. */
export async function makeSandbox(): Promise<Sandbox> {
  const root = fs.mkdtempSync(join(homedir(), '.strongroom-guest-test-'))
  const paths = guestPaths(root)
  for (const dir of [
    'run/strongroom',
    'etc',
    'home/agent',
    'dev',
    'sys/class/net',
    'proc/sys/kernel/random',
    'usr/lib/strongroom',
    ...storeDirs,
  ]) {
    fs.mkdirSync(join(root, dir), { recursive: true })
  }
  fs.writeFileSync(paths.hosts, '127.0.0.1 localhost\n')
  fs.writeFileSync(paths.hostname, 'strongroom\n')
  fs.writeFileSync(paths.caBundle, 'authorities of the image\n')
  fs.writeFileSync(paths.kernelHostname, 'strongroom')
  fs.writeFileSync(paths.imageFile, '{"name":"instance"}')
  fs.writeFileSync(paths.bootId, '0f0e0d0c-0b0a-4908-8706-050403020100\n')
  const [sshPort, gatewayPort] = [lastingPort(), lastingPort()]
  const config = join(root, 'sshd_config')
  fs.writeFileSync(config, sshdConfig(paths, sshPort))
  // The privilege separation directory is compiled into Debian's sshd; init makes it in the guest.
  if (userInfo().uid === 0) fs.mkdirSync('/run/sshd', { recursive: true, mode: 0o755 })
  const { uid, gid } = userInfo()
  const sshdArgv = ['/usr/sbin/sshd', '-D', '-f', config, '-E', join(root, 'sshd.log')] as const
  const sandbox: Sandbox = {
    root,
    paths,
    sshPort,
    sshdArgv,
    gatewayPort,
    gatewayArgv: [process.execPath, join(import.meta.dir, '../gateway/endpoint-program.ts'), root, String(gatewayPort)],
    owner: { uid, gid },
    daemons: [],
    [Symbol.asyncDispose]: async () => {
      for (const daemon of [...sandbox.daemons, makeSshd(sandbox), makeGateway(sandbox)]) await daemon.stop()
      fs.rmSync(root, { recursive: true, force: true })
    },
  }
  return sandbox
}

export type Overrides = {
  readonly sshd?: Partial<DaemonDeps>
  readonly gateway?: Partial<DaemonDeps>
  readonly platform?: 'snp' | 'none'
}

function makeDaemon({ daemons, paths, owner }: Sandbox, deps: Pick<DaemonDeps, 'name' | 'record' | 'runDir' | 'argv'>) {
  const daemon = createDaemon({ owner, logDir: paths.logDir, clock: systemClock, log: silentLogger, ...deps })
  daemons.push(daemon)
  return daemon
}

function makeSshd(sandbox: Sandbox, overrides: Partial<DaemonDeps> = {}): Daemon {
  const { paths, sshdArgv: argv } = sandbox
  const record = paths.sshdRecord
  return makeDaemon(sandbox, { name: 'sshd', record, runDir: paths.sshdRunDir, argv, ...overrides })
}

function makeGateway(sandbox: Sandbox, overrides: Partial<DaemonDeps> = {}): Daemon {
  const { paths, gatewayArgv: argv } = sandbox
  const record = paths.gatewayRecord
  return makeDaemon(sandbox, { name: 'gateway', record, runDir: null, argv, ...overrides })
}

/** Writes the files of a policy, and neither filters packets nor starts a broker. */
function makeReach(sandbox: Sandbox): Reach {
  const { paths, owner: system } = sandbox
  const argv = ['/bin/sleep', '1000'] as const
  const broker = makeDaemon(sandbox, {
    name: 'broker',
    record: paths.brokerRecord,
    runDir: null,
    argv,
  })
  const deps = { brokerGid: system.gid, reachProgram: '/bin/true', broker, clock: systemClock, run }
  return createReach({ paths, system, ...deps })
}

/** The parts of one agent. A second call over the same sandbox stands for a restarted agent. */
export async function makeParts(sandbox: Sandbox, overrides: Overrides = {}): Promise<Parts> {
  const { paths, owner } = sandbox
  const [sshd, gateway] = [makeSshd(sandbox, overrides.sshd), makeGateway(sandbox, overrides.gateway)]
  const identity = await createIdentity({ paths, clock: systemClock, hostKeyWaitMs: 0 })
  const platform = async () => overrides.platform ?? ('none' as const)
  const claiming = createClaiming({
    ...{ paths, system: owner, login: owner, sshd, gateway, platform, log: silentLogger },
    reach: makeReach(sandbox),
    random: systemRandom,
  })
  return { sshd, gateway, identity, claiming }
}

type Parts = {
  readonly sshd: Daemon
  readonly gateway: Daemon
  readonly identity: Identity
  readonly claiming: Claiming
}

/** Has the form of an authority's file; nothing here reads the certificate in it. */
export const gatewayCa = '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n'

/** Requirements for a gateway that does not exist. */
export const attestedGateway: AttestedGateway = {
  kind: 'attested',
  measurements: ['11'.repeat(48)],
  operatorKey: '22'.repeat(48),
  outside: [],
  simulatedRoot: null,
}

/** A claim as the host makes it. */
export function makeClaim(publicKey: string, overrides: Partial<Claim> = {}): Claim {
  return {
    claimId: 'claim-1',
    organization: 'acme',
    name: 'abcd1234',
    hostname: 'abcd1234.acme.example.test',
    publicKey,
    inference: {
      baseUrl: 'http://gateway.example.test:8442/v1',
      address: '192.0.2.1',
      model: 'vendor/model-1',
      gateway: { kind: 'unattested', why: 'host', ca: gatewayCa },
      drawsKey: true,
    },
    egress: { limitBytes: 5_368_709_120, names: 'any' },
    ...overrides,
  }
}

/** Seals any value as the host seals a claim. */
export function seal(plain: unknown, boxKey: string): SealedClaim {
  const ephemeral = nacl.box.keyPair()
  const nonce = nacl.randomBytes(nacl.box.nonceLength)
  const message = plain instanceof Uint8Array ? plain : new TextEncoder().encode(JSON.stringify(plain))
  const box = nacl.box(message, nonce, Uint8Array.fromBase64(boxKey), ephemeral.secretKey)
  return { ephemeralKey: ephemeral.publicKey.toBase64(), nonce: nonce.toBase64(), box: box.toBase64() }
}

/** The customer's key: path of the private one, and the public line. */
export function makeCustomerKey(sandbox: Sandbox, name = 'customer'): { path: string; publicKey: string } {
  const path = join(sandbox.root, name)
  succeed(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', '', '-f', path])
  return { path, publicKey: fs.readFileSync(`${path}.pub`, 'utf8').trim() }
}

/** ssh(1) with `hostKey` as the only acceptable one, ready to run. */
export function sshArgv(sandbox: Sandbox, login: { keyPath: string; hostKey: string; command: string }): string[] {
  const knownHosts = join(sandbox.root, 'known_hosts')
  fs.writeFileSync(knownHosts, `[127.0.0.1]:${sandbox.sshPort} ${login.hostKey}\n`)
  const options = [
    'BatchMode=yes',
    'IdentitiesOnly=yes',
    'StrictHostKeyChecking=yes',
    `UserKnownHostsFile=${knownHosts}`,
  ]
  const flags = options.flatMap(option => ['-o', option])
  const target = `${succeed(['id', '-un']).trim()}@127.0.0.1`
  return ['ssh', '-F', 'none', ...flags, '-i', login.keyPath, '-p', String(sandbox.sshPort), target, login.command]
}

/** Standard output of a login. sshd begins to listen a moment after the claim. */
export async function loggedIn(sandbox: Sandbox, login: Parameters<typeof sshArgv>[1]): Promise<string> {
  await sshdListens(sandbox)
  return succeed(sshArgv(sandbox, login))
}

export async function sshdListens({ sshPort: port }: Sandbox): Promise<void> {
  const connects = async () => {
    const socket = await Bun.connect({ hostname: '127.0.0.1', port, socket: { data: () => {} } }).catch(() => null)
    socket?.end()
    return socket !== null
  }
  await until('sshd listens', 60_000, connects)
}

/** Standard output of a command that must succeed. */
export function succeed(argv: string[]): string {
  const { exitCode, stdout, stderr } = Bun.spawnSync(argv)
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: exit ${exitCode}: ${stderr}`)
  return stdout.toString()
}

/** Every path below `root` with its kind, mode and content. */
export function listTree(root: string): string[] {
  const found = fs.readdirSync(root, { recursive: true, encoding: 'utf8' }).sort()
  return found.map(name => {
    const path = join(root, name)
    const stat = fs.lstatSync(path)
    const content = stat.isFile() ? JSON.stringify(fs.readFileSync(path, 'utf8')) : 'directory'
    return `${name} ${(stat.mode & 0o777).toString(8)} ${content}`
  })
}

function sshdConfig(paths: GuestPaths, port: number): string {
  return `Port ${port}
ListenAddress 127.0.0.1
HostKey ${paths.sshHostKey}
AuthorizedKeysFile ${paths.authorizedKeys}
AuthenticationMethods publickey
StrictModes yes
UsePAM no
PidFile none
Include ${paths.sshdEnvironment}
`
}
