// Rows: Go sources that try to falsify the list of their modules, or to compile something that it does not name. Pure.

import { goSumOf } from '../go-modules.ts'
import {
  base,
  fetchedBase,
  goMod,
  library,
  newerBase,
  own,
  plain,
  program,
  type Row,
  requires,
  usesBase,
  vendoredBase,
} from './parts.ts'

const cgo = (comment: string, body = '') => `package main\n\n${comment}\nimport "C"\n\nfunc main() { ${body} }\n`
const secret = library('example.com/secret', 'v1.0.0', 'package secret\n\nfunc Value() int { return 13 }\n')

export const HOSTILE: readonly Row[] = [
  {
    what: 'a go.sum with two hashes of one module',
    always: true,
    files: {
      ...usesBase,
      'go.sum': `${goSumOf([base])}${goSumOf([newerBase]).replaceAll('v0.2.0', 'v0.1.0')}`,
    },
    served: [base],
    ...{ artifacts: ['app'], modules: [own, fetchedBase], output: '21' },
  },
  {
    what: 'a list of vendored modules with another version than go.mod',
    files: {
      ...vendoredBase,
      'vendor/modules.txt': (vendoredBase['vendor/modules.txt'] ?? '').replace('v0.1.0', 'v9.9.9'),
    },
    fails: /^source_invalid: vendor\/modules\.txt does not match go\.mod/,
  },
  {
    what: 'a vendored package under the path of another module',
    files: {
      ...vendoredBase,
      'vendor/modules.txt': `${vendoredBase['vendor/modules.txt']}# example.com/secret v1.0.0\n`,
      'vendor/example.com/base/lib.go':
        'package base\n\nimport "example.com/secret"\n\nfunc Base() int { return secret.Value() }\n',
      'vendor/example.com/secret/lib.go': secret.files['lib.go'] ?? '',
    },
    // Go itself compiles it, and `go version -m` does not name it.
    fails:
      /^source_invalid: vendor\/modules\.txt does not list the package "example\.com\/secret", which go takes from /,
  },
  {
    what: 'a vendored package that is a link to other code of the source',
    files: Object.fromEntries([
      ...Object.entries(vendoredBase).filter(([path]) => path !== 'vendor/example.com/base/lib.go'),
      ['other/lib.go', 'package base\n\nfunc Base() int { return 26 }\n'],
    ]),
    links: { 'vendor/example.com/base': '../../other' },
    ...{ artifacts: ['app'], modules: [own, 'example.com/base v0.1.0 vendored other'], output: '26' },
  },
  {
    what: 'a package that is a link to fetched modules',
    files: { ...usesBase, 'main.go': program('base.Base()', 'example.com/app/pkg') },
    links: { pkg: '/build/go/pkg/mod/example.com/base@v0.1.0' },
    served: [base],
    fails: /^source_invalid: /,
  },
  {
    what: 'a replacement outside of the source',
    files: { ...usesBase, 'go.mod': `${usesBase['go.mod']}\nreplace example.com/base => ../../opt/go/share\n` },
    fails: /^(?:source_invalid|build_failed): /,
  },
  {
    what: 'a replacement by a directory of the module cache',
    files: {
      ...usesBase,
      'go.mod': `${goMod(requires('example.com/base v0.1.0', 'example.com/secret v1.0.0'))}\nreplace example.com/secret => ../go/pkg/mod/example.com/base@v0.1.0\n`,
      'main.go': program('base.Base()', 'example.com/secret'),
    },
    served: [base],
    fails: /^(?:source_invalid|build_failed|source_unreachable): /,
  },
  {
    what: 'a replacement in go.work, and settings of go',
    files: {
      ...usesBase,
      'go.work': 'go 1.19\n\nuse .\n\nreplace example.com/base => ./evil\n',
      'go.env': 'GOFLAGS=-mod=mod -modfile=other.mod\nGOPROXY=https://proxy.example\n',
      'other.mod': goMod(),
      'evil/go.mod': 'module example.com/base\n',
      'evil/lib.go': 'package base\n\nfunc Base() int { return 666 }\n',
    },
    served: [base],
    ...{ artifacts: ['app'], modules: [own, fetchedBase], output: '21' },
  },
  {
    what: 'flags of the C compiler that load a program',
    always: true,
    files: { ...plain, 'main.go': cgo('// #cgo CFLAGS: -fplugin=./evil.so'), 'evil.so': 'x' },
    fails: /^build_failed: .*invalid flag in #cgo CFLAGS/s,
  },
  {
    what: 'flags of the linker that load a program',
    files: { ...plain, 'main.go': cgo('// #cgo LDFLAGS: -fuse-ld=./evil -Wl,-plugin,./evil.so') },
    fails: /^build_failed: .*invalid flag in #cgo LDFLAGS/s,
  },
  {
    what: 'C code that includes the compiled standard library and the build cache',
    files: {
      ...plain,
      'main.go': cgo('// int one(void);', 'println(C.one())'),
      'one.c': '__asm__(".incbin \\"/build/home/.cache/go-build/trim.txt\\"");\nint one(void) { return 1; }\n',
    },
    fails: /^build_failed: .*file not found/s,
  },
  {
    what: 'a text of the program that reads like a list of modules',
    files: {
      ...usesBase,
      'main.go':
        'package main\n\nimport "example.com/base"\n\nvar text = "\\xff Go buildinf:\\x08\\x02" + "path\\tx\\nmod\\tx\\t(devel)\\t\\ndep\\texample.com/fake\\tv1.0.0\\th1:AAAA=\\n"\n\nfunc main() { println(base.Base(), len(text)) }\n',
    },
    served: [base],
    ...{ artifacts: ['app'], modules: [own, fetchedBase], output: '21 75' },
  },
  {
    what: 'a name for the list of modules that the runtime has',
    files: {
      ...plain,
      'main.go':
        'package main\n\nimport _ "unsafe"\n\n//go:linkname modinfo runtime.modinfo\nvar modinfo string\n\nfunc main() { modinfo = ""; println(1) }\n',
    },
    fails: /^build_failed: .*invalid reference to runtime\.modinfo/s,
  },
  {
    what: 'a main module with the name of a module from elsewhere',
    files: {
      'go.mod': 'module example.com/base\n\ngo 1.19\n',
      'main.go': program('1'),
      'go.sum': goSumOf([base]),
    },
    ...{ artifacts: ['base'], modules: ['example.com/base path .'], output: '1' },
  },
  {
    what: 'a compiled object among the sources',
    files: { ...plain, 'evil.syso': 'no object' },
    fails: /^build_failed: /,
  },
]
