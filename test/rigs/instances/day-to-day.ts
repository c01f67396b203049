// The day-to-day tools of developers against an instance: copies, git, terminals that stay, editors with a server of
// their own, tools of administrators. Effects: ssh processes, files in the instance.

import { expect } from 'bun:test'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { lastingPort } from '../../../scripts/rigs/free-port.ts'
import { until } from '../../../scripts/rigs/until.ts'
import type { Inside } from './inside.ts'
import { startSshAgent } from './ssh-agent.ts'

const largeBytes = 50 * 1024 * 1024
const waitMs = 120_000

type Programs = {
  /** Runs a program of this machine with the options that reach the instance. */
  readonly run: (program: 'scp' | 'sftp', argv: readonly string[], stdin?: string) => Promise<string>
  /** `agent@ADDRESS`. */
  readonly there: string
}

/** All of it. `options`: those of a shared connection. */
export async function theDayToDay(inside: Inside, options: readonly string[]): Promise<void> {
  const { appliance, hostname } = inside
  const there = `agent@${(await appliance.resolve(hostname)) ?? ''}`
  const own = ['-q', ...options, '-o', `HostKeyAlias=${hostname}`, '-o', 'BatchMode=yes']
  const run: Programs['run'] = async (program, argv, stdin = '') => {
    const child = Bun.spawn([program, ...own, ...argv], { stdin: new Blob([stdin]), stdout: 'pipe', stderr: 'pipe' })
    const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text()])
    if ((await child.exited) !== 0) throw new Error(`${program} ${argv.join(' ')}: ${stderr}`)
    return stdout
  }
  await theCopies(inside, { run, there })
  await theSessionThatStays(inside)
  await theAdministrators(inside)
  await theRepositories(inside)
  await theEditor(inside, { run, there })
  await theFullDisk(inside)
  await theReboot(inside)
}

/** The older protocol of scp, a large file by SFTP, and the requests by which sshfs works. */
async function theCopies({ prints, appliance }: Inside, { run, there }: Programs): Promise<void> {
  const file = join(appliance.directory, 'large')
  const bytes = crypto.getRandomValues(new Uint8Array(65_536))
  writeFileSync(file, Buffer.alloc(largeBytes, bytes))
  const digest = new Bun.CryptoHasher('sha256').update(readFileSync(file)).digest('hex')
  const changes = [`put ${file} large`, 'rename large moved', 'symlink moved link', 'ln moved hard', 'chmod 600 moved']
  const listed = await run(
    'sftp',
    [there],
    [...changes, 'df', 'mkdir empty', 'rmdir empty', 'rm hard', 'bye', ''].join('\n'),
  )
  expect(listed).toMatch(/Size +Used +Avail/)
  expect(
    await prints('sha256sum moved; stat --format=%a moved; readlink link; ls -d hard empty 2>/dev/null || true'),
  ).toBe(`${digest}  moved\n600\nmoved`)
  writeFileSync(file, bytes)
  await run('scp', ['-O', file, `${there}:moved`])
  await run('scp', ['-O', `${there}:moved`, `${file}.back`])
  expect(readFileSync(`${file}.back`).equals(bytes)).toBe(true)
  await prints('rm moved link')
}

/** A program in tmux outlives the session that began it. */
async function theSessionThatStays({ appliance, hostname, prints }: Inside): Promise<void> {
  // A connection of its own, whose end is the end of its session.
  const begun = await appliance.ssh(hostname, [
    'tmux new-session -d -s work "echo $((6 * 7)); exec sleep 600"; echo begun',
  ])
  expect(begun.stdout).toBe('begun\n')
  await until('tmux has the output', waitMs, async () => (await prints('tmux capture-pane -p -t work')).includes('42'))
  expect(await prints('tmux list-sessions -F "#{session_name}"; tmux kill-session -t work')).toBe('work')
}

