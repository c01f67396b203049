// Parts of small Go projects: manifests, modules of a proxy, and the rows of the corpus. Pure.

import type { SourceFiles } from '../../../../scripts/rigs/build/sources.ts'
import { type GoModuleFiles, goSumOf } from '../go-modules.ts'
import type { GoProject } from './corpus.ts'

export type Row = GoProject & {
  /** Runs in each sample. */
  readonly always?: true
} & (
    | {
        readonly artifacts: readonly string[]
        readonly modules: readonly string[]
        readonly output?: string
        /** Modules that a package of the project needs, but none of its programs, as in `GoEnd.linked`. */
        readonly notLinked?: readonly string[]
      }
    | { readonly fails: RegExp }
  )

/** A module whose function of this name gives a number. */
export function library(path: string, version: string, text: string, manifest = ''): GoModuleFiles {
  return { path, version, files: { 'go.mod': `module ${path}\n\ngo 1.19\n${manifest}`, 'lib.go': text } }
}

export const base = library('example.com/base', 'v0.1.0', 'package base\n\nfunc Base() int { return 21 }\n')
export const newerBase = library('example.com/base', 'v0.2.0', 'package base\n\nfunc Base() int { return 50 }\n')
export const answer = library(
  'example.com/Acme/answer',
  'v1.2.0',
  'package answer\n\nimport "example.com/base"\n\nfunc Answer() int { return base.Base() * 2 }\n',
  '\nrequire example.com/base v0.1.0\n',
)
export const modules = [answer, base]

/** go.mod of `example.com/app`. */
export const goMod = (more = '', go = '1.19') => `module example.com/app\n\ngo ${go}\n${more}`

export const requires = (...list: readonly string[]) => list.map(module => `\nrequire ${module}\n`).join('')

/** A program that prints a value of one imported package, or of none. */
export const program = (value: string, imported = '') =>
  `package main\n\n${imported === '' ? '' : `import "${imported}"\n\n`}func main() { println(${value}) }\n`

export const plain: SourceFiles = { 'go.mod': goMod(), 'main.go': program('1') }
export const usesBase: SourceFiles = {
  'go.mod': goMod(requires('example.com/base v0.1.0')),
  'go.sum': goSumOf([base]),
  'main.go': program('base.Base()', 'example.com/base'),
}
export const usesAnswer: SourceFiles = {
  'go.mod': goMod(requires('example.com/Acme/answer v1.2.0', 'example.com/base v0.1.0 // indirect')),
  'go.sum': goSumOf(modules),
  'main.go': program('answer.Answer()', 'example.com/Acme/answer'),
}

/** `usesBase` with the module in the source, where it gives another number. */
export const vendoredBase: SourceFiles = {
  ...usesBase,
  'vendor/modules.txt': '# example.com/base v0.1.0\n## explicit; go 1.19\nexample.com/base\n',
  'vendor/example.com/base/lib.go': 'package base\n\nfunc Base() int { return 22 }\n',
}

export const own = 'example.com/app path .'
export const fetchedBase = 'example.com/base v0.1.0 fetched'
export const fetchedAnswer = 'example.com/Acme/answer v1.2.0 fetched'

/** Files below a directory. */
export const below = (directory: string, files: SourceFiles): SourceFiles =>
  Object.fromEntries(Object.entries(files).map(([path, text]) => [`${directory}/${path}`, text]))
