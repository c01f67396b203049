// The builder image's record of its programs, made with the image, so that a build does not start each of them only for
// its version. The image is measured, and so is the record. Effects: reads the image.

import type { Tool } from '../attest/provenance/record.ts'
import { isRecord } from '../base/json.ts'
import { readTextOrNull } from '../linux/files.ts'

/** In the builder image. */
export const recordsDir = '/usr/lib/strongroom/tools'
export const toolsFile = 'versions.json'
/** Answers of rustc that cargo keeps in its target directory as `rustInfoName`. */
export const rustInfoFile = 'rustc-info.json'
export const rustInfoName = '.rustc_info.json'

/** Programs that a statement names, and how each prints its version. */
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

/** Returns the first line of what a program printed. '' if it printed none. */
export function versionIn(output: string): string {
  return output.split('\n')[0]?.trim() ?? ''
}

/** Returns what the image records of a program. Null if it records nothing, or if `dir` is null. */
export function recordedTool(dir: string | null, name: ToolName): Tool | null {
  const text = dir === null ? null : readTextOrNull(`${dir}/${toolsFile}`)
  const tools: unknown = text === null ? null : JSON.parse(text)
  const tool = isRecord(tools) ? tools[name] : null
  if (!isRecord(tool) || typeof tool.version !== 'string' || typeof tool.sha256 !== 'string') return null
  return { version: tool.version, sha256: tool.sha256 }
}
