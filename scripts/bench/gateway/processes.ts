// The processes of the gateway's benchmark: stub, client, and what stands between the two. Effects: spawns; each is
// ended by its process id.

import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { availableParallelism, homedir } from 'node:os'
import { join } from 'node:path'
import { assert, present } from '../../../src/base/assert.ts'
import { runCommand } from '../../lib/command.ts'
import type { OursSettings, OwnListener, PairFiles, StubView, Target, Task, TaskOrder, TaskResult } from './wire.ts'

const startTimeoutMs = 20_000
/** A count of requests takes long on a busy machine. */
const taskTimeoutMs = 120_000
const installTimeoutMs = 180_000
const portkeyVersion = '1.15.2'

export type Running = AsyncDisposable & { readonly target: Target; readonly pid: number }
export type Load = AsyncDisposable & { readonly run: (target: Target, task: Task) => Promise<number[]> }

const NO_KEY = { Authorization: 'Bearer none' }

export async function startStub(): Promise<Running> {
  const [port, ended] = await startProgram('stub.ts', [])
  return { ...ended, target: { name: 'the stub', port: Number(port), headers: NO_KEY, isTls: false } }
}

export async function stubView({ target }: Running): Promise<StubView> {
  return (await (await fetch(`http://127.0.0.1:${target.port}/left`)).json()) as StubView
}

export async function startOurs(
  folder: string,
  stub: Running,
  listener: OwnListener | null = null,
  fleetDatabase: string | null = null,
): Promise<Running> {
  const stateDir = mkdtempSync(join(folder, 'strongroom-'))
  const settings: OursSettings = { stateDir, stubPort: stub.target.port, listener, fleetDatabase }
  const [line, ended] = await startProgram('ours.ts', [JSON.stringify(settings)])
  const [port, key] = line.split(' ')
  const headers = { Authorization: `Bearer ${key}` }
  return {
    ...ended,
    target: { name: 'the gateway', port: Number(port), headers, isTls: listener !== null && listener.pair !== null },
  }
}

