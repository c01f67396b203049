// The units of scripts/systemd as a package installs them: where each file goes, and which units are enabled, started
// and restarted. Pure.
//
// All are units by their names: NAME.service, .timer, .socket, .mount, .path, .target or .slice.

import { assert } from '../../src/base/assert.ts'

export type UnitFile = { readonly name: string; readonly text: string }

export type InstalledUnit = {
  /** Without a leading slash. */
  readonly path: string
  readonly text: string
}

export type Units = {
  readonly files: readonly InstalledUnit[]
  /** Those with an [Install] section. */
  readonly enabled: readonly string[]
  /** Enabled units that an upgrade starts anew: it may not touch what holds VMs or their network. */
  readonly restarted: readonly string[]
}

const unitName = /\.(?:service|timer|socket|mount|path|target|slice)$/
const unitsDir = 'usr/lib/systemd/system'
/** Where the sources say that the executable is, and where a package puts it. */
const sourceExecutable = '/usr/local/bin/strongroom'
const executable = '/usr/bin/strongroom'

export function unitsOf(found: readonly UnitFile[]): Units {
  const files = found.map(({ name, text }): InstalledUnit => {
    assert(unitName.test(name), `a unit is named as one: ${name}`)
    return { path: `${unitsDir}/${name}`, text: text.replaceAll(sourceExecutable, executable) }
  })
  const enabled = found.filter(({ text }) => /^\[Install\]$/m.test(text))
  return {
    files: files.toSorted((a, b) => (a.path < b.path ? -1 : 1)),
    enabled: enabled.map(({ name }) => name).toSorted(),
    restarted: enabled
      .filter(({ name, text }) => !(name.endsWith('.service') && /^Type=oneshot$/m.test(text)))
      .map(({ name }) => name)
      .toSorted(),
  }
}
