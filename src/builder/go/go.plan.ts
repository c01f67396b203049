// Go's command lines and environment (go.dev/ref/mod, pkg.go.dev/cmd/go). Pure.
//
// Go runs no program of the source while it lists or compiles: generators and tests do not run, `toolchain` and go.work
// count for nothing, and flags come from here alone. C code of a package is compiled by the builder's gcc.

import { places, plainEnvironment } from '../phase.ts'

export const goPlaces = {
  path: '/build/go',
  modules: '/build/go/pkg/mod',
  cache: `${places.home}/.cache/go-build`,
} as const

/** Directory of a module below the cache, of a directory in it; '' for any other directory. */
export function cachedPlace(dir: string): string {
  if (!dir.startsWith(`${goPlaces.modules}/`)) return ''
  return /^[^@]*@[^/]*/.exec(dir.slice(goPlaces.modules.length + 1))?.[0] ?? ''
}

/** The same on every machine. */
const jobs = 4

/** `vendor`: modules come from the directory of that name in the source; `readonly`: from the module cache. */
export type GoMode = 'vendor' | 'readonly'

/** Go offline. */
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
    // go.sum is compared by this builder and by go.
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
