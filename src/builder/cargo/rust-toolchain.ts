// Reads the toolchain file of a source, rust-toolchain.toml or rust-toolchain. Effects: reads files of the source.

import * as fs from 'node:fs'
import { parse } from 'smol-toml'
import type { PinnedCompiler } from '../../attest/provenance/compiler.ts'
import { isRecord } from '../../base/json.ts'
import { refuseUnless } from '../failure.ts'
import { readBounded } from '../project.ts'
import type { ChannelNeeds } from './channel.codec.ts'

const channelPattern = /^[A-Za-z0-9._-]{1,128}$/

const namePattern = /^[a-z0-9_][a-z0-9_.-]{0,63}$/
const namesMax = 32

/** A toolchain file: the channel, and the components and targets beside the compiler. */
export type RustPin = PinnedCompiler & ChannelNeeds

/** Returns the toolchain file nearest to the project, like rustup; null if there is none. Failure `source_invalid`. */
export async function pinnedRust(root: string, dir: string): Promise<RustPin | null> {
  const components = dir === '' ? [] : dir.split('/')
  for (let depth = components.length; depth >= 0; depth -= 1) {
    for (const name of ['rust-toolchain', 'rust-toolchain.toml']) {
      const path = [...components.slice(0, depth), name].join('/')
      if (fs.lstatSync(`${root}/${path}`, { throwIfNoEntry: false })?.isFile() !== true) continue
      const text = await readBounded(`${root}/${path}`, path)
      const settings = settingsIn(text)
      const { channel } = settings
      refuseUnless(
        channel !== null && channelPattern.test(channel),
        'source_invalid',
        () => `${path}: does not name a channel; write [toolchain] with channel = "1.96.0"`,
      )
      const namesAt = (field: 'components' | 'targets') => {
        const names = settings[field]
        refuseUnless(
          names !== null && names.length <= namesMax,
          'source_invalid',
          () => `${path}: ${field}: not a list of at most ${namesMax} names`,
        )
        return names
      }
      return { path, channel, components: namesAt('components'), targets: namesAt('targets') }
    }
  }
  return null
}

type Settings = {
  readonly channel: string | null
  /** Null unless it is a list of names. */
  readonly components: readonly string[] | null
  readonly targets: readonly string[] | null
}

/** Parses the file. A file of one line contains only the channel. */
function settingsIn(text: string): Settings {
  if (!text.trim().includes('\n') && !text.includes('=')) return { channel: text.trim(), components: [], targets: [] }
  try {
    const { toolchain } = parse(text)
    if (!isRecord(toolchain)) return noSettings
    const { channel, path, components, targets } = toolchain
    // With `path`, rustup uses a directory of the developer's machine, regardless of its content.
    const found = channel ?? (path === undefined ? 'stable' : null)
    return {
      channel: typeof found === 'string' && path === undefined ? found : null,
      components: namesOf(components),
      targets: namesOf(targets),
    }
  } catch {
    return noSettings
  }
}

const noSettings: Settings = { channel: null, components: null, targets: null }

function namesOf(value: unknown): readonly string[] | null {
  if (value === undefined) return []
  if (!Array.isArray(value)) return null
  return value.every(name => typeof name === 'string' && namePattern.test(name)) ? value : null
}
