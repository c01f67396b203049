// Goal: programs of an instance use a secret unmodified: they read the environment of a session and nothing else.

import { expect, test } from 'bun:test'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Secret } from '../../../src/contract/vm/orders/secret.ts'
import { sessionText } from '../../../src/guest/secrets/session.plan.ts'
import { type Rig, rigHost, startRig } from '../../rigs/broker/terminated.ts'
import { gitBackend } from '../../rigs/build/fetch-servers.ts'

const value = 'tok_0123456789abcdefghij'
const rule = { host: rigHost, port: 443, header: 'Authorization', value }
const secrets: readonly Secret[] = [
  { ...rule, name: 'API_TOKEN', format: 'Bearer {}' },
  { ...rule, name: 'GIT_TOKEN', format: 'Basic {basic:x-access-token}', path: '/git/' },
]
const bearer = `Bearer ${value}`
const basic = `Basic ${btoa(`x-access-token:${value}`)}`

const dir = mkdtempSync(join(tmpdir(), 'srt-programs-'))
process.on('exit', () => rmSync(dir, { recursive: true, force: true }))
writeFileSync(join(dir, 'hosts'), `127.0.0.1 localhost ${rigHost}\n`)
const repositories = join(dir, 'repositories')

/** An upstream that refuses every request without the secret, and shows the request's fields. */
async function upstream(request: Request): Promise<Response> {
  const { pathname } = new URL(request.url)
  const given = request.headers.get('authorization')
  const url = new URL(request.url)
  if (pathname.startsWith('/git/')) {
    if (given !== basic) return new Response('', { status: 401, headers: { 'WWW-Authenticate': 'Basic realm="git"' } })
    url.pathname = pathname.slice('/git'.length)
    return gitBackend(request, url, repositories)
  }
  if (given !== bearer) return new Response('no token', { status: 401 })
  if (pathname === '/redirect') return Response.redirect('/echo', 302)
  if (pathname === '/echo') return Response.json({ method: request.method, given, body: await request.text() })
  if (pathname === '/answer') return Response.json(packument(url.origin))
  if (pathname === '/answer/-/answer-1.0.0.tgz') return new Response(Bun.file(join(dir, 'answer-1.0.0.tgz')))
  if (pathname === '/simple/answer/') {
    const link = '<a href="/answer-1.0.0-py3-none-any.whl">answer-1.0.0-py3-none-any.whl</a>'
    return new Response(link, { headers: { 'Content-Type': 'text/html' } })
  }
  if (pathname.endsWith('.whl')) return new Response(Bun.file(join(dir, 'answer.whl')))
  return new Response('not found', { status: 404 })
}

function packument(origin: string) {
  const version = { name: 'answer', version: '1.0.0', dist: { tarball: `${origin}/answer/-/answer-1.0.0.tgz` } }
  return { name: 'answer', 'dist-tags': { latest: '1.0.0' }, versions: { '1.0.0': version } }
}

type Ran = { readonly exitCode: number; readonly output: string }

/** Runs a script as a new session does, in a user namespace where the host's name is this machine's. */
async function session({ own, all, port }: Rig, script: string): Promise<Ran> {
  const environment = sessionText(
    secrets.map(({ name }) => name),
    { authorityFile: own, rootsFile: all },
  )
  const home = mkdtempSync(join(dir, 'home-'))
  const child = Bun.spawn(
    [
      'unshare',
      '--user',
      '--map-root-user',
      '--mount',
      'sh',
      '-euc',
      `mount --bind ${dir}/hosts /etc/hosts\n${environment}\ncd\n${script}`,
    ],
    {
      env: { PATH: process.env.PATH, HOME: home, URL: `https://${rigHost}:${port}`, GIT_TERMINAL_PROMPT: '0' },
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
    },
  )
  const [stdout, stderr, exitCode] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ])
  return { exitCode, output: stdout + (exitCode === 0 ? '' : stderr) }
}

const masked = JSON.stringify({ method: 'GET', given: `Bearer ${'*'.repeat(value.length)}`, body: '' })

