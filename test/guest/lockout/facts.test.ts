import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { connect } from 'node:net'
import { dirname, join } from 'node:path'
import { Check } from '@sinclair/typebox/value'
import { makeSandbox } from '../../../scripts/rigs/guest/root.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { Fault } from '../../../src/base/fault.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { gatherFacts, LockoutFacts } from '../../../src/guest/lockout/facts.ts'
import { serveLockout } from '../../../src/guest/lockout/socket.ts'

const files: Readonly<Record<string, string>> = {
  'etc/passwd': 'root:x:0:0:root:/root:/bin/bash\n',
  'etc/shadow': 'root:*:1:0:9:7:::\nagent:!:1\nopen::1\nset:$y$j9T$secret-hash$x:1\n',
  'run/strongroom/authorized_keys': 'ssh-ed25519 AAAA\n',
  'proc/cmdline': 'quiet\n',
  'proc/modules': 'virtio_net 1 0 - Live 0x0\next4 2 1 - Live 0x0\n',
  'proc/mounts': 'proc /proc proc rw 0 0\nx /y debugfs rw 0 0\n',
  'proc/net/tcp':
    '  sl  local_address rem_address   st\n   0: 00000000:0016 00000000:0000 0A 0:0 00:0 0 0 0 1\n   1: 0100007F:0016 0100007F:9999 01 0:0 00:0 0 0 0 1\n',
  'proc/net/udp': '  sl  local_address\n   0: 00000000:0044 00000000:0000 07 0:0 00:0 0 1000 0 1\n',
  'proc/sys/kernel/tainted': '0\n',
  'proc/sys/kernel/sysrq': '0\n',
  'sys/kernel/security/lockdown': 'none [integrity] confidentiality\n',
  'usr/lib/modules/6.12/kernel/virtio-net.ko.xz': '',
  'usr/lib/modules/6.12/kernel/fs/ext4.ko': '',
  'proc/7/cmdline': 'sshd: /usr/sbin/sshd -D -e [listener] 0 of 10-100 startups\0',
  'proc/7/status': 'Name:\tsshd\nPid:\t7\nPPid:\t1\nTracerPid:\t0\nUid:\t0\t0\t0\t0\n',
  'proc/8/cmdline': '/bin/sh\0-i\0',
  'proc/8/fdinfo/0': 'pos:\t0\nflags:\t0100002\n',
  'proc/8/fdinfo/1': 'pos:\t0\nflags:\t0100001\n',
  'proc/8/fdinfo/2': 'pos:\t0\nflags:\t0100002\n',
}

async function planted() {
  const sandbox = await makeSandbox()
  for (const [path, text] of Object.entries(files)) {
    fs.mkdirSync(join(sandbox.root, dirname(path)), { recursive: true })
    fs.writeFileSync(join(sandbox.root, path), text)
  }
  fs.mkdirSync(join(sandbox.root, 'proc/8/fd'))
  fs.symlinkSync('/dev/ttyS0', join(sandbox.root, 'proc/8/fd/0'))
  fs.symlinkSync('/dev/console', join(sandbox.root, 'proc/8/fd/1'))
  fs.symlinkSync('/dev/null', join(sandbox.root, 'proc/8/fd/2'))
  return sandbox
}

/** As sshd prints the environment that a claim has given to sessions. */
const printed = 'usepam no\nsetenv OPENAI_API_KEY=gw_00000000_secret\nSetEnv A=gw_00000000_secret\nx11forwarding no\n'
const answering = { sshdProgram: '/usr/sbin/sshd', run: async () => ({ stdout: printed, stderr: '' }) }

