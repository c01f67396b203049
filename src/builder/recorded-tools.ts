// The builder image's record of its programs, created with the image, so that a build need not start each of them for
// its version. The image is measured, and so is the record. Effects: reads the image.

import type { Tool } from '../attest/provenance/record.ts'
import { isRecord } from '../base/json.ts'
import { readTextOrNull } from '../linux/files.ts'

/** Path in the builder image. */
export const recordsDir = '/usr/lib/strongroom/tools'
export const toolsFile = 'versions.json'
/** Output of rustc that cargo caches in its target directory as `rustInfoName`. */
export const rustInfoFile = 'rustc-info.json'
export const rustInfoName = '.rustc_info.json'

/** Programs that a statement lists, and how each prints its version. */
export const VERSION_ARGV = {
  cargo: ['cargo', '--version'],
  go: ['go', 'version'],
  make: ['make', '--version'],
  nix: ['nix', '--version'],
  node: ['node', '--version'],
  npm: ['npm', '--version'],
  pnpm: ['pnpm', '--version'],
  rustc: ['rustc', '--version'],
} as const satisfies Record<string, readonly string[]>

export type ToolName = keyof typeof VERSION_ARGV

/** Returns the first line of a program's output; '' if there is none. */
export function versionIn(output: string): string {
  return output.split('\n')[0]?.trim() ?? ''
}

/** Returns the image's record of a program; null if it has none, or if `dir` is null. */
export function recordedTool(dir: string | null, name: ToolName): Tool | null {
  const text = dir === null ? null : readTextOrNull(`${dir}/${toolsFile}`)
  const tools: unknown = text === null ? null : JSON.parse(text)
  const tool = isRecord(tools) ? tools[name] : null
  if (!isRecord(tool) || typeof tool.version !== 'string' || typeof tool.sha256 !== 'string') return null
  return { version: tool.version, sha256: tool.sha256 }
}
