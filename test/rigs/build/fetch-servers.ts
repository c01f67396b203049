// Sources of builds' fetches, on loopback: https repositories as git serves them, a sparse registry, and the proxy to
// them. Effects: sockets, git; cleans up.

import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { createServer } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { tarOf } from '../../../scripts/rigs/archive-bytes.ts'
import { answerCrate, type SourceFiles, writeTree } from '../../../scripts/rigs/build/sources.ts'
import { selfSigned } from '../../../scripts/rigs/gateway/raw-upstream.ts'
import { succeed } from '../../../scripts/rigs/guest/root.ts'
import type { BuildOrder } from '../../../src/contract/vm/build-order.ts'

export const gitHost = 'git.strongroom.test'
export const cratesHost = 'crates.strongroom.test'
/** Answers like gitHost, but the proxy lets nobody through to it. */
export const refusedHost = 'refused.strongroom.test'

export type FetchServers = AsyncDisposable & {
  readonly fetch: NonNullable<BuildOrder['fetch']>
  /** A directory that holds repositories: `NAME.git` is `https://git.strongroom.test/NAME.git`. */
  readonly repositories: string
  /** `CONNECT` lines that the proxy saw. */
  readonly connected: string[]
  /** Bytes of the crate; a test may differ from the lock's. */
  crate: Uint8Array
  /** Files of any host, by the path of their address. */
  readonly files: Map<string, Uint8Array>
}

/** `port`: of the server itself, where the proxy of this rig is not the one that leads there. */
export async function startFetchServers({ port: serverPort = 0 } = {}): Promise<FetchServers> {
  const repositories = fs.mkdtempSync('/tmp/strongroom-repositories-')
  const { cert, key } = await selfSigned(gitHost, cratesHost, refusedHost)
  const files = new Map<string, Uint8Array>()
  const servers: { crate: Uint8Array } = { crate: answerCrate.bytes }
  const https = Bun.serve({
    hostname: '127.0.0.1',
    port: serverPort,
    tls: { cert, key },
    // In an emulated VM git thinks for longer than the default of 10 s between two requests.
    idleTimeout: 255,
    fetch: request => {
      const url = new URL(request.url)
      if (url.pathname.startsWith('/redirect/'))
        return Response.redirect(`https://${refusedHost}/a.git${url.search}`, 302)
      if (/^\/[a-z-]+-cache\/[0-9a-z./-]+$/.test(url.pathname)) return fileOf(join(repositories, url.pathname))
      const file = files.get(decodeURIComponent(url.pathname))
      if (file !== undefined) return new Response(Buffer.from(file))
      if (url.pathname === '/input.tar.gz') return new Response(Buffer.from(flakeInput))
      if (url.pathname === '/index/config.json') return Response.json({ dl: `https://${cratesHost}/dl` })
      if (url.pathname === '/index/an/sw/answer') return new Response(indexLine)
      if (url.pathname === '/dl/answer/0.1.0/download') return new Response(Buffer.from(servers.crate))
      if (/^\/[a-z-]+\.git\//.test(url.pathname)) return gitBackend(request, url, repositories)
      return new Response('none', { status: 404 })
    },
  })
  const connected: string[] = []
  const proxy = createServer((_, response) => response.writeHead(405).end())
  const sockets = new Set<Socket>()
  proxy.on('connect', (request, client: Socket) => {
    sockets.add(client)
    client.on('error', () => {})
    connected.push(request.url ?? '')
    if (![`${gitHost}:443`, `${cratesHost}:443`].includes(request.url ?? ''))
      return client.end('HTTP/1.1 403 Forbidden\r\n\r\n')
    const server = connect(https.port ?? 0, '127.0.0.1', () => client.write('HTTP/1.1 200 OK\r\n\r\n'))
    sockets.add(server)
    server.on('error', () => client.destroy())
    client.on('close', () => server.destroy())
    server.pipe(client)
    client.pipe(server)
  })
  await new Promise<void>(resolve => proxy.listen(0, '127.0.0.1', resolve))
  const { port } = proxy.address() as AddressInfo
  return Object.assign(servers, {
    fetch: { proxy: `http://127.0.0.1:${port}`, cratesMirror: `sparse+https://${cratesHost}/index/`, ca: cert },
    repositories,
    connected,
    files,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy()
      proxy.close()
      await https.stop(true)
      fs.rmSync(repositories, { recursive: true, force: true })
    },
  })
}

async function fileOf(path: string): Promise<Response> {
  const file = Bun.file(path)
  return (await file.exists()) ? new Response(file) : new Response('none', { status: 404 })
}

/** A flake's tarball: one top-level directory, as Nix expects. */
export const flakeInput = gzipSync(tarOf([{ name: 'input/text', content: 'from elsewhere\n' }]))

/** Its files as in a repository. */
export const flakeInputFiles: SourceFiles = { text: 'from elsewhere\n' }

/** A flake that reads a file of that tarball; its lock has the narHash of what is in it. */
export function flakeWithInput(narHash: string): SourceFiles {
  const input = { type: 'tarball', url: `https://${gitHost}/input.tar.gz` }
  return flakeOf(input.url, { locked: { ...input, narHash }, original: input })
}

/** The same from a git repository, at a commit of its branch `main`. */
export function flakeWithRepository(repository: Repository, narHash: string): SourceFiles {
  return flakeOf(`git+${repository.url}?ref=main`, repositoryNode(repository, narHash))
}

