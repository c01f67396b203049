// Go's command lines and environment (go.dev/ref/mod, pkg.go.dev/cmd/go). Pure.
//
// Go runs no program of the source while it lists or compiles: generators and tests do not run, `toolchain` and go.work
// are ignored, and flags are set only here. The builder's gcc compiles a package's C code.

import { places, plainEnvironment } from '../phase.ts'

export const goPlaces = {
  path: '/build/go',
  modules: '/build/go/pkg/mod',
  cache: `${places.home}/.cache/go-build`,
} as const

/** Returns the directory of a module below the cache for a directory in it; '' for any other directory. */
export function cachedPlace(dir: string): string {
  if (!dir.startsWith(`${goPlaces.modules}/`)) return ''
  return /^[^@]*@[^/]*/.exec(dir.slice(goPlaces.modules.length + 1))?.[0] ?? ''
}

/** Constant on every machine. */
const jobs = 4

/** `vendor`: modules are in the directory of that name in the source. `readonly`: modules are in the module cache. */
export type GoMode = 'vendor' | 'readonly'

/** Returns the environment for running go offline. */
export function goEnvironment(path: string, mode: GoMode): Record<string, string> {
  return {
    ...plainEnvironment,
    PATH: path,
    GOPATH: goPlaces.path,
    GOMODCACHE: goPlaces.modules,
    GOCACHE: goPlaces.cache,
    GOENV: 'off',
    GOWORK: 'off',
    GOTOOLCHAIN: 'local',
    GO111MODULE: 'on',
    GOFLAGS: `-mod=${mode} -trimpath -buildvcs=false`,
    GOPROXY: 'off',
    // Both this builder and go check go.sum.
    GOSUMDB: 'off',
    GOVCS: '*:off',
    GOOS: 'linux',
    GOARCH: 'amd64',
    GOAMD64: 'v1',
    CGO_ENABLED: '1',
  }
}

export function goFetchEnvironment(path: string, { proxy, modules }: { proxy: string; modules: string }) {
  return {
    ...goEnvironment(path, 'readonly'),
    // Without `direct`, modules come only from this proxy.
    GOPROXY: modules,
    HTTPS_PROXY: proxy,
    SSL_CERT_FILE: places.ca,
  }
}

const fields = ['ImportPath', 'Name', 'Dir', 'Module', 'Standard', 'DepOnly', 'Imports', 'Target']

/** Prints the packages that a build compiles. With a proxy, go fetches their modules. */
export function goListArgv(): string[] {
  return ['go', 'list', '-deps', `-json=${fields.join(',')}`, './...']
}

export function goBuildArgv(): string[] {
  return ['go', 'build', '-p', String(jobs), '-o', `${places.target}/`, './...']
}

/** Prints the modules that the linker wrote into each program. */
export function goVersionArgv(): string[] {
  return ['go', 'version', '-m', places.target]
}
