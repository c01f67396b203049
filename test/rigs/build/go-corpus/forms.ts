// Rows: forms of Go projects that people write. Pure.

import { type GoModuleFiles, goSumOf } from '../go-modules.ts'
import {
  answer,
  base,
  below,
  fetchedAnswer,
  fetchedBase,
  goMod,
  library,
  modules,
  newerBase,
  own,
  plain,
  program,
  type Row,
  requires,
  usesAnswer,
  usesBase,
  vendoredBase,
} from './parts.ts'

const fork = library('example.com/fork', 'v0.9.0', 'package base\n\nfunc Base() int { return 4 }\n')
const pseudo = library(
  'example.com/pseudo',
  'v0.0.0-20240102030405-0123456789ab',
  'package pseudo\n\nfunc Value() int { return 7 }\n',
)
const major = library('example.com/major/v2', 'v2.1.0', 'package major\n\nfunc Value() int { return 8 }\n')
const old: GoModuleFiles = {
  path: 'example.com/old',
  version: 'v3.0.0+incompatible',
  files: { 'old.go': 'package old\n\nfunc Value() int { return 9 }\n' },
}
const native: GoModuleFiles = {
  path: 'example.com/native',
  version: 'v1.0.0',
  files: {
    'go.mod': 'module example.com/native\n\ngo 1.19\n',
    'native.go': 'package native\n\n// int three(void);\nimport "C"\n\nfunc Value() int { return int(C.three()) }\n',
    'native.c': 'int three(void) { return 3; }\n',
  },
}
const embedding: GoModuleFiles = {
  path: 'example.com/embedding',
  version: 'v1.0.0',
  files: {
    'go.mod': 'module example.com/embedding\n\ngo 1.19\n',
    'lib.go': 'package embedding\n\nimport _ "embed"\n\n//go:embed data/text\nvar Text string\n',
    'data/text': 'embedded',
  },
}
const retracting = library(
  'example.com/base',
  'v0.3.0',
  'package base\n\nfunc Base() int { return 60 }\n',
  '\nretract v0.1.0\n',
)
const withInternal: GoModuleFiles = {
  path: 'example.com/outer',
  version: 'v1.0.0',
  files: {
    'go.mod': 'module example.com/outer\n\ngo 1.19\n',
    'outer.go':
      'package outer\n\nimport "example.com/outer/internal/inner"\n\nfunc Value() int { return inner.Value() }\n',
    'internal/inner/inner.go': 'package inner\n\nfunc Value() int { return 11 }\n',
  },
}
const requirement = (module: GoModuleFiles) => `${module.path} ${module.version}`

/** A program that prints `Value()` of a module. */
const usesValue = (module: GoModuleFiles, name: string) => ({
  'go.mod': goMod(requires(requirement(module))),
  'go.sum': goSumOf([module]),
  'main.go': program(`${name}.Value()`, module.path),
})

