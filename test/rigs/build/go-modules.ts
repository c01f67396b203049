// Modules of Go as a proxy serves them (go.dev/ref/mod, "GOPROXY protocol"), and go.sum as go writes it, computed here
// and not by the code under test. Pure.

import { createHash } from 'node:crypto'
import { zipOf } from '../../../scripts/rigs/archive-bytes.ts'
import type { SourceFiles } from '../../../scripts/rigs/build/sources.ts'

export type GoModuleFiles = { readonly path: string; readonly version: string; readonly files: SourceFiles }

const sha256 = (bytes: string | Uint8Array) => createHash('sha256').update(bytes).digest()

/** Upper-case letters as a proxy and the module cache write them. */
const escaped = (text: string) => text.replace(/[A-Z]/g, letter => `!${letter.toLowerCase()}`)

function h1Of(files: SourceFiles): string {
  const names = Object.keys(files).sort()
  const list = names.map(name => `${sha256(files[name] ?? '').toString('hex')}  ${name}\n`).join('')
  return `h1:${sha256(list).toString('base64')}`
}

/** A proxy makes one for a module that has none (version `+incompatible`). */
function manifestOf({ path, files }: Omit<GoModuleFiles, 'version'>): string {
  return files['go.mod'] ?? `module ${path}\n`
}

/** Puts a module where a proxy below `/go` of its host has it. */
export function serveModule(into: Map<string, Uint8Array>, { path, version, files }: GoModuleFiles): void {
  const at = `/go/${escaped(path)}/@v/${escaped(version)}`
  const entries = Object.entries(files).map(([name, content]) => ({ name: `${path}@${version}/${name}`, content }))
  into.set(`${at}.info`, Buffer.from(JSON.stringify({ Version: version })))
  into.set(`${at}.mod`, Buffer.from(manifestOf({ path, files })))
  into.set(`${at}.zip`, zipOf(entries))
}

export function goSumOf(modules: readonly GoModuleFiles[]): string {
  const lines = modules.flatMap(({ path, version, files }) => {
    const named = Object.fromEntries(Object.entries(files).map(([name, text]) => [`${path}@${version}/${name}`, text]))
    const manifest = h1Of({ 'go.mod': manifestOf({ path, files }) })
    return [`${path} ${version} ${h1Of(named)}\n`, `${path} ${version}/go.mod ${manifest}\n`]
  })
  return lines.sort().join('')
}

/** The hash of go.sum in hexadecimal, as the evidence has it. */
export function hexH1(module: GoModuleFiles): string {
  const base64 = /h1:(\S+)/.exec(goSumOf([module]))?.[1] ?? ''
  return Buffer.from(base64, 'base64').toString('hex')
}