describe('the facts', () => {
  // Goal: each file is read for exactly what is judged, and no password's hash leaves it.
  test('are what the files say', async () => {
    await using sandbox = await planted()
    const facts = await gatherFacts({ root: sandbox.root, ...answering })
    expect(Check(LockoutFacts, facts)).toBe(true)
    expect(JSON.stringify(facts)).not.toContain('secret-hash')
    expect(facts).toMatchObject({
      passwords: [
        { name: 'root', password: 'none' },
        { name: 'agent', password: 'none' },
        { name: 'open', password: 'empty' },
        { name: 'set', password: 'set' },
      ],
      authorizedKeys: 'ssh-ed25519 AAAA\n',
      sshd: { ok: true, text: 'usepam no\nx11forwarding no\n' },
      sshdTitles: ['sshd: /usr/sbin/sshd -D -e [listener] 0 of 10-100 startups'],
      consoleReaders: [{ pid: 8, title: '/bin/sh -i', device: '/dev/ttyS0' }],
      sockets: [
        { protocol: 'tcp', address: '00000000', port: 22, uid: 0 },
        { protocol: 'udp', address: '00000000', port: 68, uid: 1000 },
      ],
      agentOps: [
        'hello',
        'network',
        'claim',
        'evidence',
        'receipt',
        'egress',
        'idle',
        'snapshot',
        'restore',
        'certificate',
        'shutdown',
      ],
      modules: ['virtio_net', 'ext4'],
      measuredModules: ['ext4', 'virtio_net'],
      lockdown: 'none [integrity] confidentiality',
      mountTypes: ['proc', 'debugfs'],
      hasMemoryDevice: false,
    })
  })

  // Goal: sshd forks for a connection, and the child has its title until it execs: no stranger who connects, and no
  // program of the login user, makes a second listener of it. A second one that root started is one.
  test('count no sshd twice', async () => {
    await using sandbox = await planted()
    const plant = (pid: number, parent: number, uid: number, title: string) => {
      fs.mkdirSync(join(sandbox.root, `proc/${pid}`))
      fs.writeFileSync(join(sandbox.root, `proc/${pid}/cmdline`), title)
      const status = `Name:\tsshd\nPid:\t${pid}\nPPid:\t${parent}\nTracerPid:\t0\nUid:\t${uid}\t${uid}\t0\t0\n`
      fs.writeFileSync(join(sandbox.root, `proc/${pid}/status`), status)
    }
    const titles = async () => (await gatherFacts({ root: sandbox.root, ...answering })).sshdTitles
    plant(20, 7, 0, 'sshd: /usr/sbin/sshd -D -e [listener] 1 of 10-100 startups\0')
    plant(21, 1, 1000, 'sshd: /usr/sbin/sshd -D -e [listener] 0 of 10-100 startups\0')
    expect(await titles()).toEqual(['sshd: /usr/sbin/sshd -D -e [listener] 0 of 10-100 startups'])
    plant(22, 1, 0, 'sshd: /usr/sbin/sshd -p 22 [listener]\0')
    expect(await titles()).toHaveLength(2)
  })

  // Goal: what is missing is said to be missing; nothing throws.
  test('of an empty machine', async () => {
    await using sandbox = await makeSandbox()
    const failing = async () => {
      throw new Fault('host.command_failed', 'sshd: no hostkeys')
    }
    const facts = await gatherFacts({ root: sandbox.root, sshdProgram: '/usr/sbin/sshd', run: failing })
    expect(Check(LockoutFacts, facts)).toBe(true)
    expect(facts).toMatchObject({ passwd: '', passwords: [], authorizedKeys: null, lockdown: null, tainted: null })
    expect(facts.sshd).toEqual({ ok: false, text: 'sshd: no hostkeys' })
  })
})

describe('the socket', () => {
  // Goal: whoever connects gets the facts whole, whatever is sent; many at once cost one look.
  test('tells the facts', async () => {
    await using sandbox = await planted()
    const path = sandbox.paths.lockoutSocket
    let looks = 0
    const gather = async () => {
      looks += 1
      return { ...(await gatherFacts({ root: sandbox.root, ...answering })), modules: Array(5_000).fill('a-long-name') }
    }
    using _server = serveLockout({ path, gather, clock: systemClock, log: silentLogger })
    expect(fs.statSync(path).mode & 0o777).toBe(0o666)
    const talker = await opened(path)
    talker.on('error', () => {}) // it may have been answered, and closed, before it spoke
    talker.write('{"op":"exec"}\n'.repeat(1_000))
    const texts = await Promise.all(Array.from({ length: 8 }, () => readAll(path)))
    talker.destroy()
    for (const text of texts) expect(Check(LockoutFacts, JSON.parse(text))).toBe(true)
    expect(looks).toBe(1)
  })

  // Goal: connections that are held open cost no more than their bound, and the next one is answered once they end.
  test('is bounded', async () => {
    await using sandbox = await planted()
    const path = sandbox.paths.lockoutSocket
    using _server = serveLockout({
      path,
      clock: systemClock,
      log: silentLogger,
      gather: () => new Promise<LockoutFacts>(() => {}),
    })
    const held = await Promise.all(Array.from({ length: 16 }, () => opened(path)))
    expect(await readAll(path).catch(() => '')).toBe('')
    for (const socket of held) socket.destroy()
  })
})

async function opened(path: string) {
  const socket = connect(path)
  await new Promise((resolve, reject) => socket.once('connect', resolve).once('error', reject))
  return socket
}

async function readAll(path: string): Promise<string> {
  const socket = await opened(path)
  socket.write('?')
  let text = ''
  for await (const chunk of socket) {
    text += String(chunk)
    if (text.endsWith('\n')) break
  }
  return text
}
