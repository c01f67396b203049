// Rows: mistakes in Go projects, each with the message that names cause and remedy. Pure.

import { goSumOf } from '../go-modules.ts'
import {
  answer,
  base,
  below,
  goMod,
  library,
  modules,
  plain,
  program,
  type Row,
  usesAnswer,
  usesBase,
  vendoredBase,
} from './parts.ts'

const changedBase = library('example.com/base', 'v0.1.0', 'package base\n\nfunc Base() int { return 666 }\n')

export const MISTAKES: readonly Row[] = [
  {
    what: 'a module with another hash than go.sum has',
    always: true,
    files: usesBase,
    served: [changedBase],
    fails:
      /^checksum_mismatch: the proxy serves a module whose hash differs from the one in go\.sum; restore go\.sum, or/,
  },
  {
    what: 'a go.sum without a module that the project needs',
    files: { ...usesAnswer, 'go.sum': goSumOf([answer]) },
    served: modules,
    fails: /^lock_missing: go\.sum lacks a module that the project needs; run `go mod tidy`/,
  },
  {
    what: 'a go.sum without the go.mod of a module',
    files: {
      ...usesBase,
      'go.sum': goSumOf([base])
        .split('\n')
        .filter(line => !line.includes('/go.mod'))
        .join('\n'),
    },
    served: [base],
    fails: /^lock_missing: go\.sum lacks a module that the project needs; run `go mod tidy`/,
  },
  {
    what: 'a go.mod without a module that the project needs',
    files: { ...usesBase, 'go.mod': goMod() },
    served: [base],
    fails: /^source_invalid: go\.mod does not match the project; run `go mod tidy`/,
  },
  {
    what: 'a package that the module of this version lacks',
    files: { ...usesBase, 'main.go': program('more.Value()', 'example.com/base/more') },
    served: [base],
    fails: /^source_invalid: go\.mod does not match the project; run `go mod tidy`/,
  },
  {
    what: 'a vendor directory that Git ignores, and no service that fetches',
    files: { ...usesBase, '.gitignore': 'vendor/\n' },
    fails: /^source_unreachable: a module cannot be fetched; run `go mod vendor` and send vendor\/ with the source/,
  },
  {
    what: 'a version that the proxy lacks',
    files: usesBase,
    served: [],
    fails: /^source_unreachable: the module proxy of the request lacks a module/,
  },
  {
    what: 'a vendor directory without a package that the project needs',
    files: {
      ...vendoredBase,
      'main.go': program('more.Value()', 'example.com/base/more'),
    },
    fails: /^source_invalid: vendor\/ lacks a package that the project needs; run `go mod vendor`/,
  },
  {
    what: 'a vendor directory of other requirements',
    files: { ...vendoredBase, 'vendor/modules.txt': '# example.com/base v0.2.0\n## explicit\nexample.com/base\n' },
    fails: /^source_invalid: vendor\/modules\.txt does not match go\.mod; run `go mod vendor`/,
  },
  {
    what: 'a workspace at the root of the source',
    files: { 'go.work': 'go 1.19\n\nuse ./app\n', ...below('app', plain) },
    fails: /^toolchain_undetected: .*go\.mod.* name its directory by project_dir: "app"/,
  },
  {
    what: 'a member that needs another member of the workspace',
    files: {
      'go.work': 'go 1.19\n\nuse (\n\t./app\n\t./lib\n)\n',
      ...below('app', { 'go.mod': goMod(), 'main.go': program('lib.Value()', 'example.com/lib') }),
      'lib/go.mod': 'module example.com/lib\n\ngo 1.19\n',
      'lib/lib.go': 'package lib\n\nfunc Value() int { return 1 }\n',
    },
    projectDir: 'app',
    fails: /^source_invalid: .*builds ignore go\.work.*`replace`/,
  },
  {
    what: 'a toolchain line that is newer than the builder',
    files: { ...plain, 'go.mod': goMod('\ntoolchain go1.98.7\n') },
    fails: /^source_invalid: go\.mod pins "go1\.98\.7", and this builder has go version go1\..*with any_toolchain/,
  },
  {
    what: 'a go line that is newer than the builder',
    files: { ...plain, 'go.mod': goMod('', '1.99') },
    fails: /^source_invalid: the project needs a newer Go than this builder's; lower the `go` line .*1\.99/s,
  },
  {
    what: 'a module that needs a newer Go than the builder has',
    files: {
      ...usesBase,
      'go.sum': goSumOf([{ ...base, files: { ...base.files, 'go.mod': 'module example.com/base\n\ngo 1.99\n' } }]),
    },
    served: [{ ...base, files: { ...base.files, 'go.mod': 'module example.com/base\n\ngo 1.99\n' } }],
    fails: /^source_invalid: the project needs a newer Go than this builder's; lower the `go` line .*1\.99/s,
  },
  {
    what: 'a go.mod with marks of a merge',
    files: { ...plain, 'go.mod': `<<<<<<< HEAD\n${plain['go.mod']}=======\n>>>>>>> other\n` },
    fails: /^source_invalid: go\.mod contains merge conflict markers; resolve them and run `go mod tidy`/,
  },
  {
    what: 'a go.sum with marks of a merge',
    files: { ...usesBase, 'go.sum': `<<<<<<< HEAD\n${usesBase['go.sum']}=======\n>>>>>>> other\n` },
    served: [base],
    fails: /^source_invalid: go\.sum: it contains merge conflict markers; run `go mod tidy`/,
  },
  {
    what: 'an internal package of another module',
    files: {
      ...usesBase,
      'main.go': program('inner.Value()', 'example.com/base/internal/inner'),
      'go.sum': goSumOf([{ ...base, files: { ...base.files, 'internal/inner/inner.go': 'package inner\n' } }]),
    },
    served: [{ ...base, files: { ...base.files, 'internal/inner/inner.go': 'package inner\n' } }],
    fails: /^source_invalid: the project imports an internal package of another module/,
  },
  {
    what: 'generated files that are not in the source',
    files: { ...plain, 'main.go': `//go:generate true\n${program('made')}` },
    fails: /^build_failed: .*undefined: made/s,
  },
  {
    what: 'an embedded file that is not in the source',
    files: {
      ...plain,
      'main.go':
        'package main\n\nimport _ "embed"\n\n//go:embed dist/text\nvar text string\n\nfunc main() { println(text) }\n',
    },
    fails: /^source_invalid: a file that `\/\/go:embed` names is not in the source/,
  },
  {
    what: 'a library alone',
    files: { 'go.mod': goMod(), 'lib.go': 'package app\n' },
    fails:
      /^no_artifacts: the build produced no artifact: .*`package main`\); name a module that has one by project_dir/,
  },
  {
    what: 'a header that the builder lacks',
    files: {
      ...plain,
      'main.go': 'package main\n\n// #include <none7.h>\nimport "C"\n\nfunc main() {}\n',
    },
    fails: /^build_failed: C code includes a header that the builder lacks; .*none7\.h/s,
  },
  {
    what: 'a library of the system that the builder lacks',
    files: { ...plain, 'main.go': 'package main\n\n// #cgo LDFLAGS: -lnone7\nimport "C"\n\nfunc main() {}\n' },
    fails: /^build_failed: C code needs a library that the builder lacks; .*none7/s,
  },
  {
    what: 'a library that pkg-config does not find',
    files: { ...plain, 'main.go': 'package main\n\n// #cgo pkg-config: none7\nimport "C"\n\nfunc main() {}\n' },
    fails: /^build_failed: C code needs a library that the builder lacks; .*none7/s,
  },
  {
    what: 'a vendor directory without the files of a listed package',
    files: {
      ...plain,
      ...Object.fromEntries(Object.entries(vendoredBase).filter(([path]) => !path.endsWith('lib.go'))),
    },
    fails: /^source_invalid: vendor\/ lacks a package that the project needs; run `go mod vendor`/,
  },
  {
    what: 'two programs of one name',
    files: { 'go.mod': goMod(), 'a/x/main.go': program('1'), 'b/x/main.go': program('2') },
    fails: /^build_failed: two packages produce the same program, x/,
  },
  {
    what: 'an import cycle',
    files: {
      ...plain,
      'main.go': program('a.A', 'example.com/app/a'),
      'a/a.go': 'package a\n\nimport "example.com/app/b"\n\nconst A = b.B\n',
      'b/b.go': 'package b\n\nimport "example.com/app/a"\n\nconst B = a.A\n',
    },
    fails: /^build_failed: .*import cycle not allowed/s,
  },
]