/** Ansible's way to run a module: a directory, a file by standard input, Python, the directory again. */
async function theAdministrators({ appliance, hostname, prints }: Inside): Promise<void> {
  const made = await prints(
    "/bin/sh -c 'echo ~agent && umask 77 && mkdir -p ~/.ansible/tmp/one && echo ~/.ansible/tmp/one'",
  )
  expect(made).toBe('/home/agent\n/home/agent/.ansible/tmp/one')
  const module = 'import json, platform, sys\nprint(json.dumps({"ping": "pong", "python": sys.version_info[0]}))\n'
  const terminal = await appliance.sshWith(['-tt'], hostname, ["/bin/sh -c 'python3 -c 1 && sleep 0'; exit $?"], '')
  expect(terminal.exitCode).toBe(0)
  const pipelined = await appliance.sshWith([], hostname, ["/bin/sh -c '/usr/bin/python3 && sleep 0'"], module)
  expect(JSON.parse(pipelined.stdout)).toEqual({ ping: 'pong', python: 3 })
  await prints('rm -r ~/.ansible')
}

/** git over SSH with the owner's forwarded agent, and over HTTPS with an authority that the owner names. */
async function theRepositories({ prints, appliance, hostname }: Inside): Promise<void> {
  const author = '-c user.name=a -c user.email=a@example.org'
  await prints(
    `git init --quiet --initial-branch=main day && cd day && echo text >file && git add file && git ${author} commit --quiet -m one && git clone --quiet --bare . ../day.git && git -C ../day.git update-server-info`,
  )
  using agent = await startSshAgent(appliance.directory, join(appliance.directory, 'client'))
  const bySsh = "GIT_SSH_COMMAND='ssh -o StrictHostKeyChecking=accept-new -o BatchMode=yes' git clone --quiet"
  const cloned = await appliance.sshWith([...agent.options], hostname, [
    `${bySsh} agent@127.0.0.1:day.git by-ssh && cd by-ssh && git ${author} commit --quiet --allow-empty -m two && GIT_SSH_COMMAND='ssh -o BatchMode=yes' git push --quiet && git -C ../day.git log --format=%s && git -C ../day.git update-server-info`,
  ])
  expect([cloned.exitCode, cloned.stdout]).toEqual([0, 'two\none\n'])
  const server = `import http.server, ssl
server = http.server.HTTPServer(("127.0.0.1", 8443), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("day.pem", "day.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
`
  await appliance.sshWith([], hostname, ['cat >serve.py'], server)
  await prints(
    'openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout day.key -out day.pem -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null; setsid python3 serve.py >/dev/null 2>&1 </dev/null & echo $! >serve.pid',
  )
  const fetching = 'git -c http.sslCAInfo=day.pem ls-remote https://localhost:8443/day.git'
  await until('git reads over HTTPS', waitMs, async () => (await prints(`${fetching} 2>/dev/null || true`)) !== '')
  expect(
    await prints(
      'git -c http.sslCAInfo=day.pem clone --quiet https://localhost:8443/day.git by-https; cat by-https/file',
    ),
  ).toBe('text')
  // Without the authority it is refused.
  expect(await prints('git ls-remote https://localhost:8443/day.git 2>&1 || echo refused')).toContain('refused')
  await prints('kill $(cat serve.pid); rm -rf day day.git by-ssh by-https day.key day.pem serve.py serve.pid')
}

/**
 * The start of VS Code Remote and JetBrains without the Internet: a script by standard input looks at the machine, the
 * server is copied and unpacked, it listens on loopback, and the editor comes through a forwarded port.
 */
