// Goal: the arguments of ssh and scp hold to one host key, and no path or name becomes an option of theirs.

import { afterAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import {
  addressFor,
  forwardArguments,
  identityOf,
  refuseSharing,
  scpArguments,
  sshArguments,
} from '../../../src/client/instances/openssh.ts'
import { readKnownHost } from '../../../src/verifier/ssh-key.ts'
import { ed25519Line } from '../../rigs/instances/instance-attestation.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-openssh-'))
afterAll(() => rmSync(dir, { recursive: true }))

const hostname = 'k3v9x2ma.acme.agents.example'
const knownHost = readKnownHost(`${hostname} ${ed25519Line(1)}`, hostname)
const connection = { user: 'agent', knownHost }
const there = (path: string) => ({ kind: 'there', path }) as const
const here = (path: string) => ({ kind: 'here', path }) as const

describe('scp', () => {
  const operands = (path: string) => {
    const copy = { ...connection, isRecursive: false, args: [], source: here(path), destination: there('') }
    return scpArguments(copy, '/k').slice(-4)
  }

  // Goal: after `--` each path here is one that scp takes for a file.
  test.each([
    ['-oProxyCommand=x', './-oProxyCommand=x'],
    ['a:b', './a:b'],
    ['host.example:x', './host.example:x'],
    ['scp://host/x', './scp://host/x'],
    ['notes.txt', './notes.txt'],
    ['/etc/a:b', '/etc/a:b'],
    ['../a', '../a'],
    ['.', './.'],
  ])('%s', (path, operand) => {
    expect(operands(path)).toEqual(['-s', '--', operand, `agent@${hostname}:`])
  })

  test('goal: our options come before those of the user, SFTP is the protocol, and paths there stay as they are', () => {
    const args = ['-o', 'StrictHostKeyChecking=no', '-O']
    const argv = scpArguments(
      {
        ...connection,
        isRecursive: true,
        args,
        source: there('-x y'),
        destination: here('.'),
        identity: '/i',
        address: '10.0.0.1',
      },
      '/k',
    )
    expect(argv.slice(0, 3)).toEqual(['scp', '-o', 'StrictHostKeyChecking=yes'])
    expect(argv).toContain('HostName=10.0.0.1')
    expect(argv.slice(-10)).toEqual(['-i', '/i', '-r', ...args, '-s', '--', `agent@${hostname}:-x y`, './.'])
  })
})

describe('options that share a connection', () => {
  // Goal: they are refused wherever ssh would read them.
  test.each([
    [['-S', '/tmp/x']],
    [['-S/tmp/x']],
    [['-M']],
    [['-tM']],
    [['-vS', '/tmp/x']],
    [['-p', '22', '-M']],
    [['-oBatchMode=yes', '-S', 'x']],
  ])('%p is refused', args => {
    expect(() => refuseSharing(args)).toThrow(/-[SM] of ssh shares a connection/)
  })
  // Goal: as a value of another option, or in the command, these letters stay.
  test.each([
    [[]],
    [['-l', '-S']],
    [['-lM']],
    [['ls', '-S']],
    [['--', '-M']],
    [['-t', 'top', '-M']],
    [['-L', 'M:1:S:2']],
  ])('%p is not', args => {
    expect(() => refuseSharing(args)).not.toThrow()
  })
})

const noSsh = skipUnless(Bun.which('ssh') !== null, 'needs ssh')

test.skipIf(noSsh)('goal: ssh itself holds to our options, whatever comes after them', () => {
  const wrong = [
    ...['StrictHostKeyChecking=no', 'UserKnownHostsFile=/etc/x', 'GlobalKnownHostsFile=/etc/y', 'UpdateHostKeys=yes'],
    ...['HostKeyAlgorithms=ssh-rsa', 'CheckHostIP=yes', 'HostKeyAlias=other', 'KnownHostsCommand=/bin/echo %H'],
    ...['VerifyHostKeyDNS=yes', 'ControlMaster=auto', 'ControlPath=/tmp/%C', 'NoHostAuthenticationForLocalhost=yes'],
  ].flatMap(option => ['-o', option])
  const argv = sshArguments({ ...connection, args: [...wrong, '-l', 'root'] }, '/tmp/a b/known_hosts')
  const { stdout, exitCode } = Bun.spawnSync([argv[0] ?? '', '-G', '-F', 'none', ...argv.slice(1)])
  const lines = stdout.toString().split('\n')
  expect(exitCode).toBe(0)
  for (const line of [
    ...['user agent', `hostname ${hostname}`, `hostkeyalias ${hostname}`, 'stricthostkeychecking true'],
    ...['userknownhostsfile /tmp/a b/known_hosts', 'globalknownhostsfile /dev/null', 'updatehostkeys false'],
    ...['hostkeyalgorithms ssh-ed25519', 'checkhostip no', 'verifyhostkeydns false', 'controlmaster false'],
    ...['nohostauthenticationforlocalhost no'],
  ]) {
    expect(lines).toContain(line)
  }
  expect(lines.filter(line => /^(?:knownhostscommand|controlpath) (?!none)/.test(line))).toEqual([])
})

test.skipIf(noSsh)('goal: a forwarding listens on loopback, and ends instead of standing without its port', () => {
  const wrong = ['GatewayPorts=yes', 'ExitOnForwardFailure=no', 'LocalCommand=touch /tmp/x', 'ServerAliveInterval=0']
  const args = ['-g', ...wrong.flatMap(option => ['-o', option])]
  const [local, remote] = ['127.0.0.1:8080', '127.0.0.1:3000']
  const argv = forwardArguments({ ...connection, args, local, remote }, '/tmp/known_hosts')
  const { stdout, exitCode } = Bun.spawnSync([argv[0] ?? '', '-G', '-F', 'none', ...argv.slice(1)])
  const lines = stdout.toString().split('\n')
  expect(exitCode).toBe(0)
  // The address before the port goes before GatewayPorts (ssh(1), -L).
  for (const line of [
    ...['localforward [127.0.0.1]:8080 [127.0.0.1]:3000', 'exitonforwardfailure yes', 'localcommand echo ready'],
    ...['serveraliveinterval 15', 'sessiontype none', 'stricthostkeychecking true'],
  ]) {
    expect(lines).toContain(line)
  }
})

test('goal: the identity is the private key beside the public one, else the public one, for ssh-agent', () => {
  const file = join(dir, 'id_ed25519')
  writeFileSync(`${file}.pub`, '')
  expect(identityOf(`${file}.pub`)).toBe(`${file}.pub`)
  writeFileSync(file, '')
  expect(identityOf(`${file}.pub`)).toBe(file)
  expect([identityOf(undefined), identityOf(join(dir, 'none.pub')), identityOf('ssh-ed25519 AAAA')]).toEqual([
    null,
    null,
    null,
  ])
})

test('goal: the address of the claim is used only for a name that does not resolve, and never over one of the user', async () => {
  expect(await addressFor('localhost', '10.0.0.1', [])).toBeNull()
  expect(await addressFor('k3v9x2ma.acme.invalid', '10.0.0.1', ['-p', '22', 'hostname'])).toBe('10.0.0.1')
  for (const args of [['-o', 'HostName=x'], ['-oHostName x'], ['-F', 'none'], ['-J', 'jump'], ['-o', ' hostname = x']])
    expect([args, await addressFor('k3v9x2ma.acme.invalid', '10.0.0.1', args)]).toEqual([args, null])
  expect(await addressFor('k3v9x2ma.acme.invalid', null, [])).toBeNull()
})
