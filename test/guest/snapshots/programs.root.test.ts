// Goal: the programs of the image pack the owner's files for the owner's keys alone and restore them as they were, with
// the owner's rights; what is damaged, cut or for another key restores nothing, and says so.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { createReadStream, readFileSync, writeFileSync } from 'node:fs'
import { appendFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Decrypter } from 'age-encryption'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { ageHeaderIn, oneTimeHeader } from '../../../src/client/snapshots/age-header.ts'
import { readSshPrivateKey, sshIdentity } from '../../../src/client/snapshots/age-ssh.ts'
import { Transfers } from '../../../src/instances/snapshots/transfers.ts'
import { openSnapshotMachine, type SnapshotMachine } from '../../rigs/guest/snapshot-machine.ts'

let machine: SnapshotMachine
let transfers: Transfers
const address = '127.0.0.1'
const port = 38_446
const token = 'ab'.repeat(32)
const pipe = 'p0123456789abcde'
const at = (name: string) => join(machine.shared, name)

beforeAll(() => {
  machine = openSnapshotMachine()
  for (const name of ['key', 'other']) {
    Bun.spawnSync(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', at(name)])
  }
  Bun.spawnSync(['ssh-keygen', '-q', '-t', 'ecdsa', '-N', '', '-f', at('ecdsa')])
  transfers = new Transfers({ hostname: address, port, log: silentLogger })
})
afterAll(() => {
  transfers.stop()
  machine[Symbol.dispose]()
})

const FILES = `
as_owner mkdir -p /home/agent/.config/opencode /home/agent/src
as_owner sh -c 'echo key >/home/agent/.config/opencode/inference.key; echo mine >/home/agent/.config/opencode/opencode.json'
as_owner sh -c 'echo "hello" >/home/agent/src/a; chmod 0751 /home/agent/src; ln /home/agent/src/a /home/agent/src/b; ln -s /etc/passwd /home/agent/link; ln -s src /home/agent/dir'
as_owner truncate --size=64M /home/agent/sparse
as_owner touch --date=2001-02-03T04:05:06Z /home/agent/src/a
as_owner perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "/home/agent/socket", Listen => 1) or die'
mkdir /home/agent/mounted && mount -t tmpfs tmpfs /home/agent/mounted && echo outside >/home/agent/mounted/file
in_private_root sh -c 'set -e; mkdir -p /run/strongroom/private-root/upper/usr/bin && cd /run/strongroom/private-root/upper/usr/bin && echo tool >tool && chmod 4755 tool && mkdir var && echo db >var/db && chown 5:7 var/db && mknod gone c 0 0'
in_private_root perl -e '$p = "/run/strongroom/private-root/upper/usr/bin/var"; $k = "user.overlay.opaque"; $v = "y"; syscall(188, $p, $k, $v, 1, 0) == 0 or die $!'
`
const SHOW = `
cd /home/agent && find . -name mounted -prune -o -printf '%P %y %m %U:%G %l\\n' | sort
cat src/a; stat --format='%Y %h' src/a; du --block-size=1K sparse | cut -f1
cd /run/strongroom/private-root/upper 2>/dev/null && find . -printf '%P %y %m %U:%G\\n' | sort && cat usr/bin/tool && perl -e '$p = "usr/bin/var"; $k = "user.overlay.opaque"; $b = "\\0" x 9; $n = syscall(191, $p, $k, $b, 9); print substr($b, 0, $n)'
`

/** Sends what the machine packs into a file of the shared directory. */
async function pack(name: string, script: string) {
  writeFileSync(at(name), '')
  const stopped = new AbortController()
  const expected = { token, address, signal: stopped.signal }
  const received = transfers
    .receive(expected, chunk => appendFile(at(name), chunk))
    .then(
      () => null,
      error => error as Error,
    )
  const ended = await machine.run(`${script}\necho ${token} | /usr/lib/strongroom/snapshot send any ${address} ${port}`)
  if (ended.code !== 0) stopped.abort(new Error('nothing was sent'))
  return { ...ended, failure: await received }
}

const FOR_KEY = 'cp "$shared/key.pub" /run/strongroom/authorized_keys\n'

async function opened(name: string, keyName = 'key') {
  const bytes = readFileSync(at(name))
  const header = ageHeaderIn(bytes)
  const read = readSshPrivateKey(readFileSync(at(keyName), 'utf8'))
  if (header === null || read.kind !== 'key') throw new Error('no header, or no key')
  const decrypter = new Decrypter()
  decrypter.addIdentity(sshIdentity(read.key))
  return { header, once: oneTimeHeader(await decrypter.decryptHeader(header), systemRandom) }
}

async function restore(name: string, { header, once }: Awaited<ReturnType<typeof opened>>, before = '', env = {}) {
  const lines = [pipe, once.identity, Buffer.from(once.header).toString('base64'), header.length, 'a1'.repeat(32)]
  writeFileSync(at('lines'), lines.map(line => `${line}\n`).join(''), { mode: 0o644 })
  const stopped = new AbortController()
  const sent = transfers
    .send({ token, address, signal: stopped.signal }, () => createReadStream(at(name)))
    .catch(() => {})
  const ended = await machine.run(
    `${before}
    echo ${token} | /usr/lib/strongroom/snapshot fetch ${pipe} ${address} ${port} & fetching=$!
    code=0; as_owner strongroom-restore <"$shared/lines" || code=$?
    { kill $fetching || :; } 2>/dev/null
    ${SHOW}
    exit $code`,
    env,
  )
  stopped.abort(new Error('the machine has ended'))
  await sent
  return ended
}

test('goal: files, owners, modes, links and what private-root wrote come back; the instance key, sockets and mounts do not', async () => {
  const { code, stdout, stderr, failure } = await pack('whole', `${FOR_KEY}${FILES}`)
  expect([code, stderr, failure]).toEqual([0, '', null])
  const sealed = readFileSync(at('whole'))
  const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')
  const key = await opened('whole')
  expect(stdout).toMatch(new RegExp(`^${sha256(sealed)} ${sha256(key.header)} [0-9a-f]{64}\n$`))
  // 64 MiB of holes.
  expect(sealed.length).toBeLessThan(100_000)
  const back = await restore('whole', key)
  expect([back.code, back.stderr]).toEqual([0, ''])
  expect(back.stdout).toBe(
    `${[
      ' d 755 1000:1000 ',
      '.config d 755 1000:1000 ',
      '.config/opencode d 755 1000:1000 ',
      '.config/opencode/opencode.json f 644 1000:1000 ',
      'dir l 777 1000:1000 src',
      'link l 777 1000:1000 /etc/passwd',
      'sparse f 644 1000:1000 ',
      'src d 751 1000:1000 ',
      'src/a f 644 1000:1000 ',
      'src/b f 644 1000:1000 ',
      'hello',
      `${Date.parse('2001-02-03T04:05:06Z') / 1000} 2`,
      '0',
      ' d 755 1000:1000',
      'usr d 755 1000:1000',
      'usr/bin d 755 1000:1000',
      'usr/bin/gone c 644 1000:1000',
      'usr/bin/tool f 4755 1000:1000',
      'usr/bin/var d 755 1000:1000',
      'usr/bin/var/db f 644 100004:100006',
      'tool',
    ].join('\n')}\ny`,
  )
})

test('goal: into another image the home comes back alone, and the message says so', async () => {
  const back = await restore('whole', await opened('whole'), '', { root_hash: 'b2'.repeat(32) })
  expect(back.code).toBe(0)
  expect(back.stderr).toContain('what private-root installed was left out')
  expect(back.stdout).toContain('src/a f 644 1000:1000')
  expect(back.stdout).not.toContain('usr/bin')
})

test('goal: what comes over the session itself is restored the same; cut, it fails and leaves no ciphertext behind', async () => {
  const { header, once } = await opened('whole')
  const sealed = readFileSync(at('whole')).subarray(header.length)
  const lines = ['stdin', once.identity, Buffer.from(once.header).toString('base64'), '0', 'a1'.repeat(32)]
  const results: unknown[] = []
  for (const bytes of [sealed, sealed.subarray(0, sealed.length - 1)]) {
    writeFileSync(at('session'), Buffer.concat([Buffer.from(lines.map(line => `${line}\n`).join('')), bytes]))
    const { code, stdout } = await machine.run(`
      cp "$shared/session" /run/session; mount -t tmpfs tmpfs /tmp
      code=0; cat /run/session | as_owner strongroom-restore 2>/dev/null || code=$?
      find /run/strongroom /tmp -type f -size +1k; find /run/strongroom -name 'restore-*'
      cat /home/agent/src/a 2>/dev/null
      exit $code`)
    results.push([code === 0, stdout])
  }
  expect(results).toEqual([
    [true, 'hello\n'],
    [false, expect.not.stringContaining('/')],
  ])
})

test('goal: while private-root is in use nothing is replaced', async () => {
  const busy = 'as_owner touch /run/strongroom/private-root/lock; exec 8>>/run/strongroom/private-root/lock; flock 8\n'
  const back = await restore('whole', await opened('whole'), busy)
  expect(back.code).not.toBe(0)
  expect(back.stderr).toContain('private-root is in use')
  expect(back.stdout).not.toContain('src/a')
})

test('goal: a cut, changed or foreign ciphertext ends with a failure', async () => {
  const sealed = readFileSync(at('whole'))
  const key = await opened('whole')
  writeFileSync(at('cut'), sealed.subarray(0, sealed.length - 1))
  const changed = Buffer.from(sealed)
  changed[changed.length - 100] = (changed[changed.length - 100] ?? 0) ^ 1
  writeFileSync(at('changed'), changed)
  writeFileSync(at('none'), sealed.subarray(0, key.header.length))
  for (const name of ['cut', 'changed', 'none']) {
    const back = await restore(name, key)
    expect([name, back.code === 0]).toEqual([name, false])
  }
  const other = await pack('foreign', `cp "$shared/other.pub" /run/strongroom/authorized_keys\n${FILES}`)
  expect(other.code).toBe(0)
  expect((await restore('foreign', key)).code).not.toBe(0)
  expect(opened('foreign')).rejects.toThrow('no identity matched')
})

test('goal: all keys that may log in can open it, and recipients that the owner added', async () => {
  Bun.spawnSync(['sh', '-c', `age-keygen -o ${at('age')} 2>/dev/null && age-keygen -y ${at('age')} >${at('age.pub')}`])
  const both =
    'cat "$shared/key.pub" "$shared/other.pub" "$shared/ecdsa.pub" >/run/strongroom/authorized_keys; cp "$shared/age.pub" /run/strongroom/snapshot-recipients\n'
  expect((await pack('both', both + FILES)).code).toBe(0)
  await opened('both', 'key')
  await opened('both', 'other')
  expect(Bun.spawnSync(['age', '--decrypt', '--identity', at('age'), at('both')]).exitCode).toBe(0)
})

test('goal: without a key that age knows nothing is sent, and the message names the remedy', async () => {
  const { code, stdout, stderr } = await pack(
    'none-sent',
    `cp "$shared/ecdsa.pub" /run/strongroom/authorized_keys\n${FILES}`,
  )
  expect([code, stdout, readFileSync(at('none-sent')).length]).toEqual([1, '', 0])
  expect(stderr).toContain('--recipient')
}, 60_000)

test('goal: what fails names no file of the owner to the host', async () => {
  const secret = `${FOR_KEY}${FILES}\nchmod 0700 /home/agent/src; chown 5:5 /home/agent/src\n`
  const { code, stderr } = await pack('unreadable', secret)
  expect([code, stderr]).toEqual([1, 'packing or sending broke off\n'])
})

test('goal: a host that breaks off makes it fail', async () => {
  const stopped = new AbortController()
  const expected = { token, address, signal: stopped.signal }
  const received = transfers.receive(expected, () => Promise.reject(new Error('full'))).catch(error => error)
  const ended = await machine.run(
    `${FOR_KEY}${FILES}as_owner sh -c 'head -c 20000000 /dev/urandom >/home/agent/large'
     echo ${token} | /usr/lib/strongroom/snapshot send any ${address} ${port}`,
  )
  stopped.abort(new Error('nothing was sent'))
  expect((await received).message).toBe('full')
  expect([ended.code, ended.stdout]).toEqual([1, ''])
})

test('goal: a fetch that no session reads ends by itself, without a connection and without its pipe', async () => {
  const { code, stdout } = await machine.run(
    `code=0; echo ${token} | PIPE_WAIT_S=1 /usr/lib/strongroom/snapshot fetch ${pipe} ${address} ${port} || code=$?
    echo $code; ls /run/strongroom | grep restore- || echo none`,
  )
  expect([code, stdout]).toEqual([0, '143\nnone\n'])
})

test('goal: a write through a mapping of a page that was written before the last snapshot is a change', async () => {
  // As on a scratch disk: ext4, whose pages this script alone writes back.
  const writer = `import mmap, sys
file = open('/home/agent/mapped', 'r+b'); pages = mmap.mmap(file.fileno(), 4096)
for line in sys.stdin: pages[0:1] = line[0:1].encode(); print('written', flush=True)`
  writeFileSync(at('writer.py'), writer)
  const { stdout, stderr } = await machine.run(
    `${FOR_KEY}
    truncate --size=64M "$shared/disk" && mkfs.ext4 -q "$shared/disk" && mount -o loop "$shared/disk" /home/agent
    list() { nsenter --user=/run/strongroom/user-namespace -- /usr/lib/strongroom/snapshot-pack list | sha256sum; }
    rmdir /home/agent/lost+found; truncate --size=4096 /home/agent/mapped
    coproc python3 "$shared/writer.py"
    write() { echo $1 >&\${COPROC[1]}; read -r _ <&\${COPROC[0]}; }
    write a; before=$(list); [ "$before" = "$(list)" ] && echo same
    write b; [ "$before" = "$(list)" ] || echo changed
    kill $COPROC_PID`,
  )
  expect([stdout, stderr]).toEqual(['same\nchanged\n', ''])
})

test('goal: unchanged files are found unchanged, whatever read them; each change, and each new recipient, is one', async () => {
  // Without a listener no snapshot is sent, and `unchanged` comes before that.
  const { stdout, stderr } = await machine.run(
    `${FOR_KEY}${FILES}
    list() { nsenter --user=/run/strongroom/user-namespace -- /usr/lib/strongroom/snapshot-pack list | sha256sum | cut -d' ' -f1; }
    send() { echo ${token} | /usr/lib/strongroom/snapshot send "$before" ${address} 1 2>/dev/null || echo changed; }
    home=/home/agent
    try() { before=$(list); send; eval "$1"; send; before=$(list); send; }
    try 'cat $home/src/a >/dev/null'
    try 'as_owner sh -c "echo jello >$home/src/a && touch --date=2001-02-03T04:05:06Z $home/src/a"'
    try 'as_owner rm $home/src/b'
    try 'as_owner mv $home/link $home/renamed'
    try 'as_owner chmod 0640 $home/src/a'
    try 'in_private_root touch /run/strongroom/private-root/upper/usr/bin/new'
    try 'cp "$shared/other.pub" /run/strongroom/authorized_keys'
    try 'cp "$shared/other.pub" /run/strongroom/snapshot-recipients'
    # As without a scratch disk, where times prove nothing.
    mv /run/strongroom/private-root /run/elsewhere
    try :`,
  )
  const each = ['unchanged', 'changed', 'unchanged']
  const reads = ['unchanged', 'unchanged', 'unchanged']
  expect([stderr, stdout.trim().split('\n')]).toEqual([
    '',
    [...reads, ...Array(7).fill(each).flat(), ...Array(3).fill('changed')],
  ])
})
