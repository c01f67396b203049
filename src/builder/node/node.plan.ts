// Command lines, environments and scripts of npm, pnpm and Node.js. Pure.
//
// The install reads a manifest and a lock that this builder wrote, and uses no .npmrc, hook or script of the project.
// Later programs of the project see node_modules read-only.

import { places, plainEnvironment } from '../phase.ts'

export const nodePlaces = {
  npm: '/build/npm',
  files: '/build/files',
  program: '/build/program.cjs',
  list: '/build/list.json',
} as const

const registryPort = 4873

/** Directories in node_modules to which build tools write by default. */
export const cacheDirs = ['.cache', '.vite', '.vite-temp'] as const

/** Returns settings with names that both npm and pnpm read. */
export function nodeEnvironment(path: string): Record<string, string> {
  return {
    ...plainEnvironment,
    PATH: path,
    CI: 'true',
    npm_config_audit: 'false',
    npm_config_cache: nodePlaces.npm,
    npm_config_fund: 'false',
    npm_config_globalconfig: '/dev/null',
    npm_config_update_notifier: 'false',
  }
}

export function npmEnvironment(path: string): Record<string, string> {
  return { ...nodeEnvironment(path), npm_config_offline: 'true' }
}

/** Keeps pnpm from running hooks of the project, and from fetching the version of itself in a manifest. */
export function pnpmEnvironment(path: string): Record<string, string> {
  return {
    ...nodeEnvironment(path),
    npm_config_ignore_pnpmfile: 'true',
    npm_config_manage_package_manager_versions: 'false',
    npm_config_package_manager_strict: 'false',
    npm_config_verify_deps_before_run: 'false',
  }
}

export function npmInstallArgv({ legacyPeerDeps }: { legacyPeerDeps: boolean }): string[] {
  return [
    'npm',
    'ci',
    '--offline',
    '--ignore-scripts',
    '--include=dev',
    ...(legacyPeerDeps ? ['--legacy-peer-deps'] : []),
  ]
}

/** Runs pnpm with a registry on loopback that serves the fetched files. */
export function pnpmInstallArgv({ shamefullyHoist }: { shamefullyHoist: boolean }): string[] {
  return [
    ...['node', nodePlaces.program, 'pnpm', 'install', '--frozen-lockfile', '--ignore-scripts', '--ignore-pnpmfile'],
    ...['--prod=false', `--registry=http://127.0.0.1:${registryPort}/`, '--reporter=append-only'],
    ...[`--store-dir=${nodePlaces.npm}/store`, '--package-import-method=copy'],
    ...(shamefullyHoist ? ['--shamefully-hoist'] : []),
  ]
}

/** Runs scripts of installed packages, each in its directory. `steps`: alternating directories and script names. */
export function installScriptsArgv(steps: readonly string[]): string[] {
  const text = 'while [ $# -gt 0 ]; do cd "$1"; npm run --foreground-scripts "$2"; shift 2; done'
  return ['sh', '-e', '-c', text, 'sh', ...steps]
}

export type PackageManager = 'npm' | 'pnpm'

export function runBuildArgv(manager: PackageManager): string[] {
  return [manager, 'run', 'build']
}

export function packArgv(manager: PackageManager): string[] {
  return [manager, 'pack', '--pack-destination', places.target]
}

export function nodeFetchArgv(): string[] {
  return ['node', nodePlaces.program]
}

/**
 * Fetches files through the proxy: reads `{ proxy, ca, into, files: [[address, name]] }`. This builder verifies every
 * file afterwards, so the program need not be trusted.
 */
export const fetchProgram = `'use strict'
const fs = require('node:fs')
const http = require('node:http')
const https = require('node:https')
const tls = require('node:tls')
const { proxy, ca, into, files } = JSON.parse(fs.readFileSync('${nodePlaces.list}', 'utf8'))
const { hostname, port } = new URL(proxy)
const trusted = fs.readFileSync(ca)
const agent = new https.Agent({ keepAlive: true, maxSockets: 8 })
agent.createConnection = ({ host, port: at }, done) => {
  const path = host + ':' + at
  const tunnel = http.request({ host: hostname, port, method: 'CONNECT', path, headers: { host: path } })
  tunnel.on('error', done)
  tunnel.on('connect', ({ statusCode }, socket) => {
    if (statusCode !== 200) return socket.destroy(), done(new Error('the proxy refuses ' + path + ': Forbidden'))
    const secure = tls.connect({ socket, servername: host, ca: trusted }, () => done(null, secure))
    secure.on('error', done)
  })
  tunnel.end()
}
const get = (address, name) => new Promise((resolve, reject) => {
  const request = https.get(address, { agent, timeout: 60000 }, answer => {
    if (answer.statusCode !== 200) return answer.resume(), reject(new Error('HTTP ' + answer.statusCode))
    const file = fs.createWriteStream(into + '/' + name)
    answer.on('aborted', () => reject(new Error('the connection ended early')))
    answer.on('error', reject).pipe(file)
    file.on('error', reject).on('finish', resolve)
  })
  request.on('timeout', () => request.destroy(new Error('no answer for 60 s'))).on('error', reject)
})
const fetchOne = async ([address, name]) => {
  for (let tries = 1; ; tries += 1) {
    try {
      return await get(address, name)
    } catch (error) {
      if (tries < 3 && !/HTTP 4|Forbidden/.test(error.message)) continue
      console.error(address + ': ' + error.message)
      process.exit(1)
    }
  }
}
const work = async () => { for (let file = files.pop(); file; file = files.pop()) await fetchOne(file) }
Promise.all(Array.from({ length: 8 }, work)).then(() => process.exit(0))
`

/** Serves the fetched files like an npm registry, and exits with the exit code of the program in its arguments. */
export const registryProgram = `'use strict'
const fs = require('node:fs')
const http = require('node:http')
const { spawn } = require('node:child_process')
const files = new Map(JSON.parse(fs.readFileSync('${nodePlaces.list}', 'utf8')))
const server = http.createServer((request, response) => {
  const name = files.get(decodeURIComponent(request.url).slice(1))
  if (name === undefined) return response.writeHead(404).end()
  fs.createReadStream('${nodePlaces.files}/' + name).pipe(response)
})
server.listen(${registryPort}, '127.0.0.1', () => {
  const [program, ...rest] = process.argv.slice(2)
  const child = spawn(program, rest, { stdio: 'inherit' })
  child.on('error', error => { console.error(error.message); process.exit(1) })
  child.on('exit', code => process.exit(code ?? 1))
})
`