async function startProgram(file: string, argv: readonly string[]): Promise<[line: string, Omit<Running, 'target'>]> {
  const child = Bun.spawn([process.execPath, ...profileFlags(file), join(import.meta.dir, file), ...argv], {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const reader = child.stdout.getReader()
  const { value } = await reader.read()
  const line = new TextDecoder().decode(value).trim()
  assert(line !== '', `${file} starts`)
  return [line, { pid: child.pid, [Symbol.asyncDispose]: () => end(child) }]
}

/** STRONGROOM_BENCH_PROFILE names a directory for a CPU profile of our own process. */
function profileFlags(file: string): string[] {
  const dir = process.env.STRONGROOM_BENCH_PROFILE ?? ''
  return dir === '' || file !== 'ours.ts' ? [] : ['--cpu-prof', `--cpu-prof-dir=${dir}`]
}

/** Debian's nginx at its best here: a plain proxy_pass that keeps its connections, one worker for each core, no log. */
export function startNginx(folder: string, stub: Running, pair: PairFiles | null = null): Promise<Running> {
  return startProxy('nginx', { folder, stub, workers: availableParallelism(), buffering: 'on', pair })
}

/** nginx for streams: every piece is passed on as it comes, by one worker. */
export function startStreamingNginx(folder: string, stub: Running, pair: PairFiles | null = null): Promise<Running> {
  return startProxy('nginx without buffering', { folder, stub, workers: 1, buffering: 'off', pair })
}

type ProxyOptions = {
  readonly folder: string
  readonly stub: Running
  readonly workers: number
  readonly buffering: 'on' | 'off'
  /** Null for plain HTTP. */
  readonly pair: PairFiles | null
}

async function startProxy(name: string, { folder, stub, workers, buffering, pair }: ProxyOptions): Promise<Running> {
  const prefix = mkdtempSync(join(folder, 'nginx-'))
  const port = await freePort()
  const tls = pair === null ? '' : `ssl_certificate ${pair.certFile}; ssl_certificate_key ${pair.keyFile};`
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    name => `${name}_temp_path ${prefix}/${name};`,
  )
  const config = `
daemon off;
${process.getuid?.() === 0 ? 'user root;' : ''}
worker_processes ${workers};
worker_rlimit_nofile 16384;
pid ${prefix}/nginx.pid;
error_log stderr error;
events { worker_connections 8192; }
http {
  access_log off;
  keepalive_requests 100000000;
  ${temporary.join('\n  ')}
  upstream stub { server 127.0.0.1:${stub.target.port}; keepalive 256; keepalive_requests 100000000; }
  server {
    listen 127.0.0.1:${port}${pair === null ? '' : ' ssl'};
    ${tls}
    location / { proxy_pass http://stub; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering ${buffering}; }
  }
}
`
  return await startNginxWith(config, { name, prefix, port, isTls: pair !== null })
}

/** Debian's nginx with its own nginx.conf and one proxy_pass; only paths and user are changed. */
export async function startStockNginx(folder: string, stub: Running): Promise<Running> {
  const prefix = mkdtempSync(join(folder, 'nginx-stock-'))
  const port = await freePort()
  const server = `server { listen 127.0.0.1:${port}; location / { proxy_pass http://127.0.0.1:${stub.target.port}; } }`
  const config = readFileSync('/etc/nginx/nginx.conf', 'utf8')
    .replace(/^user .*$/m, process.getuid?.() === 0 ? 'user root;' : '')
    .replace(/^pid .*$/m, `pid ${prefix}/nginx.pid;\ndaemon off;`)
    .replace(/^include .*modules-enabled.*$/m, '')
    .replace(/^\s*include .*conf\.d.*$/m, '')
    .replace(/^\s*include .*sites-enabled.*$/m, server)
    .replaceAll('/var/log/nginx', prefix)
  assert(config.includes(server), "Debian's nginx.conf includes its sites")
  return await startNginxWith(config, { name: 'nginx as installed', prefix, port, isTls: false })
}

type NginxPlace = {
  readonly name: string
  readonly prefix: string
  readonly port: number
  readonly isTls: boolean
}

async function startNginxWith(config: string, { name, prefix, port, isTls }: NginxPlace): Promise<Running> {
  assert(Bun.which('nginx') !== null, 'nginx is there; scripts/setup installs it')
  const path = join(prefix, 'nginx.conf')
  writeFileSync(path, config)
  const child = Bun.spawn(['nginx', '-p', prefix, '-c', path, '-e', 'stderr'], { stdin: 'ignore', stderr: 'inherit' })
  await untilListens(port)
  return { pid: child.pid, target: { name, port, headers: NO_KEY, isTls }, [Symbol.asyncDispose]: () => end(child) }
}

/** Bun.serve and the upstream client, with nothing between them. */
export async function startRelay(stub: Running, pair: PairFiles | null = null): Promise<Running> {
  const [port, ended] = await startProgram('relay.ts', [String(stub.target.port), JSON.stringify(pair)])
  return { ...ended, target: { name: 'the plain relay', port: Number(port), headers: NO_KEY, isTls: pair !== null } }
}

/** Bytes from one socket to the other. */
export async function startRaw(stub: Running): Promise<Running> {
  const [port, ended] = await startProgram('raw.ts', [String(stub.target.port)])
  return { ...ended, target: { name: 'the raw relay', port: Number(port), headers: NO_KEY, isTls: false } }
}

const portkeyRuntimes = { bun: process.execPath, node: 'node' } as const

/** Portkey's gateway from npm, or null. It listens on every address: use it in a network namespace of its own. */
export async function startPortkey(stub: Running, runtime: keyof typeof portkeyRuntimes): Promise<Running | null> {
  const program = portkeyProgram()
  if (!existsSync(program)) return null
  const port = await freePort()
  const child = Bun.spawn([portkeyRuntimes[runtime], program, `--port=${port}`, '--headless'], {
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'inherit',
    env: { ...process.env, NODE_ENV: 'production' },
  })
  await untilListens(port)
  const headers = {
    ...NO_KEY,
    'x-portkey-provider': 'openai',
    'x-portkey-custom-host': `http://127.0.0.1:${stub.target.port}/v1`,
  }
  return {
    pid: child.pid,
    target: { name: `Portkey's gateway on ${runtime}`, port, headers, isTls: false },
    [Symbol.asyncDispose]: () => end(child),
  }
}

/** Into the cache, once. Returns false if it is unavailable. */
export async function installPortkey(note: (line: string) => void): Promise<boolean> {
  if (existsSync(portkeyProgram())) return true
  const folder = portkeyFolder()
  const partial = `${folder}.partial-${process.pid}`
  mkdirSync(partial, { recursive: true })
  writeFileSync(join(partial, 'package.json'), '{"private":true}')
  const argv = ['npm', 'install', '--no-audit', '--no-fund', '--ignore-scripts', '--save-exact']
  const installed = await runCommand([...argv, `@portkey-ai/gateway@${portkeyVersion}`], {
    cwd: partial,
    timeoutMs: installTimeoutMs,
  })
  if (installed.exitCode === 0 && !existsSync(folder)) renameSync(partial, folder)
  else note(`Portkey's gateway cannot be had: ${installed.output.slice(-500)}`)
  rmSync(partial, { recursive: true, force: true })
  return existsSync(portkeyProgram())
}

function portkeyFolder(): string {
  const fallback = process.getuid?.() === 0 ? '/var/cache/strongroom' : join(homedir(), '.cache/strongroom')
  return join(process.env.STRONGROOM_CACHE ?? fallback, 'bench', `portkey-${portkeyVersion}`)
}

function portkeyProgram(): string {
  return join(portkeyFolder(), 'node_modules/@portkey-ai/gateway/build/start-server.js')
}

export function startLoad(): Load {
  const waiting = new Map<number, { resolve: (values: number[]) => void; reject: (error: Error) => void }>()
  let asked = 0
  const child = Bun.spawn([process.execPath, join(import.meta.dir, 'load.ts')], {
    stdin: 'ignore',
    stdout: 'inherit',
    stderr: 'inherit',
    ipc: (result: TaskResult) => {
      const task = waiting.get(result.id)
      waiting.delete(result.id)
      if ('values' in result) task?.resolve(result.values)
      else task?.reject(new Error(result.error))
    },
  })
  return {
    run: (target, task) => {
      asked += 1
      const id = asked
      const answered = Promise.withResolvers<number[]>()
      waiting.set(id, answered)
      child.send({ id, target, task } satisfies TaskOrder)
      const late = Bun.sleep(taskTimeoutMs).then(() => {
        throw new Error(`${task.kind} at port ${target.port} of ${target.name} takes longer than ${taskTimeoutMs} ms`)
      })
      return Promise.race([answered.promise, late])
    },
    [Symbol.asyncDispose]: () => end(child),
  }
}

/** Resident memory of a process and its children, as nginx has them. */
export function residentBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const own = Number(present(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1], 'a process has memory')) * 1024
  return childrenOf(pid).reduce((sum, child) => sum + residentBytes(child), own)
}

export function childrenOf(pid: number): number[] {
  const tasks = readdirSync(`/proc/${pid}/task`)
  const lists = tasks.map(task => readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8'))
  return lists.flatMap(list => list.split(' ').filter(Boolean).map(Number))
}

async function end(child: Bun.Subprocess): Promise<void> {
  child.kill('SIGTERM')
  const isOver = await Promise.race([child.exited.then(() => true), Bun.sleep(5_000).then(() => false)])
  if (!isOver) child.kill('SIGKILL')
  await child.exited
}

async function freePort(): Promise<number> {
  const server = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data: () => {} } })
  const { port } = server
  server.stop(true)
  return port
}

async function untilListens(port: number): Promise<void> {
  const endMs = performance.now() + startTimeoutMs
  while (performance.now() < endMs) {
    const socket = await Bun.connect({ hostname: '127.0.0.1', port, socket: { data: () => {} } }).catch(() => null)
    if (socket !== null) return void socket.end()
    await Bun.sleep(50)
  }
  throw new Error(`nothing listens on port ${port}`)
}
