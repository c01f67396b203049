// Goal: a program of the agent's user uses a secret through the real filter and broker, and neither it nor root of its
// user namespace finds the value anywhere; without the secret nothing is inserted.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { certifyHost } from '../../../src/broker/secrets/certificates.ts'
import type { Secret } from '../../../src/contract/vm/orders/secret.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { sessionText } from '../../../src/guest/secrets/session.plan.ts'
import { lineOf } from '../../rigs/broker/open-world.ts'
import { agentUid, brokerUid, startVm, type TestVm } from '../../rigs/broker/vm.ts'

const value = 'ghp_0123456789abcdefghij'
const secret: Secret = {
  name: 'GITHUB_TOKEN',
  host: 'github.com',
  port: 9443,
  header: 'Authorization',
  format: 'Bearer {}',
  value,
}
const address = '21.0.0.10'
const names = {
  ...{ hostname: 'abcd1234.acme.agents.test', name: 'abcd1234', inference: { baseUrl: '', address: null } },
}

inOwnNetns(
  import.meta.path,
  () => {
    const stack = new AsyncDisposableStack()
    let vm: TestVm
    let paths = guestPaths('')

    const put = async (secrets: readonly Secret[]) =>
      expect(await vm.reach.change({ secrets }, names, 30_000)).toEqual({ ok: true })
    /** A script of a new session of the agent's. */
    const session = (script: string, secrets: readonly Secret[] = [secret]) =>
      vm.as(agentUid, [
        'sh',
        '-euc',
        `${sessionText(
          secrets.map(({ name }) => name),
          paths,
        )}\n${script}`,
      ])
    const seen = async (): Promise<unknown> =>
      JSON.parse(await vm.world.run(['curl', '--silent', '--insecure', `https://${address}:9443/seen`]))
    const pid = (): number => JSON.parse(readFileSync(paths.brokerRecord, 'utf8')).pid

    beforeAll(async () => {
      vm = await startVm(stack, names.inference)
      paths = guestPaths(vm.directory)
      const made = certifyHost('github.com', { nowMs: Date.now(), random: systemRandom })
      writeFileSync(join(paths.runDir, 'system.pem'), made.authority)
      writeFileSync(join(vm.directory, 'leaf.pem'), made.certificate)
      writeFileSync(join(vm.directory, 'leaf.key'), made.key, { mode: 0o600 })
      const program = join(import.meta.dir, '../../rigs/broker/echo-world.ts')
      const server = Bun.spawn(vm.world.argv([process.execPath, program, address, '9443', vm.directory]), {
        stdout: 'pipe',
      })
      stack.defer(() => server.kill('SIGKILL'))
      await lineOf(server.stdout)
    }, 60_000)
    afterAll(() => stack.disposeAsync())

    test('goal: the server gets the value, and the program gets a placeholder and asterisks', async () => {
      await put([secret])
      const shown = await session('echo $GITHUB_TOKEN; curl --silent --show-error https://github.com:9443/echo')
      const [placeholder, echo = ''] = shown.split('\n')
      expect(placeholder).toBe('strongroom-placeholder-GITHUB_TOKEN')
      expect(JSON.parse(echo).authorization).toBe(`Bearer ${'*'.repeat(value.length)}`)
      expect(await seen()).toEqual([`Bearer ${value}`])
    }, 60_000)

    test('goal: neither file, memory nor log has the value for the agent, also as root of a user namespace', async () => {
      const look = `import ctypes, os, sys
pid, value, directory = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3]
results = []
def attempt(name, work):
    try: results.append(name + ': ' + str(work()))
    except OSError as error: results.append('refused ' + name)
def holds(path):
    with open(path, 'rb') as file:
        return value in file.read()
for name in ['environ', 'mem', 'maps', 'auxv', 'syscall', 'stack', 'pagemap']:
    attempt(name, lambda: holds(f'/proc/{pid}/{name}'))
attempt('descriptors', lambda: os.listdir(f'/proc/{pid}/fd'))
attempt('root', lambda: os.listdir(f'/proc/{pid}/root'))
libc = ctypes.CDLL(None, use_errno=True)
for request in [16, 0x4206]:
    attempt(f'ptrace {request}', lambda: 'attached' if libc.ptrace(request, pid, 0, 0) == 0 else (_ for _ in ()).throw(OSError()))
class Vector(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(64)
def read():
    mine, theirs = Vector(ctypes.addressof(buffer), 64), Vector(0x400000, 64)
    if libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) < 0: raise OSError()
attempt('process_vm_readv', read)
if sys.argv[4] == 'kill': attempt('core dump', lambda: os.kill(pid, 6))
for path, _, files in os.walk(directory):
    for name in files:
        try:
            if holds(os.path.join(path, name)): results.append('found in ' + name)
        except OSError: pass
print('\\n'.join(result for result in results if not result.startswith('refused ')))`
      const argv = ['/usr/bin/python3', '-c', look, String(pid()), value, vm.directory, 'kill']
      expect((await vm.as(agentUid, argv)).trim()).toBe('')
      const asRoot = ['unshare', '--user', '--map-root-user', '--mount', ...argv]
      expect((await vm.as(agentUid, asRoot)).trim()).toBe('')
      // The attempts can fail: the broker's own user finds it.
      expect((await vm.as(brokerUid, argv.with(-1, 'spare'))).trim()).toContain('found in broker.json')
    }, 60_000)

    test('goal: no log of root has the value', async () => {
      const found = Bun.spawnSync([
        'grep',
        '--recursive',
        '--fixed-strings',
        '--files-with-matches',
        value,
        vm.directory,
      ])
      expect(found.stdout.toString()).toBe(`${paths.brokerState}\n`)
      expect(JSON.stringify(await vm.log())).not.toContain(value)
    })

    test('goal: with a policy that lists nothing, the host of a secret is reached at its port alone', async () => {
      await vm.set({ default: 'refuse', allow: [] })
      expect(await session('curl --silent --show-error https://github.com:9443/echo')).toContain('"Bearer ***')
      for (const url of ['https://github.com', 'http://github.com', `https://${address}:9443/echo`]) {
        expect(await session(`curl --silent --max-time 8 --insecure ${url}`).catch(() => 'refused')).toBe('refused')
      }
      await vm.set({ default: 'allow', allow: [] })
    }, 60_000)

    test('goal: a removed secret is inserted no more, and the connection that had it is closed', async () => {
      const open = vm.start(agentUid, [
        '/usr/bin/python3',
        '-uc',
        `import ssl, socket, sys
context = ssl.create_default_context(cafile='${paths.rootsFile}')
with context.wrap_socket(socket.create_connection(('github.com', 9443), 8), server_hostname='github.com') as one:
    one.settimeout(20)
    one.sendall(b'GET / HTTP/1.1\\r\\nHost: github.com:9443\\r\\n\\r\\n'); got = b''
    while b'}' not in got: got += one.recv(10000)
    print('open')
    sys.stdin.readline()
    try:
        one.sendall(b'GET / HTTP/1.1\\r\\nHost: github.com:9443\\r\\n\\r\\n'); print('answered' if one.recv(100) else 'closed')
    except OSError: print('closed')`,
      ])
      stack.defer(() => open.kill())
      expect(await lineOf(open.stdout)).toBe('open\n')
      const before = (await seen()) as unknown[]
      await put([])
      open.stdin.write('go\n')
      await open.stdin.flush()
      expect(await lineOf(open.stdout)).toBe('closed\n')
      const shown = await session('curl --silent --insecure https://github.com:9443/echo', [])
      expect(JSON.parse(shown).authorization).toBeUndefined()
      expect(await seen()).toEqual([...before, null])
    }, 60_000)
  },
  { timeoutMs: 240_000 },
)