async function theEditor({ appliance, hostname, prints }: Inside, { run, there }: Programs): Promise<void> {
  const look = `uname -sm; getconf LONG_BIT; ldd --version | head -1 | grep -o '[0-9.]*$'
ls /usr/lib/x86_64-linux-gnu/libstdc++.so.6 /etc/os-release
for tool in tar gzip unzip curl wget sha256sum ps readlink mktemp flock; do command -v $tool >/dev/null || echo "$tool is missing"; done
touch ~/.exec && chmod +x ~/.exec && [ -x ~/.exec ] && rm ~/.exec && echo executable
`
  const found = await appliance.sshWith(['-T'], hostname, ['bash'], look)
  const [system, bits, libc = '', ...files] = found.stdout.trim().split('\n')
  expect([system, bits, files]).toEqual([
    'Linux x86_64',
    '64',
    ['/etc/os-release', '/usr/lib/x86_64-linux-gnu/libstdc++.so.6', 'executable'],
  ])
  // Node 22 of their servers needs 2.28.
  expect(Number(libc.split('.')[1])).toBeGreaterThanOrEqual(28)
  const server = `const { createServer } = require('node:http')
createServer((_, response) => response.end('of the editor')).listen(0, '127.0.0.1', function () { console.log('port=' + this.address().port) })
`
  const directory = join(appliance.directory, 'editor')
  Bun.spawnSync(['mkdir', '-p', join(directory, 'bin')])
  writeFileSync(join(directory, 'bin/server.js'), server)
  expect(Bun.spawnSync(['tar', '-czf', `${directory}.tar.gz`, '-C', directory, 'bin']).exitCode).toBe(0)
  await run('scp', [`${directory}.tar.gz`, `${there}:editor.tar.gz`])
  await prints(
    'mkdir -p ~/.editor-server && tar -xzf editor.tar.gz -C ~/.editor-server && cd ~/.editor-server && (setsid nohup node bin/server.js >log 2>&1 </dev/null & echo $! >pid)',
  )
  await until('the server of the editor listens', waitMs, async () =>
    (await prints('cat ~/.editor-server/log')).startsWith('port='),
  )
  const inside = Number((await prints('cat ~/.editor-server/log')).slice('port='.length))
  const port = lastingPort()
  const forwarding = appliance.sshSession(
    hostname,
    'echo forwarding; read line',
    ...['-o', 'ExitOnForwardFailure=yes', '-L', `127.0.0.1:${port}:127.0.0.1:${inside}`],
  )
  await forwarding.printed('forwarding', waitMs)
  expect(await (await fetch(`http://127.0.0.1:${port}/`)).text()).toBe('of the editor')
  forwarding.type('\n')
  await forwarding.exited
  await prints('kill $(cat ~/.editor-server/pid); rm -r ~/.editor-server editor.tar.gz')
}

/** With no room left the owner still logs in, and makes room. */
async function theFullDisk({ prints, fails, appliance, hostname }: Inside): Promise<void> {
  // Blocks are allocated, not written; the rest is written until none is left.
  const leftKib = 'df --output=avail --block-size=1024 ~ | tail -1'
  await prints(
    `fallocate --length $(($(${leftKib}) - 8192))KiB fill; head --bytes=64MiB /dev/zero >>fill 2>/dev/null || true`,
  )
  expect(await fails('head --bytes=1048576 /dev/zero >more')).toContain('No space left on device')
  const login = await appliance.ssh(hostname, ['rm fill more; echo in'])
  expect([login.exitCode, login.stdout]).toEqual([0, 'in\n'])
  expect(await prints('head --bytes=1048576 /dev/zero >more && rm more && echo room')).toBe('room')
}

/** Nobody inside restarts the machine, which would end it: neither the owner nor root of the private root. */
async function theReboot({ prints, fails }: Inside): Promise<void> {
  const up = Number((await prints('cut -d. -f1 /proc/uptime')).trim())
  for (const command of ['busybox reboot -f', 'busybox poweroff -f', 'kill -TERM 1', 'private-root busybox reboot -f'])
    await fails(command)
  expect(Number(await prints('cut -d. -f1 /proc/uptime'))).toBeGreaterThanOrEqual(up)
}
