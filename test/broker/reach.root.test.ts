// Goal: with a policy, programs of a VM reach the listed destinations and no others, whatever they try; root's filter,
// the resolver and the broker are the real ones, between two network namespaces.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import type { EgressPolicy } from '../../src/contract/http/egress-policy.ts'
import { guestPaths } from '../../src/guest/paths.ts'
import { lineOf } from '../rigs/broker/open-world.ts'
import { agentUid, brokerUid, gatewayUid, startVm, type TestVm } from '../rigs/broker/vm.ts'
import { WORLD } from '../rigs/broker/world-facts.ts'

const waitMs = 20_000
const policy: EgressPolicy = {
  default: 'refuse',
  allow: [
    ...[22, 80, 443].map(port => ({ host: 'github.com', port })),
    ...['*.githubusercontent.com', 'six.example.org', 'private.example.org', 'loopback.example.org'].map(host => ({
      host,
      port: 443,
    })),
  ],
}
const [, closed] = [WORLD.addresses[0], WORLD.addresses[2]]

inOwnNetns(
  import.meta.path,
  () => {
    const stack = new AsyncDisposableStack()
    let vm: TestVm
    /** A connection of the agent's from before the policy. */
    let before: ReturnType<TestVm['start']>

    const connecting = (address: string, port: number, data = '') =>
      `import socket,sys
with socket.create_connection((${JSON.stringify(address)}, ${port}), 8) as one:
    one.sendall(${JSON.stringify(data)}.encode()); one.settimeout(8); sys.stdout.write(one.recv(4096).decode('latin1'))`
    const python = (uid: number, text: string) => vm.as(uid, ['/usr/bin/python3', '-c', text])
    const reaches = (uid: number, address: string, port: number, data = 'x') =>
      python(uid, connecting(address, port, data)).catch(error => `refused: ${error.message.split('\n').at(-1)}`)
    const hello = (name: string) => `${readHello.replace('NAME', name)}`
    /** Sends a ClientHello for a server name to a host of the policy, and returns the answer. */
    const tls = (host: string, name: string) =>
      python(
        agentUid,
        `${hello(name)}
with socket.create_connection((${JSON.stringify(host)}, 443), 8) as one:
    one.sendall(hello); one.settimeout(15); sys.stdout.write(one.recv(4096).decode('latin1'))`,
      )

    const startServer = () => {
      const server = Bun.spawn(vm.world.argv(['/usr/bin/python3', '-uc', closedWindow]), {
        ...{ stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' },
      })
      stack.defer(() => server.kill())
      return server
    }

    beforeAll(async () => {
      vm = await startVm(stack, { baseUrl: 'https://gateway.example.net', address: null })
    }, 60_000)
    afterAll(() => stack.disposeAsync())

    test('goal: without a policy the agent reaches any address, so the tests below can fail', async () => {
      expect(await reaches(agentUid, closed, 443)).toContain(`${closed}:443 has 1 bytes`)
      expect(await reaches(agentUid, WORLD.v6, 8443)).toContain(`${WORLD.v6}:8443 has 1 bytes`)
      before = vm.start(agentUid, [
        '/usr/bin/python3',
        '-uc',
        `import socket,sys
one = socket.create_connection((${JSON.stringify(closed)}, 443), 8)
print('open')
sys.stdin.readline()
try:
    one.sendall(b'after the policy'); one.settimeout(8); print('answer', one.recv(100))
except OSError as error: print('refused', error)`,
      ])
      stack.defer(() => before.kill())
      expect(await lineOf(before.stdout)).toBe('open\n')
    })

    test('goal: what a program writes to a connection from before the policy, and closes, never arrives', async () => {
      const server = startServer()
      expect(await lineOf(server.stdout)).toBe('up\n')
      const writer = vm.start(agentUid, ['/usr/bin/python3', '-uc', writeAndClose])
      stack.defer(() => writer.kill())
      // The server's window is closed, so that no packet is due for a while.
      expect(await lineOf(writer.stdout)).toBe('full\n')
      await vm.set(policy)
      expect(Number(await lineOf(writer.stdout))).toBeGreaterThan(50_000)
      server.stdin.write('go\n')
      await server.stdin.flush()
      expect(Number(await lineOf(server.stdout))).toBeLessThanOrEqual(filledBytes)
    }, 60_000)

    test('goal: the injected agent gets nowhere with any of its tricks', async () => {
      await vm.set(policy)
      const [leakedBefore, seenBefore] = [await vm.leaked(), (await vm.seen()).length]
      const script = readFileSync(join(import.meta.dir, '../rigs/guest/injected-agent.py'), 'utf8')
      const brokerPid = JSON.parse(readFileSync(`${vm.directory}/run/strongroom/broker-process.json`, 'utf8')).pid
      const asked = {
        ...{ address: closed, v6: WORLD.v6, resolver: WORLD.resolver, device: 'eth0' },
        ...{ allowed: 'github.com', closed: 'evil.example.org', pids: [brokerPid] },
        files: ['broker.json', 'broker/in-force'].map(name => `${vm.directory}/run/strongroom/${name}`),
      }
      const results = JSON.parse(await vm.as(agentUid, ['/usr/bin/python3', '-c', script], JSON.stringify(asked)))
      const reached = Object.entries(results).filter(([, result]) => !String(result).startsWith('refused: '))
      expect(Object.fromEntries(reached)).toEqual({
        'groups joined': 'counted outside',
        'dns tunnel': 'code 3, 0 answers',
        'dns tunnel below the allowed name': 'code 3, 0 answers',
        'dns of a closed name': 'code 3, 0 answers',
        'dns of the allowed name': 'code 0, 1 answers',
        'allowed host': 'answered',
        'http on the allowed host': 'answered',
      })
      expect(Object.keys(results).length).toBeGreaterThan(45)
      expect(await vm.leaked()).toEqual(leakedBefore)
      const seen = (await vm.seen()).slice(seenBefore)
      expect(seen.filter(line => /injected|evil|c2VjcmV0|tunnel/.test(line))).toEqual([])
      expect(seen.filter(line => line.startsWith('dns')).length).toBeGreaterThan(0)
    }, 120_000)

    test('goal: a connection from before the policy ends with it', async () => {
      before.stdin.write('go\n')
      await before.stdin.flush()
      expect(await lineOf(before.stdout)).toStartWith('refused')
      expect((await vm.seen()).filter(line => line.includes('after the policy'))).toEqual([])
    })

    test('goal: a closed connection of the broker still delivers what is in its buffer', async () => {
      const listener = startServer()
      expect(await lineOf(listener.stdout)).toBe('up\n')
      const text = `import socket
one = socket.create_connection((${JSON.stringify(closed)}, ${closedPort}), 8); one.setblocking(False)
sent = 0
try:
    while sent < 200000: sent += one.send(b'S' * 50000)
except BlockingIOError: pass
one.close(); print(sent)`
      const sent = Number(await python(brokerUid, text))
      expect(sent).toBeGreaterThan(20_000)
      listener.stdin.write('go\n')
      await listener.stdin.flush()
      expect(await lineOf(listener.stdout)).toBe(`${sent}\n`)
    }, 60_000)

    test('goal: root sends with the group of snapshots, and no other user does', async () => {
      const inGroup = (uid: number) =>
        vm.as(0, [
          ...['setpriv', `--reuid=${uid}`, '--regid=902', '--clear-groups', '/usr/bin/python3', '-c'],
          connecting(WORLD.addresses[0], 443, 'x'),
        ])
      expect(await inGroup(0)).toContain('443 has 1 bytes')
      expect(await inGroup(agentUid).catch(() => 'refused')).toBe('refused')
    })

    test('goal: root and every other user is refused as well, except for the broker and the endpoint', async () => {
      for (const uid of [0, 1, 65_534, 100_005]) expect(await reaches(uid, closed, 443)).toStartWith('refused')
      for (const uid of [gatewayUid, brokerUid]) {
        expect(await reaches(uid, WORLD.addresses[0], 443)).toContain('443 has 1 bytes')
      }
    })

    test('goal: allowed names are reached at their true addresses, over both families and in every protocol', async () => {
      expect(await tls('github.com', 'github.com')).toContain('21.0.0.10:443 has')
      expect(await tls('six.example.org', 'SIX.example.org')).toContain(`${WORLD.v6}:443 has`)
      expect(await tls('raw.githubusercontent.com', 'raw.githubusercontent.com')).toContain('21.0.0.11:443 has')
      // The server speaks first, and the program is silent.
      expect(await reaches(agentUid, 'github.com', 22, '')).toBe('SSH-2.0-world\r\n')
      expect(await tls('raw.githubusercontent.com', 'github.com').catch(() => 'closed')).toBe('')
    })

    test('goal: a name that leads to a private or local address leads nowhere', async () => {
      for (const host of ['private.example.org', 'loopback.example.org'])
        expect(await tls(host, host).catch(() => '')).toBe('')
      const rows = await vm.log()
      expect(rows.filter(({ host }) => host === 'private.example.org')).toMatchObject([
        { verdict: 'refused', port: 443, reason: 'the name leads to a private address', count: 1 },
      ])
    })

    test('goal: the gateway of the claim resolves to its true address, though it is not listed', async () => {
      expect(await python(gatewayUid, "import socket; print(socket.gethostbyname('gateway.example.net'))")).toBe(
        '10.9.9.9\n',
      )
    })

    test('goal: bytes arrive whole in both directions, also after one side has ended', async () => {
      const text = `import socket, hashlib, sys
one = socket.create_connection(('github.com', 22), 8); one.settimeout(30)
one.recv(100)
sent = 0
import threading
got = []
def read():
    while True:
        piece = one.recv(65536)
        if not piece: break
        got.append(piece)
reader = threading.Thread(target=read); reader.start()
for _ in range(64):
    one.sendall(b'x' * 65536)
one.shutdown(socket.SHUT_WR)
reader.join(60)
text = b''.join(got).decode()
import re
print(sum(int(count) for count in re.findall(r'has (\\d+) bytes', text)), text.strip().splitlines()[-1])`
      expect(await python(agentUid, text)).toBe(`${64 * 65_536} 21.0.0.10:22 ends\n`)
    }, 60_000)

    test('goal: from outside only SSH is reached: neither a server of the agent nor the broker answers', async () => {
      const server = vm.start(agentUid, ['/usr/bin/python3', '-uc', listening('0.0.0.0', 8080)])
      const sshd = vm.start(0, ['/usr/bin/python3', '-uc', listening('0.0.0.0', 22)])
      stack.defer(() => server.kill())
      stack.defer(() => sshd.kill())
      expect([await lineOf(server.stdout), await lineOf(sshd.stdout)]).toEqual(['up\n', 'up\n'])
      const outside = (address: string, port: number) =>
        vm.world
          .run(['/usr/bin/python3', '-c', `${connecting(address, port).replace(', 8)', ', 2)')}`])
          .catch(() => 'refused')
      expect(await outside(WORLD.vm, 22)).toBe('hello')
      for (const port of [8080, 601, 602, 53]) expect(await outside(WORLD.vm, port)).toBe('refused')
      await vm.world.run(['ip', 'route', 'add', '198.18.0.0/15', 'via', WORLD.vm])
      expect(await outside('198.18.0.1', 601)).toBe('refused')
    }, 60_000)

    test('goal: the log names what was allowed and refused, and why', async () => {
      const rows = (await vm.log()).map(({ verdict, host, port, reason }) => `${verdict} ${host}:${port} ${reason}`)
      expect(rows).toContain('allowed github.com:443 null')
      expect(rows).toContain('refused evil.example.org:0 the policy does not list this name')
      expect(rows).toContain('refused github.com:443 its ClientHello names another host: evil.example.org')
      expect(rows).toContain('refused github.com:80 it asks for a tunnel (CONNECT)')
    })

    test('goal: a program that takes all connections of the log keeps the owner from no answer', async () => {
      const sockets = `${guestPaths(vm.directory).runDir}/broker`
      const flood = `import socket,sys
def opened(name):
    one = socket.socket(socket.AF_UNIX); one.settimeout(8); one.connect(${JSON.stringify(sockets)} + name); return one
held = [opened('/log.sock') for _ in range(16)]
try: print('the last one', opened('/log.sock').recv(9), flush=True)
except ConnectionError: print('the last one', b'', flush=True)
try: opened('/owner-log.sock'); print('opened', flush=True)
except PermissionError: print('refused', flush=True)
sys.stdin.read()`
      const program = vm.start(agentUid, ['/usr/bin/python3', '-c', flood])
      const reader = program.stdout.getReader()
      let text = ''
      while (text.split('\n').length < 3) {
        const { value, done } = await reader.read()
        if (done) break
        text += Buffer.from(value).toString()
      }
      expect(text).toBe("the last one b''\nrefused\n")
      expect((await vm.log()).length).toBeGreaterThan(3)
      program.kill()
      await program.exited
    })

    test('goal: another policy ends the connections that it does not allow, and no others', async () => {
      const open = (port: number) =>
        vm.start(agentUid, [
          '/usr/bin/python3',
          '-uc',
          `import socket,sys
one = socket.create_connection(('github.com', ${port}), 8)
one.sendall(b'GET / HTTP/1.1\\r\\nHost: github.com\\r\\n\\r\\n'); text = b''
while not text.endswith(b'bytes\\n'): text += one.recv(1000)
print('open')
one.settimeout(30); sys.stdin.readline()
try: one.sendall(b'more'); print('alive' if one.recv(100) else 'ended')
except OSError: print('ended')`,
        ])
      const [kept, dropped] = [open(80), open(22)]
      stack.defer(() => kept.kill())
      stack.defer(() => dropped.kill())
      expect([await lineOf(kept.stdout), await lineOf(dropped.stdout)]).toEqual(['open\n', 'open\n'])
      await vm.set({ default: 'refuse', allow: [{ host: 'github.com', port: 80 }] })
      for (const program of [kept, dropped]) program.stdin.write('go\n')
      await Promise.all([kept.stdin.flush(), dropped.stdin.flush()])
      expect([await lineOf(kept.stdout), await lineOf(dropped.stdout)]).toEqual(['alive\n', 'ended\n'])
      expect(await tls('github.com', 'github.com').catch(() => 'refused')).toBe('refused')
    }, 60_000)

    test('goal: while the broker is gone all is refused, and the next one serves the same policy', async () => {
      const { pid } = JSON.parse(readFileSync(`${vm.directory}/run/strongroom/broker-process.json`, 'utf8'))
      const leakedBefore = await vm.leaked()
      process.kill(pid, 'SIGKILL')
      await until('the broker is gone', waitMs, () => !existsSync(`/proc/${pid}`))
      expect(await reaches(agentUid, closed, 443)).toStartWith('refused')
      const request = 'GET / HTTP/1.1\r\nHost: github.com\r\n\r\n'
      const answers = async () => (await reaches(agentUid, 'github.com', 80, request)).startsWith('HTTP/1.1 200')
      await until('another broker serves', waitMs, answers)
      expect(await vm.leaked()).toEqual(leakedBefore)
    }, 60_000)

    test('goal: an open policy is as no policy', async () => {
      await vm.set({ default: 'allow', allow: [] })
      expect(vm.reach.policyText()).toBeNull()
      expect(await reaches(agentUid, closed, 443)).toContain('has 1 bytes')
      // The counter of leaks works.
      expect((await vm.leaked()).join('; ')).toMatch(/ 21\.0\.0\.66 tcp: \d/)
      expect(await python(agentUid, "import socket; print(socket.gethostbyname('evil.example.org'))")).toBe(
        `${closed}\n`,
      )
      await until('the broker has ended', waitMs, async () => (await vm.log().catch(() => null)) === null)
    })
  },
  { timeoutMs: 240_000 },
)

const closedPort = 8_765
/**
 * Python: a server that accepts a connection with a small window, reads after a line on standard input, and prints the
 * count.
 */
const closedWindow = `import socket,sys,struct
server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
server.bind(('0.0.0.0', ${closedPort})); server.listen(); print('up')
one, _ = server.accept(); server.close()
sys.stdin.readline()
one.settimeout(5); got = 0
try:
    while True:
        piece = one.recv(65536)
        if not piece: break
        got += len(piece)
except OSError: pass
print(got)`

const filledBytes = 30_000
/**
 * Python: fills the window of that server, waits until the next probe of the window is 4 s away (proc(5), `tm->when`),
 * and prints `full`. Once new connections are refused, writes more, closes, and prints the count.
 */
const writeAndClose = `import socket,sys,time
def connect(port):
    return socket.create_connection((${JSON.stringify(closed)}, port), 8)
one = connect(${closedPort})
one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200000)
one.sendall(b'A' * ${filledBytes}); one.setblocking(False)
port = ':%04X' % one.getsockname()[1]
def next_probe():
    for line in open('/proc/net/tcp'):
        words = line.split()
        if words[1].endswith(port):
            kind, when = words[5].split(':')
            return int(when, 16) / 100 if kind == '04' else 0
    return 0
while next_probe() < 4: time.sleep(0.01)
print('full')
while True:
    try: connect(443).close()
    except OSError: break
sent = 0
try:
    while sent < 200000: sent += one.send(b'S' * 50000)
except BlockingIOError: pass
one.close(); print(sent)
sys.stdin.readline()`

/** Python: the bytes of a ClientHello with one server name. */
const readHello = `import socket, struct, sys
server = b'NAME'
names = struct.pack('>HHHBH', 0, len(server) + 5, len(server) + 3, 0, len(server)) + server
body = b'\\x03\\x03' + b'\\0' * 32 + b'\\0' + b'\\0\\x02\\x13\\x01' + b'\\x01\\0' + struct.pack('>H', len(names)) + names
message = b'\\x01' + struct.pack('>I', len(body))[1:] + body
hello = b'\\x16\\x03\\x01' + struct.pack('>H', len(message)) + message`

function listening(address: string, port: number): string {
  return `import socket
server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(('${address}', ${port})); server.listen(); print('up')
while True: one, _ = server.accept(); one.sendall(b'hello'); one.close()`
}