/** A repository as the lock of a flake has it. */
export function repositoryNode(
  { url, commit, dir }: Repository,
  narHash: string,
): { readonly locked: object; readonly original: object } {
  const input = { type: 'git', url, ref: 'main' }
  const lastModified = Number(gitIn(dir)('log', '-1', '--format=%ct', 'main'))
  return { locked: { ...input, rev: commit, revCount: 1, lastModified, narHash }, original: input }
}

function flakeOf(url: string, input: { readonly locked: object; readonly original: object }): SourceFiles {
  const lock = {
    nodes: { input: { flake: false, ...input }, root: { inputs: { input: 'input' } } },
    root: 'root',
    version: 7,
  }
  return {
    'flake.nix': `{
  inputs.input = { url = "${url}"; flake = false; };
  outputs = { self, input }: {
    packages.x86_64-linux.default = derivation {
      name = "hello";
      system = "x86_64-linux";
      builder = "/bin/sh";
      args = [ "-c" "read line < \${input}/text; echo $line > $out" ];
    };
  };
}
`,
    'flake.lock': JSON.stringify(lock),
  }
}

/**
 * SHA-256 of the directory as a Nix archive (nix.dev/manual/nix/2.26, "Nix Archive (NAR) format"), spelled as in a
 * lock.
 */
export function flakeInputHash(files = flakeInputFiles): string {
  const text = (value: string) => {
    const bytes = Buffer.from(value)
    const length = Buffer.alloc(8)
    length.writeBigUInt64LE(BigInt(bytes.length))
    return Buffer.concat([length, bytes, Buffer.alloc((8 - (bytes.length % 8)) % 8)])
  }
  const entries = Object.entries(files).flatMap(([name, content]) => [
    ...['entry', '(', 'name', name, 'node', '(', 'type', 'regular', 'contents', content, ')', ')'],
  ])
  const archive = Buffer.concat(['nix-archive-1', '(', 'type', 'directory', ...entries, ')'].map(text))
  return `sha256-${createHash('sha256').update(archive).digest('base64')}`
}

const indexLine = `${JSON.stringify({ name: 'answer', vers: '0.1.0', deps: [], cksum: answerCrate.sha256, features: {}, yanked: false })}\n`

/** git-http-backend(1), as a CGI program. */
export async function gitBackend(request: Request, url: URL, root: string): Promise<Response> {
  const child = Bun.spawn(['git', 'http-backend'], {
    stdin: await request.arrayBuffer().then(body => new Uint8Array(body)),
    env: {
      PATH: process.env.PATH,
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: '1',
      GIT_CONFIG_COUNT: '1',
      GIT_CONFIG_KEY_0: 'safe.directory',
      GIT_CONFIG_VALUE_0: '*',
      PATH_INFO: url.pathname,
      QUERY_STRING: url.search.slice(1),
      REQUEST_METHOD: request.method,
      CONTENT_TYPE: request.headers.get('content-type') ?? '',
      HTTP_CONTENT_ENCODING: request.headers.get('content-encoding') ?? '',
      HTTP_GIT_PROTOCOL: request.headers.get('git-protocol') ?? '',
    },
    stdout: 'pipe',
    stderr: 'ignore',
  })
  const output = Buffer.from(await new Response(child.stdout).arrayBuffer())
  const end = output.indexOf('\r\n\r\n')
  const fields = output
    .subarray(0, end)
    .toString('latin1')
    .split('\r\n')
    .map(line => line.split(': ', 2))
  const status = Number(fields.find(([name]) => name === 'Status')?.[1]?.slice(0, 3) ?? 200)
  const headers = fields
    .filter(([name]) => name !== 'Status')
    .map(([name = '', value = '']): [string, string] => [name, value])
  return new Response(output.subarray(end + 4), { status, headers })
}

export type Repository = { readonly url: string; readonly commit: string; readonly tree: string; readonly dir: string }

/** A repository of one commit on `main`, tagged `v1`. `change` runs in its work tree before the commit. */
export function makeRepository(
  { repositories }: FetchServers,
  name: string,
  files: SourceFiles,
  change?: (dir: string) => void,
): Repository {
  const dir = join(repositories, `${name}.git`)
  fs.mkdirSync(dir)
  const git = gitIn(dir)
  git('init', '--quiet', '--initial-branch=main')
  writeTree(dir, files)
  git('add', '--all', '--force', '.')
  change?.(dir)
  if (
    git('write-tree') !== '' &&
    Bun.spawnSync(['git', '-C', dir, 'rev-parse', '--verify', 'HEAD'], { stderr: 'ignore' }).exitCode !== 0
  ) {
    git('commit', '--quiet', '--allow-empty', '--message', 'one')
  }
  git('tag', '--annotate', '--message', 'v1', 'v1')
  return {
    url: `https://${gitHost}/${name}.git`,
    commit: git('rev-parse', 'HEAD'),
    tree: git('rev-parse', 'HEAD^{tree}'),
    dir,
  }
}

export function gitIn(dir: string): (...argv: string[]) => string {
  const identity = ['-c', 'user.name=Test', '-c', 'user.email=test@strongroom.test', '-c', 'protocol.file.allow=always']
  return (...argv) => succeed(['git', ...identity, '-C', dir, ...argv]).trim()
}
