// Goal: an alert reaches a mail server that /etc/hosts names while no DNS server answers, which is when alerts matter.
// Needs root: a namespace with files of its own.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { needsRoot } from '../../../scripts/rigs/netns.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-mail-names-'))
afterAll(() => rmSync(dir, { recursive: true }))
const program = join(import.meta.dir, '../../rigs/monitoring/mail-program.ts')

const enter = `
mount --make-rprivate /
mount --bind "$1/hosts" /etc/hosts
mount --bind "$1/resolv.conf" /etc/resolv.conf
ip link set lo up
ip link add up0 type veth peer name up1
ip address add 192.0.2.10/24 dev up0
ip link set up0 up
ip link set up1 up
exec "$2" "$3" "$1"
`

test.skipIf(!needsRoot(import.meta.path))(
  'goal: /etc/hosts counts before DNS, and the certificate is for its name',
  async () => {
    writeFileSync(join(dir, 'hosts'), '127.0.0.1 localhost\n127.0.0.2 mail.internal\n127.0.0.1 mail.internal\n')
    writeFileSync(join(dir, 'resolv.conf'), 'nameserver 127.0.0.1\n')
    const argv = ['unshare', '--mount', '--net', 'sh', '-euc', enter, 'sh', dir, process.execPath, program]
    const child = Bun.spawn(argv, { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe', timeout: 60_000 })
    const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
    expect([err, out]).toEqual(['', 'mail.internal: sent, 1 e-mails; other.internal: not sent\n'])
  },
  70_000,
)