export const FORMS: readonly Row[] = [
  {
    what: 'no module from elsewhere, and no go.sum',
    files: plain,
    ...{ artifacts: ['app'], modules: [own], output: '1' },
  },
  {
    what: 'modules of a proxy',
    always: true,
    files: usesAnswer,
    served: modules,
    ...{ artifacts: ['app'], modules: [fetchedAnswer, own, fetchedBase], output: '42' },
  },
  {
    what: 'a vendor directory',
    files: vendoredBase,
    ...{ artifacts: ['app'], output: '22' },
    modules: [own, 'example.com/base v0.1.0 vendored vendor/example.com/base'],
  },
  {
    what: 'a replacement by a directory',
    always: true,
    files: {
      ...usesBase,
      'go.mod': `${usesBase['go.mod']}\nreplace example.com/base => ./mine\n`,
      'mine/go.mod': 'module example.com/base\n\ngo 1.19\n',
      'mine/lib.go': 'package base\n\nfunc Base() int { return 23 }\n',
    },
    ...{ artifacts: ['app'], modules: [own, 'example.com/base replaced mine'], output: '23' },
  },
  {
    what: 'a replacement by another version',
    files: {
      ...usesBase,
      'go.mod': `${usesBase['go.mod']}\nreplace example.com/base => example.com/base v0.2.0\n`,
      'go.sum': goSumOf([newerBase]),
    },
    served: [base, newerBase],
    ...{ artifacts: ['app'], modules: [own, 'example.com/base v0.2.0 replaced'], output: '50' },
  },
  {
    what: 'a replacement by another module',
    files: {
      ...usesBase,
      'go.mod': `${usesBase['go.mod']}\nreplace example.com/base v0.1.0 => example.com/fork v0.9.0\n`,
      'go.sum': goSumOf([fork]),
    },
    served: [fork],
    ...{ artifacts: ['app'], modules: [own, 'example.com/fork v0.9.0 replaced'], output: '4' },
  },
  {
    what: 'several programs, of which one needs a module',
    files: {
      'go.mod': usesBase['go.mod'] ?? '',
      'go.sum': usesBase['go.sum'] ?? '',
      'cmd/one/main.go': program('base.Base()', 'example.com/base'),
      'cmd/two/main.go': program('2'),
      'main.go': program('0'),
    },
    served: [base],
    ...{ artifacts: ['app', 'one', 'two'], modules: [own, fetchedBase], output: '0' },
  },
  {
    what: 'a package of no program, which needs a module',
    files: {
      ...usesBase,
      'main.go': program('1'),
      'extra/extra.go': 'package extra\n\nimport "example.com/base"\n\nvar Value = base.Base()\n',
    },
    served: [base],
    ...{ artifacts: ['app'], modules: [own, fetchedBase], output: '1' },
    notLinked: [goSumOf([base]).split('\n')[0] ?? ''],
  },
  {
    what: 'C code of the project',
    always: true,
    files: {
      ...plain,
      'main.go': 'package main\n\n// int two(void);\nimport "C"\n\nfunc main() { println(C.two()) }\n',
      'two.c': 'int two(void) { return 2; }\n',
    },
    ...{ artifacts: ['app'], modules: [own], output: '2' },
  },
  {
    what: 'C code of a module',
    files: usesValue(native, 'native'),
    served: [native],
    ...{ artifacts: ['app'], modules: [own, 'example.com/native v1.0.0 fetched'], output: '3' },
  },
  {
    what: 'a file for another build tag, which needs a module that go.mod does not name',
    files: { ...plain, 'special.go': '//go:build special\n\npackage main\n\nimport _ "example.com/base"\n' },
    ...{ artifacts: ['app'], modules: [own], output: '1' },
  },
  {
    what: 'files for other systems, with a module for one of them alone',
    files: {
      ...usesBase,
      'main.go': program('value()'),
      'value_linux.go': 'package main\n\nfunc value() int { return 5 }\n',
      'value_windows.go': 'package main\n\nimport "example.com/base"\n\nfunc value() int { return base.Base() }\n',
    },
    served: [base],
    ...{ artifacts: ['app'], modules: [own], output: '5' },
  },
  {
    what: 'a module that tests alone need, and that no proxy has',
    files: {
      ...usesBase,
      'main.go': program('1'),
      'main_test.go': 'package main\n\nimport _ "example.com/base"\n',
    },
    ...{ artifacts: ['app'], modules: [own], output: '1' },
  },
  {
    what: 'embedded files of the project and of a module',
    files: {
      'go.mod': goMod(requires(requirement(embedding))),
      'go.sum': goSumOf([embedding]),
      'main.go':
        'package main\n\nimport (\n\t_ "embed"\n\t"example.com/embedding"\n)\n\n//go:embed text\nvar text string\n\nfunc main() { println(text + embedding.Text) }\n',
      text: 'own and ',
    },
    served: [embedding],
    ...{ artifacts: ['app'], modules: [own, 'example.com/embedding v1.0.0 fetched'], output: 'own and embedded' },
  },
  {
    what: 'internal packages of the project and of a module',
    files: {
      ...usesValue(withInternal, 'outer'),
      'main.go':
        'package main\n\nimport (\n\t"example.com/app/internal/ten"\n\t"example.com/outer"\n)\n\nfunc main() { println(outer.Value() + ten.Value()) }\n',
      'internal/ten/ten.go': 'package ten\n\nfunc Value() int { return 10 }\n',
    },
    served: [withInternal],
    ...{ artifacts: ['app'], modules: [own, 'example.com/outer v1.0.0 fetched'], output: '21' },
  },
  {
    what: 'a module in a directory, with another module beside it',
    files: {
      'go.mod': 'module example.com/root\n',
      ...below('app', {
        ...usesBase,
        'go.mod': `${usesBase['go.mod']}\nreplace example.com/base => ../lib\n`,
      }),
      'lib/go.mod': 'module example.com/base\n\ngo 1.19\n',
      'lib/lib.go': 'package base\n\nfunc Base() int { return 24 }\n',
    },
    projectDir: 'app',
    ...{ artifacts: ['app'], modules: ['example.com/app path app', 'example.com/base replaced lib'], output: '24' },
  },
  {
    what: 'a module inside the module, which is no part of it',
    files: { ...plain, 'tools/go.mod': 'module example.com/tools\n', 'tools/main.go': program('unknown') },
    ...{ artifacts: ['app'], modules: [own], output: '1' },
  },
  {
    what: 'a workspace whose member needs nothing of it',
    files: {
      'go.work': 'go 1.19\n\nuse (\n\t./app\n\t./mine\n)\n',
      ...below('app', usesBase),
      'mine/go.mod': 'module example.com/base\n\ngo 1.19\n',
      'mine/lib.go': 'package base\n\nfunc Base() int { return 25 }\n',
    },
    projectDir: 'app',
    served: [base],
    ...{ artifacts: ['app'], modules: ['example.com/app path app', fetchedBase], output: '21' },
  },
  {
    what: 'a generator, which does not run',
    files: {
      ...plain,
      'main.go': `//go:generate sh -c "echo broken > made.go"\n${program('made')}`,
      'made.go': 'package main\n\nconst made = 6\n',
    },
    ...{ artifacts: ['app'], modules: [own], output: '6' },
  },
  {
    what: 'a version that its author retracted',
    files: usesBase,
    served: [base, retracting],
    ...{ artifacts: ['app'], modules: [own, fetchedBase], output: '21' },
  },
  {
    what: 'versions of every form',
    files: {
      'go.mod': goMod(requires(...[pseudo, major, old].map(requirement))),
      'go.sum': goSumOf([pseudo, major, old]),
      'main.go':
        'package main\n\nimport (\n\t"example.com/major/v2"\n\t"example.com/old"\n\t"example.com/pseudo"\n)\n\nfunc main() { println(major.Value(), old.Value(), pseudo.Value()) }\n',
    },
    served: [pseudo, major, old],
    ...{ artifacts: ['app'], output: '8 9 7' },
    modules: [
      own,
      'example.com/major/v2 v2.1.0 fetched',
      'example.com/old v3.0.0+incompatible fetched',
      'example.com/pseudo v0.0.0-20240102030405-0123456789ab fetched',
    ],
  },
  {
    what: 'a go.sum with lines of modules that nothing needs',
    files: { ...usesBase, 'go.sum': goSumOf([base, newerBase, fork]) },
    served: [base],
    ...{ artifacts: ['app'], modules: [own, fetchedBase], output: '21' },
  },
  {
    what: 'a requirement that no package needs, and that no proxy has',
    files: {
      ...usesBase,
      'go.mod': goMod(requires('example.com/base v0.1.0', 'example.com/fork v0.9.0')),
      'go.sum': goSumOf([base, fork]),
    },
    served: [base],
    ...{ artifacts: ['app'], modules: [own, fetchedBase], output: '21' },
  },
  {
    what: 'a go.mod for Go 1.24, with a tool that the project names',
    files: {
      'go.mod': `${goMod(requires(requirement(answer), requirement(base)), '1.24')}\ntool example.com/fork\n`,
      'go.sum': goSumOf(modules),
      'main.go': usesAnswer['main.go'] ?? '',
    },
    served: modules,
    ...{ artifacts: ['app'], modules: [fetchedAnswer, own, fetchedBase], output: '42' },
  },
  {
    what: 'a newer toolchain line, accepted by the request',
    files: { ...plain, 'go.mod': goMod('\ntoolchain go1.98.7\n') },
    waivers: ['any_toolchain'],
    ...{ artifacts: ['app'], modules: [own], output: '1' },
  },
  {
    what: 'lines that end as on Windows',
    files: Object.fromEntries(Object.entries(usesBase).map(([path, text]) => [path, text.replaceAll('\n', '\r\n')])),
    served: [base],
    ...{ artifacts: ['app'], modules: [own, fetchedBase], output: '21' },
  },
]