// Goal: each program uses the secret, and gets asterisks for it.
test.each([
  ['curl', 'curl --silent --show-error --fail "$URL/echo"'],
  ['curl after a redirect', 'curl --silent --show-error --fail --location "$URL/redirect"'],
  ['wget', 'wget --quiet --ca-certificate="$SSL_CERT_FILE" --output-document=- "$URL/echo"'],
  ['node', `node --eval 'fetch(process.env.URL + "/echo").then(r => r.text()).then(t => process.stdout.write(t))'`],
  [
    'Python',
    `python3 -c 'import os, sys, urllib.request as u; sys.stdout.write(u.urlopen(os.environ["URL"] + "/echo").read().decode())'`,
  ],
  ['Bun', `${process.execPath} --eval 'process.stdout.write(await (await fetch(process.env.URL + "/echo")).text())'`],
  [
    'openssl',
    'at=$(echo "$URL" | cut -c9-); printf "GET /echo HTTP/1.1\\r\\nHost: $at\\r\\nConnection: close\\r\\n\\r\\n" |' +
      ' openssl s_client -quiet -verify_return_error -servername api.test -connect "$at" 2>/dev/null | tail -n 1',
  ],
])('goal: %s uses the secret and does not see it', async (_, script) => {
  await using rig = await startRig({ secrets, requests: upstream })
  const ran = await session(rig, script)
  expect(ran.exitCode === 0 ? JSON.stringify(JSON.parse(ran.output.replace(/^[0-9a-f]+\r?$/gm, ''))) : ran.output).toBe(
    masked,
  )
  expect(rig.refused()).toEqual([])
})

test('goal: a large upload by curl arrives whole', async () => {
  const digests: string[] = []
  await using rig = await startRig({
    secrets,
    requests: async request => {
      digests.push(new Bun.CryptoHasher('sha256').update(await request.arrayBuffer()).digest('hex'))
      return new Response('stored')
    },
  })
  const ran = await session(
    rig,
    `head -c 8000000 /dev/urandom >data; sha256sum <data | cut -d' ' -f1
     curl --silent --show-error --fail --data-binary @data "$URL/put" >/dev/null
     curl --silent --show-error --fail --upload-file - "$URL/put" <data >/dev/null`,
  )
  expect(ran.exitCode).toBe(0)
  expect(digests).toEqual([ran.output.trim(), ran.output.trim()])
})

test('goal: git clones and pushes over https', async () => {
  const made = Bun.spawnSync([
    'sh',
    '-euc',
    `mkdir -p ${repositories}; git init --quiet --bare --initial-branch=main ${repositories}/a.git
       git -C ${repositories}/a.git config http.receivepack true`,
  ])
  expect(made.exitCode).toBe(0)
  await using rig = await startRig({ secrets, requests: upstream })
  const ran = await session(
    rig,
    `git clone --quiet "$URL/git/a.git" work 2>/dev/null; cd work; git config user.name a; git config user.email a@test
     head -c 3000000 /dev/urandom >data; git add data; git commit --quiet -m first; git push --quiet origin HEAD:main
     cd ..; git clone --quiet --branch main "$URL/git/a.git" again; cmp work/data again/data; git -C again log --format=%s`,
  )
  expect(ran).toEqual({ exitCode: 0, output: 'first\n' })
  expect(rig.refused()).toEqual([])
})

test('goal: npm installs from a registry that wants a token', async () => {
  mkdirSync(join(dir, 'package'))
  writeFileSync(join(dir, 'package', 'package.json'), JSON.stringify({ name: 'answer', version: '1.0.0' }))
  Bun.spawnSync(['tar', '--create', '--gzip', '--file=answer-1.0.0.tgz', 'package'], { cwd: dir })
  await using rig = await startRig({ secrets, requests: upstream })
  const ran = await session(
    rig,
    'npm install --no-audit --no-fund --silent --registry="$URL/" answer && cat node_modules/answer/package.json',
  )
  expect(ran).toEqual({ exitCode: 0, output: '{"name":"answer","version":"1.0.0"}' })
})

test('goal: pip downloads from an index that wants a token', async () => {
  const wheel = `import zipfile
z = zipfile.ZipFile("answer.whl", "w")
z.writestr("answer.py", "x = 42\\n")
z.writestr("answer-1.0.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: answer\\nVersion: 1.0.0\\n")
z.writestr("answer-1.0.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: a\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
z.writestr("answer-1.0.0.dist-info/RECORD", "")
z.close()`
  expect(Bun.spawnSync(['python3', '-c', wheel], { cwd: dir }).exitCode).toBe(0)
  chmodSync(join(dir, 'answer.whl'), 0o644)
  await using rig = await startRig({ secrets, requests: upstream })
  const ran = await session(
    rig,
    `python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --index-url "$URL/simple/" --target here answer
     PYTHONPATH=here python3 -c 'import answer; print(answer.x)'`,
  )
  expect(ran).toEqual({ exitCode: 0, output: '42\n' })
})

test('goal: a program without the environment of a session trusts nothing of the broker', async () => {
  await using rig = await startRig({ secrets, requests: upstream })
  const ran = await session(rig, 'unset SSL_CERT_FILE CURL_CA_BUNDLE; curl --silent "$URL/echo"')
  expect(ran.exitCode).toBe(60)
  expect(rig.refused()).toHaveLength(1)
})
